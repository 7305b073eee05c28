"""Killed at any moment, or with no room left, a run has lost nothing and leaves nothing behind."""

import dataclasses
import errno
import itertools
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tiny import SPAN, assert_same, fork, kill, on_lines, steps_of, stopping

from redraft import checkpoint, trainer
from redraft.config import Config
from redraft.errors import Stopped, UserError
from redraft.folder import Sealed, publish, seal, write_json, written

pytestmark = pytest.mark.usefixtures("no_waiting_for_the_disk")


# ------------------------------------------------------------------ killed


def go_on(config: Config, folder: Path) -> None:
    """What a person does after a kill."""
    if checkpoint.latest(folder) is None:
        shutil.rmtree(folder, ignore_errors=True)
        trainer.train(config, folder)
    else:
        trainer.resume(folder)


def assert_whole(folder: Path) -> None:
    """What lies there as the latest state is all there."""
    if (latest := checkpoint.latest(folder)) is not None:
        Sealed(latest)
        Sealed(latest / "model")


def test_killed_at_random_moments(lines: Path, tmp_path: Path, uninterrupted):
    config = on_lines("vsdd", lines, steps=36, log_every=5, save_every=3)
    began = time.perf_counter()
    trainer.train(config, tmp_path / "measured")
    whole = time.perf_counter() - began
    expected, rng = uninterrupted(config), random.Random(0)
    kills = runs = 0
    while kills < 20:
        folder = tmp_path / f"run-{runs}"
        child = fork(lambda folder=folder: go_on(config, folder))
        until = time.perf_counter() + rng.uniform(0, whole / 3)
        while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.perf_counter() < until:
            time.sleep(0.001)
        if ended[0]:
            assert ended[1] == 0, "a continued run failed"
            assert_same(folder, expected)
            runs += 1
        else:
            kill(child)
            kills += 1
            assert_whole(folder)
    go_on(config, tmp_path / f"run-{runs}")
    assert_same(tmp_path / f"run-{runs}", expected)


