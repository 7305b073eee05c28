"""A run that was stopped ends bit for bit where it would have ended."""

import dataclasses
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny import (
    LINES,
    SPAN,
    assert_same,
    fork,
    kill,
    on_lines,
    outcome,
    steps_of,
    stopping,
    write_lines,
)

from redraft import checkpoint, trainer
from redraft.cli import main
from redraft.config import Config
from redraft.data.corpus import split
from redraft.errors import Stopped, UserError
from redraft.folder import locked
from redraft.methods import METHODS, entry

pytestmark = pytest.mark.usefixtures("no_waiting_for_the_disk")


def train_with_stops(config: Config, folder: Path, stops: tuple[int, ...]) -> None:
    go: Callable[[], Any] = lambda: trainer.train(config, folder)  # noqa: E731
    for at in stops:
        with stopping(config, at), pytest.raises(Stopped, match=f"stopped at step {at};"):
            go()
        go = lambda: trainer.resume(folder)  # noqa: E731
    go()


# ------------------------------------------------------------------ stopped


@pytest.mark.parametrize(
    "stops",
    [(3,), (10,), (8, 14)],
    ids=["inside a block", "at its edge", "at a log edge, and again inside a block"],
)
@pytest.mark.parametrize("method", METHODS)
def test_resumed_equals_uninterrupted(
    method: str, stops: tuple[int, ...], lines: Path, tmp_path: Path, uninterrupted
):
    config = on_lines(method, lines, **SPAN)
    train_with_stops(config, tmp_path / "run", stops)
    assert_same(tmp_path / "run", uninterrupted(config))


@pytest.mark.parametrize("stops", [(1,), (12,), (17,), (6, 7), (5, 9, 16)], ids=str)
def test_no_step_is_a_bad_one_to_stop_at(
    stops: tuple[int, ...], lines: Path, tmp_path: Path, uninterrupted
):
    config = on_lines("vsdd", lines, **SPAN)
    train_with_stops(config, tmp_path / "run", stops)
    assert_same(tmp_path / "run", uninterrupted(config))


@pytest.mark.parametrize("option", ["split", "sequence", "learned", "rest", "muon"])
def test_resumed_equals_uninterrupted_with_other_options(
    option: str, lines: Path, tmp_path: Path, uninterrupted
):
    config = on_lines("vsdd", lines, **SPAN)
    config = {
        "split": lambda: on_lines("vsdd", lines, **SPAN, bound="split"),
        "sequence": lambda: with_part(config, "leader", credit="sequence"),
        "learned": lambda: with_part(config, "denoiser", positions="learned"),
        "rest": lambda: with_part(config, "leader", rest_first=0.3, rest_last=0.2),
        "muon": lambda: with_part(config, "optimizer", kind="muon"),
    }[option]()
    train_with_stops(config, tmp_path / "run", (4, 11))
    assert_same(tmp_path / "run", uninterrupted(config))


def with_part(config: Config, part: str, **changes: Any) -> Config:
    return dataclasses.replace(
        config, **{part: dataclasses.replace(getattr(config, part), **changes)}
    )


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_from_the_watcher_stops_at_that_step(
    number: int, code: int, lines: Path, tmp_path: Path
):
    def watch(step: int, *_: Any) -> None:
        if step == 8:
            signal.raise_signal(number)

    before = signal.getsignal(number)
    with pytest.raises(Stopped, match="stopped at step 8;") as stop:
        trainer.train(on_lines("mdlm", lines, **SPAN), tmp_path / "run", watch)
    assert stop.value.exit_code == code
    assert signal.getsignal(number) is before
    assert checkpoint.load_state(tmp_path / "run").progress["step"] == 8


def test_a_watcher_without_a_reader_stops_the_run(lines: Path, tmp_path: Path, uninterrupted):
    def watch(step: int, *_: Any) -> None:
        if step >= 8:
            raise BrokenPipeError

    config, folder = on_lines("mdlm", lines, **SPAN), tmp_path / "run"
    with pytest.raises(Stopped, match="stopped at step 8;") as stop:
        trainer.train(config, folder, watch)
    assert stop.value.exit_code == 141
    trainer.resume(folder)
    assert_same(folder, uninterrupted(config))


