"""`redraft bench`: what it reports, and that it measures what it says; never how long it took."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import Mock

import pytest
import torch
from tiny import TINY
from torch import Tensor

from redraft import bench
from redraft.bench import BENCHES, agreement, measure, random_tokens
from redraft.bench.agreement import losses
from redraft.bench.train import operations, parts
from redraft.cli import main
from redraft.methods import METHODS
from redraft.recording import Outputs, Recorder, Work, directly
from redraft.trainer import assemble, loop

DATA = random_tokens(V=12, L=7, n=64)
PARTS = {
    "data",
    "corrupt",
    "forward",
    "posterior + bound",
    "backward",
    "optimizer",
    "average",
    "leader, amortised",
}


def test_a_row_for_every_method_and_mdlm_first():
    rows = bench.train(TINY, DATA, list(METHODS), windows=1, warm=0)
    assert [row["method"] for row in rows] == list(METHODS)
    assert rows[0]["ratio_to_mdlm"] == 1
    for row in rows:
        assert row["value"] > 0
        assert 0.01 < row["ratio_to_mdlm"] < 100
        assert row["sequences_per_second"] == pytest.approx(1e3 * 16 / row["value"])
        assert row["tokens_per_second"] == pytest.approx(7 * row["sequences_per_second"])
        assert 0 < row["mfu"] < 10
        assert set(row["parts_ms"]) == PARTS
        assert all(map(math.isfinite, (*row["parts_ms"].values(), *row["losses"])))


def test_parts_leave_the_run_where_a_step_would():
    """They are pieces of real steps: weights move, and nothing breaks."""
    run = assemble(TINY, DATA)
    before = run.method.denoiser.embeddings.clone()
    parts(run)
    assert not torch.equal(before, run.method.denoiser.embeddings)
    assert float(run.method.step(run.batches[0], 0.5)["loss"]) > 0


def test_operations_are_six_for_each_weight_and_attention_on_top():
    run = assemble(TINY, DATA)
    D, V, layers, L = 16, 12, 1, 7
    weights = layers * (12 * D * D + 13 * D) + D * V + V
    assert operations(run, DATA) == 6 * weights + 12 * layers * D * L


@pytest.mark.parametrize("what", ["sample", "kernel", "checkpoint"])
def test_other_benches_give_rows(what):
    rows = BENCHES[what](TINY, DATA, ["vsdd"], True)
    assert rows
    for row in rows:
        assert row["value"] > 0
        assert row["unit"] in ("ms", "sequences/s", "of a run")


def test_a_page_is_asked_as_visitors_do():
    rows = bench.serve(requests=5)
    assert [row["unit"] for row in rows] == ["s", "ms", "s", "MB"]
    assert all(row["value"] > 0 for row in rows)
    assert rows[2]["ratio_to_one"] > 1


def test_losses_agree_where_nothing_is_compiled(monkeypatch):
    monkeypatch.setattr("redraft.methods.method.compiled", lambda denoiser: denoiser)
    (row,) = agreement(TINY, DATA, ["vsdd"])
    assert row["value"] == 0
    assert row["plain"] == row["fast"] == losses(TINY, "vsdd", DATA, compiled=False)
    assert len(row["plain"]) == 24


def test_rows_are_written_with_what_they_were_measured_on(tmp_path: Path):
    path = measure.write("train", [{"what": "x", "value": 1.0, "peak_gb": None}], tmp_path / "new")
    (row,) = json.loads(path.read_text())
    assert row["value"] == 1
    assert "peak_gb" not in row  # what does not apply is absent
    assert row["hardware"] and row["torch"] == torch.__version__


def test_the_age_of_a_process_grows():
    first = measure.process_age()
    assert first is None or 0 < first <= (measure.process_age() or 0)


# The command


def test_the_command_prints_a_table_and_writes_json(tmp_path: Path, capsys):
    flags = ["--methods", "vsdd", "--vocabulary", "12", "--length", "7", "--quick"]
    assert main(["bench", "sample", *flags, "--out", str(tmp_path), "--name", "mine"]) == 0
    printed = capsys.readouterr().out
    assert "mdlm" in printed and "vsdd" in printed and "sequences/s" in printed
    rows = json.loads((tmp_path / "mine.json").read_text())
    assert {row["method"] for row in rows} == {"mdlm", "vsdd"}
    assert {row["recipe"] for row in rows} == {"tiny/vsdd"}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["speed"], "speed"),
        (["train", "--methods", "mdml"], "mdml"),
        (["train", "--recipe", "tiny/none"], "tiny/none"),
        (["train", "--length", "7"], "--vocabulary"),
        (["train", "--vocabulary", "12"], "--length"),
        (["train", "--vocabulary", "5", "--length", "7"], "got 5"),
        (["train", "--vocabulary", "9", "--length", "1"], "got 1"),
        (["train", "--data", "x.smi", "--vocabulary", "9", "--length", "7"], "--data"),
        (["train", "--data", "missing.smi"], "missing.smi"),
    ],
)
def test_a_mistake_is_told_in_one_sentence(flags, said, capsys, tmp_path: Path):
    assert main(["bench", *flags, "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


# Recordings, without a GPU to make them on


class Tape(Recorder):
    """Records by remembering the work, and replays by doing it."""

    def __init__(self):
        self.recordings, self.recorded = {}, 0

    def record(self, work: Work, inputs: Sequence[Tensor]) -> Any:
        self.recorded += 1
        return Replay(work)


class Replay(NamedTuple):
    work: Work

    def replay(self, inputs: Sequence[Tensor]) -> Outputs:
        return self.work(*inputs)


def test_a_shape_is_run_then_recorded_then_replayed():
    tape = Tape()
    done: list[tuple[int, ...]] = []

    def work(x: Tensor, y: Tensor) -> dict[str, Tensor]:
        done.append(tuple(x.shape))
        return {"sum": x.sum() + y}

    one = torch.ones(())
    for n, recorded in ((3, 0), (3, 1), (3, 1), (4, 1), (3, 1), (4, 2), (4, 2)):
        x = torch.arange(float(n))
        assert tape(work, [x, one]) == directly(work, [x, one])
        assert tape.recorded == recorded
    tape(work, [torch.ones(3), one], "another phase")
    assert tape.recorded == 2


def test_recordings_are_not_forgotten_while_they_play(monkeypatch):
    """A GPU would read memory that is no longer its own."""
    tape, order = Tape(), []
    tape(lambda x: {"x": x}, [torch.ones(3)])
    for name in ("synchronize", "empty_cache"):
        monkeypatch.setattr(
            torch.cuda, name, lambda n=name: order.append((n, len(tape.recordings)))
        )
    tape.forget()
    assert order == [("synchronize", 1), ("empty_cache", 0)]


@pytest.mark.parametrize("method", METHODS)
def test_recorded_steps_depend_on_their_inputs_alone(method):
    """What a step reads beside its inputs would be frozen in a recording: here, made visible.

    The tape of each shape is kept from its first batch; a later batch must still be its own.
    """
    config = replace(TINY, method=method)
    plain, taped = assemble(config, DATA), assemble(config, DATA)
    taped.method.recorder = tape = Tape()
    for i in range(12):
        losses = [float(r.method.step(r.batches[i], i / 12)["loss"]) for r in (plain, taped)]
        assert losses[0] == losses[1]
    assert tape.recordings


def test_recordings_go_with_the_last_step(tmp_path, monkeypatch):
    """Before the bound and all that is drawn: they hold most of a GPU's memory."""
    monkeypatch.setattr(torch.cuda, "synchronize", Mock())
    run = assemble(replace(TINY, train=replace(TINY.train, steps=3)), DATA)
    run.method.recorder = tape = Tape()
    held = []
    run.bound = lambda trained: held.append(len(tape.recordings)) or 0.0  # pyright: ignore
    run.trained.summary["bound_start"] = 0.0
    loop(run, tmp_path, None)
    assert held == [0]