def test_killed_early_a_run_goes_on_from_its_beginning(lines: Path, tmp_path: Path):
    config, folder = on_lines("mdlm", lines, **SPAN), tmp_path / "run"
    child = fork(
        lambda: trainer.train(config, folder, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    )
    os.waitpid(child, 0)
    assert checkpoint.latest(folder) == folder / "state" / "00000000"
    trainer.resume(folder)
    assert steps_of(folder) == 17


WRITING = [
    (os, "fsync"), (os, "replace"), (os, "rename"), (os, "mkdir"),
    (Path, "write_bytes"), (Path, "write_text"), (shutil, "copyfile"),
]  # fmt: skip
REMOVING = [(os, "unlink"), (os, "rmdir")]


class Accident:
    """Something happens at one of the operations on files; what was being written is cut short."""

    def __init__(self, happens: Callable[[], None], at: int, among: list[tuple[Any, str]]):
        self.happens, self.at, self.among = happens, at, among
        self.done = 0

    def __enter__(self) -> "Accident":
        self.patch = pytest.MonkeyPatch()
        for home, name in self.among:
            self.patch.setattr(home, name, self.guarded(name, getattr(home, name)))
        return self

    def __exit__(self, *_: object) -> None:
        self.patch.undo()

    def guarded(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*args: Any, **kwargs: Any) -> Any:
            self.done += 1
            if self.done == self.at:
                if name.startswith("write"):
                    real(args[0], args[1][: len(args[1]) // 2], **kwargs)
                self.happens()
            return real(*args, **kwargs)

        return operation


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def disk_full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


ACCIDENTS = {"killed": (die, WRITING + REMOVING), "disk full": (disk_full, WRITING)}


def every_accident(kind: str, work: Callable[[], Any]) -> Iterator[str]:
    """The work, with an accident at its first operation, then at its second ..., to the last."""
    happens, among = ACCIDENTS[kind]
    for at in itertools.count(1):
        accident = Accident(happens, at, among)
        if kind == "killed":

            def attempt(accident: Accident = accident) -> None:
                with accident:
                    work()

            died = os.WIFSIGNALED(os.waitpid(fork(attempt), 0)[1])
            if not died:
                return
        else:
            with accident, suppress(OSError):
                work()
            if accident.done < at:
                return
        yield f"{kind} at operation {at}"


@pytest.mark.parametrize("kind", ACCIDENTS)
def test_a_folder_is_whole_or_not_there_whatever_happens(kind: str, tmp_path: Path):
    folder = tmp_path / "box" / "folder"

    def write() -> None:
        with written(folder) as aside:
            write_json(aside / "a.json", "x")
            (aside / "b.bin").write_bytes(b"x" * 1000)

    write()
    whole = content(folder)
    shutil.rmtree(folder.parent)
    halves = []
    for when in every_accident(kind, write):
        if folder.is_dir() and content(folder) != whole:
            halves.append(when)
        shutil.rmtree(folder.parent, ignore_errors=True)
    assert not halves


@pytest.fixture(scope="module")
def saves(lines: Path, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, Any]]:
    """The run folder as it was before each save of a run, and how to repeat that save on a copy."""
    root = tmp_path_factory.mktemp("saves")
    found: list[tuple[Path, Any]] = []
    real = checkpoint.save_state

    def observed(run: Path, *args: Any) -> None:
        shutil.copytree(run, root / str(len(found)))
        found.append((root / str(len(found)), lambda copy: real(copy, *args)))
        real(run, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "save_state", observed)
        trainer.train(on_lines("vsdd", lines, steps=4, save_every=2, keep=1), root / "run")
    return found


@pytest.mark.parametrize("kind", ACCIDENTS)
@pytest.mark.parametrize("nth", [2, 3], ids=["a further state", "a state at the same step"])
def test_an_accident_while_saving_leaves_a_state_and_a_model(
    kind: str, nth: int, saves: list[tuple[Path, Any]], tmp_path: Path
):
    before, save = saves[nth]
    run = tmp_path / "run"
    shutil.copytree(before, run)
    lost = []
    for when in every_accident(kind, lambda: save(run)):
        for what, load in (("state", checkpoint.load_state), ("model", checkpoint.load)):
            try:
                load(run)
            except UserError as error:
                lost.append(f"{when}: no {what}: {error}")
        shutil.rmtree(run)
        shutil.copytree(before, run)
    assert not lost, "\n".join(lost)


@pytest.mark.parametrize("moment", range(8))
def test_killed_while_working_with_files(moment: int, lines: Path, tmp_path: Path, uninterrupted):
    config, folder = on_lines("vsdd", lines, steps=7, save_every=2, log_every=3), tmp_path / "run"
    at = random.Random(moment).randrange(1, 150)

    def doomed() -> None:
        with Accident(die, at, WRITING + REMOVING):
            trainer.train(config, folder)

    _, status = os.waitpid(fork(doomed), 0)
    assert os.WIFSIGNALED(status)
    assert_whole(folder)
    go_on(config, folder)
    assert_same(folder, uninterrupted(config))


# ------------------------------------------------------------------ no room


@pytest.mark.parametrize("nth", [2, 3])
@pytest.mark.parametrize("place", WRITING, ids=[name for _, name in WRITING])
def test_a_save_that_fails_loses_nothing(
    place: tuple[Any, str], nth: int, lines: Path, tmp_path: Path, uninterrupted
):
    config, folder = on_lines("mdlm", lines, steps=7, save_every=2, log_every=3), tmp_path / "run"
    real, seen = checkpoint.save_state, itertools.count(1)

    def failing(*args: Any) -> None:
        if next(seen) < nth:
            return real(*args)
        at = 2 if place == (os, "mkdir") else 1  # the first is for a folder that is there already
        with Accident(disk_full, at, [place]):
            real(*args)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(UserError) as error:
        patch.setattr(checkpoint, "save_state", failing)
        trainer.train(config, folder)
    said = str(error.value)
    assert len(said.splitlines()) == 1
    assert f"step {2 * nth - 2} could not be saved" in said
    assert os.strerror(errno.ENOSPC) in said
    assert str(folder) in said
    assert steps_of(folder) >= 2 * nth - 4
    checkpoint.load(folder)
    trainer.resume(folder)
    assert_same(folder, uninterrupted(config))
    assert not list(folder.rglob(".*.new"))


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True, text=True)
    except OSError as error:
        pytest.skip(f"no file system can be mounted here: {error}")
    if mounted.returncode:
        pytest.skip(f"no file system may be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path) -> None:
    with (disk / "ballast").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError as error:
            assert error.errno == errno.ENOSPC


@pytest.mark.parametrize(
    "every",
    [
        {"steps": 14, "log_every": 2, "save_every": 6},
        {"steps": 80, "log_every": 1, "save_every": 30},
    ],
    ids=["while saving", "while logging"],
)
def test_a_full_disk_loses_nothing(
    every: dict[str, int], lines: Path, tmp_path: Path, uninterrupted
):
    """`fill` leaves the rest of a page to the files that end in it, so a few lines of log fit."""
    config = on_lines("mdlm", lines, **every)
    full = every["save_every"] + every["log_every"]
    with small_disk(tmp_path / "disk") as disk:
        folder = disk / "run"

        def watch(step: int, *_: Any) -> None:
            if step == full:
                fill(disk)

        with pytest.raises(UserError) as error:
            trainer.train(config, folder, watch)
        assert len(str(error.value).splitlines()) == 1
        assert os.strerror(errno.ENOSPC) in str(error.value)
        assert steps_of(folder) == every["save_every"]
        checkpoint.load(folder)
        (disk / "ballast").unlink()
        trainer.resume(folder)
        assert_same(folder, uninterrupted(config))


# ------------------------------------------------------------------ what stays


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_only_the_last_states_are_kept(keep: int, lines: Path, tmp_path: Path):
    config = on_lines("mdlm", lines, steps=11, save_every=2, keep=keep)
    trainer.train(config, tmp_path / "run")
    names = [path.name for path in checkpoint.states(tmp_path / "run")]
    assert names == [f"{step:08}" for step in (2, 4, 6, 8, 10, 11)[-keep:]]
    assert not list(tmp_path.rglob(".*.new"))


def test_what_a_killed_save_left_aside_does_not_disturb_and_does_not_stay(
    lines: Path, tmp_path: Path, uninterrupted
):
    config, folder = on_lines("mdlm", lines, steps=7, save_every=2, log_every=3), tmp_path / "run"
    with stopping(config, 3), pytest.raises(Stopped):
        trainer.train(config, folder)
    (folder / ".model.safetensors.new").write_bytes(b"half of it")
    for step in (3, 4, 5):  # 4 will be saved again, 3 and 5 not
        shutil.copytree(folder / "state/00000003", folder / f"state/.{step:08}.new")
        (folder / f"state/.{step:08}.new/state.safetensors").write_bytes(b"half of it")
    trainer.resume(folder)
    assert_same(folder, uninterrupted(config))
    assert not list(folder.rglob(".*.new"))


def test_a_line_of_metrics_that_a_kill_cut_short_is_written_anew(
    lines: Path, tmp_path: Path, uninterrupted
):
    config, folder = on_lines("mdlm", lines, **SPAN), tmp_path / "run"
    with stopping(config, 9), pytest.raises(Stopped):
        trainer.train(config, folder)
    with (folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 12, "seconds": 1.0, "loss": 1.0}\n{"step": 13, "sec')
    trainer.resume(folder)
    assert_same(folder, uninterrupted(config))


def test_metrics_survive_a_kill_at_the_moment_of_resuming(
    lines: Path, tmp_path: Path, uninterrupted
):
    """The log is cut back to the state's step; half-way through that, the process dies."""
    config, folder = on_lines("mdlm", lines, **SPAN), tmp_path / "run"
    with stopping(config, 9), pytest.raises(Stopped):
        trainer.train(config, folder)

    def doomed() -> None:
        with Accident(die, 1, [(Path, "write_text"), (os, "replace")]):
            trainer.resume(folder)

    os.waitpid(fork(doomed), 0)
    trainer.resume(folder)
    assert_same(folder, uninterrupted(config))


def test_a_model_that_finds_no_room_leaves_the_older_one_whole(lines: Path, tmp_path: Path):
    older = trainer.train(on_lines("mdlm", lines, steps=2), tmp_path / "run")
    newer = dataclasses.replace(older, summary=older.summary | {"name": "newer"})
    folder = tmp_path / "model"
    checkpoint.save(folder, older)
    before = content(folder)
    taking_room = [(Path, "write_bytes"), (Path, "write_text"), (shutil, "copyfile")]
    for at in itertools.count(1):
        with Accident(disk_full, at, taking_room):
            try:
                checkpoint.save(folder, newer)
            except UserError as error:
                said = str(error)
            else:
                break
        assert str(folder) in said and os.strerror(errno.ENOSPC) in said
        assert content(folder) == before, f"disk full at operation {at}"
    assert at == 2 * len(before) + 1  # every file was written, then copied
    assert checkpoint.load(folder).summary["name"] == "newer"


def test_a_model_is_saved_where_one_stands(lines: Path, tmp_path: Path, monkeypatch):
    trained = trainer.train(on_lines("mdlm", lines, steps=2), tmp_path / "run")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    checkpoint.save(Path("."), trained)
    assert checkpoint.load(".").config == trained.config


def test_publishing_brings_every_file_and_nothing_else(tmp_path: Path):
    (tmp_path / "from").mkdir()
    (tmp_path / "from/a.json").write_text("1")
    seal(tmp_path / "from")
    publish(tmp_path / "from", tmp_path / "to")
    assert content(tmp_path / "to") == content(tmp_path / "from")
    Sealed(tmp_path / "to")