@pytest.mark.parametrize("name", ["run", "my run", "it's", "$(run)"])
def test_the_command_that_continues_can_be_pasted_into_a_shell(
    name: str, lines: Path, tmp_path: Path
):
    config = on_lines("mdlm", lines, **SPAN)
    with stopping(config, 2), pytest.raises(Stopped) as stop:
        trainer.train(config, tmp_path / name)
    command = str(stop.value).partition("go on with: ")[2]
    assert command == shlex.join(["redraft", "train", "--resume", str(tmp_path / name)])


FLAGS = [
    "--method", "mdlm", "--train.steps", "300", "--train.batch", "4", "--train.log-every", "5",
    "--train.validate", "4", "--noise.T", "4", "--denoiser.width", "8", "--denoiser.layers", "1",
    "--denoiser.heads", "1", "--leader.batch", "4", "--train.device", "cpu",
]  # fmt: skip


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_to_the_command(number: int, code: int, lines: Path, tmp_path: Path, capsys):
    out = tmp_path / "run"
    words = ["train", "--data", str(lines), "--out", str(out), *FLAGS]
    source = Path(trainer.__file__).parents[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "redraft", *words],
        env=os.environ | {"PYTHONPATH": str(source)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while not (out / "metrics.jsonl").exists() or not (out / "metrics.jsonl").read_text():
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == code, said
    assert len(said.splitlines()) == 1
    assert (found := re.search(r"redraft: stopped at step (\d+); go on with: redraft (.*)", said))
    assert 5 <= int(found[1]) < 300
    capsys.readouterr()
    assert main(shlex.split(found[2])) == 0
    assert str(out) in capsys.readouterr().out
    rows = [json.loads(row) for row in (out / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [*range(5, 301, 5), 300]


# ------------------------------------------------------------------ the command --resume


@pytest.fixture
def stopped(lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """runs/second, stopped at step 2, in the current folder; runs/first is older."""
    monkeypatch.chdir(tmp_path)
    config = on_lines("mdlm", lines, steps=5, log_every=2)
    for name in ("first", "second"):
        with stopping(config, 2), pytest.raises(Stopped):
            trainer.train(config, Path("runs") / name)
    os.utime("runs/first/state", (1, 1))
    return Path("runs/second")


def test_resume_auto_takes_the_newest_run(stopped: Path, capsys):
    assert main(["train", "--resume", "auto"]) == 0
    assert (steps_of(Path("runs/first")), steps_of(stopped)) == (2, 5)
    assert str(stopped) in capsys.readouterr().out


def test_resume_auto_takes_the_folder_of_out(stopped: Path):
    assert main(["train", "--resume=auto", "--out", "runs/first"]) == 0
    assert (steps_of(Path("runs/first")), steps_of(stopped)) == (5, 2)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--resume", "nowhere"], "nowhere"),
        (["--resume", "empty"], "empty"),
        (["--resume", "auto", "--out", "empty"], "empty"),
        (["tiny/vsdd", "--resume", "runs/second"], "--resume"),
        (["--resume", "runs/second", "--data", "lines.txt"], "--resume"),
        (["--resume", "runs/second", "--train.steps", "9"], "--resume"),
        (["--resume", "runs/second", "--tokenizer", "chars"], "--resume"),
    ],
    ids=[
        "no folder", "no state", "auto, no state", "recipe", "data", "other steps", "tokenizer",
    ],
)  # fmt: skip
def test_resume_that_cannot_be_gets_one_sentence(
    words: list[str], named: str, stopped: Path, capsys
):
    Path("empty").mkdir()
    before = sorted(Path().rglob("*"))
    assert main(["train", *words]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert named in said
    assert sorted(Path().rglob("*")) == before
    assert steps_of(stopped) == 2


def test_resume_auto_without_runs_gets_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--resume", "auto"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_resume_in_python_leaves_no_trace_where_there_is_no_run(name: str, tmp_path: Path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=name):
        trainer.resume(tmp_path / name)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("steps", [6, 7], ids=["saved at the end anyway", "not saved yet"])
def test_a_finished_run_stays_as_it_is(
    steps: int, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    config = on_lines("vsdd", lines, steps=steps, log_every=2, save_every=3)
    trainer.train(config, tmp_path / "run")
    before = outcome(tmp_path / "run")
    monkeypatch.setattr(entry("vsdd").method, "step", None)  # not one step more
    for _ in range(2):
        trainer.resume(tmp_path / "run")
    assert_same(tmp_path / "run", before)


# ------------------------------------------------------------------ other data, other trainers


def changed(how: str) -> list[str]:
    """The lines, other than they were."""
    train, held_out, validation = split(LINES)
    return {
        "a training line less": lambda: [x for x in LINES if x != train[0]],
        "a training line more": lambda: [*LINES, train[0]],
        "a held-out line less": lambda: [x for x in LINES if x != held_out[0]],
        "a held-out line more": lambda: [*LINES, held_out[0]],
        "a validation line less": lambda: [x for x in LINES if x != validation[0]],
        "a new letter": lambda: [*LINES, validation[0].replace(validation[0][0], "Q")],
    }[how]()


@pytest.mark.parametrize(
    "how",
    [
        "a training line less",
        "a training line more",
        "a held-out line less",
        "a held-out line more",
        "a validation line less",
        "a new letter",
    ],
)
def test_data_that_changed_are_refused(how: str, tmp_path: Path):
    file = write_lines(tmp_path / "lines.txt")
    config = on_lines("vsdd", file, **SPAN)
    with stopping(config, 7), pytest.raises(Stopped):
        trainer.train(config, tmp_path / "run")
    write_lines(file, changed(how))
    with pytest.raises(UserError, match=r"data .*have changed"):
        trainer.resume(tmp_path / "run")
    assert steps_of(tmp_path / "run") == 7


def test_the_same_ids_of_other_letters_are_other_data(tmp_path: Path):
    """One letter for another, in the same place of the alphabet: every id stays what it was."""
    file = tmp_path / "lines.txt"
    letters = [f"{a}{b}" for a in "abc" for b in "uvw"]
    train, held_out, validation = split(letters)
    for other in map(chr, range(ord("B"), ord("Z"))):
        renamed = [x.replace("a", other) for x in letters]
        if [x.replace(other, "a") for x in split(renamed)[0]] == train:
            break
    else:
        pytest.fail("no letter keeps the parts as they are")
    file.write_text("\n".join(letters), encoding="utf-8")
    config = on_lines("mdlm", file, **SPAN)
    with stopping(config, 2), pytest.raises(Stopped):
        trainer.train(config, tmp_path / "run")
    file.write_text("\n".join(renamed), encoding="utf-8")
    with pytest.raises(UserError, match=r"data .*have changed"):
        trainer.resume(tmp_path / "run")


def test_data_that_are_gone_get_a_sentence(tmp_path: Path):
    file = write_lines(tmp_path / "lines.txt")
    config = on_lines("mdlm", file, **SPAN)
    with stopping(config, 2), pytest.raises(Stopped):
        trainer.train(config, tmp_path / "run")
    file.unlink()
    with pytest.raises(UserError, match=r"lines\.txt"):
        trainer.resume(tmp_path / "run")


def test_one_trainer_at_a_time_and_a_killed_one_holds_nothing(lines: Path, tmp_path: Path):
    config, folder = on_lines("mdlm", lines, **SPAN), tmp_path / "run"
    with stopping(config, 2), pytest.raises(Stopped):
        trainer.train(config, folder)
    held, told = os.pipe()

    def hold() -> None:
        with locked(folder), locked(tmp_path / "other"):
            os.write(told, b"!")
            signal.pause()

    child = fork(hold)
    try:
        os.read(held, 1)
        before = sorted(folder.rglob("*"))
        with pytest.raises(UserError, match="another process") as refused:
            trainer.resume(folder)
        assert str(folder) in str(refused.value)
        with pytest.raises(UserError, match="another process"):
            trainer.train(config, tmp_path / "other")
        assert sorted(folder.rglob("*")) == before
    finally:
        kill(child)
        os.close(held)
        os.close(told)
    trainer.resume(folder)
    trainer.train(config, tmp_path / "other")
    assert steps_of(folder) == steps_of(tmp_path / "other") == 17


def test_of_two_trainers_that_start_together_one_is_refused(
    lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The second comes while the first still reads its data."""
    config, folder = on_lines("mdlm", lines, **SPAN), tmp_path / "run"
    ready = trainer.ready

    def slowly(config: Config) -> Any:
        monkeypatch.setattr(trainer, "ready", ready)
        refused.append(os.waitpid(fork(lambda: trainer.train(config, folder)), 0)[1])
        return ready(config)

    refused: list[int] = []
    monkeypatch.setattr(trainer, "ready", slowly)
    trainer.train(config, folder)
    assert refused[0] != 0
    assert steps_of(folder) == 17
