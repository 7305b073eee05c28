"""Runs of a second, folders of a few kilobytes, and what it means for two runs to be the same."""

import dataclasses
import json
import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import redraft
from redraft import checkpoint
from redraft.config import (
    Config,
    DataConfig,
    DenoiserConfig,
    LeaderConfig,
    NoiseConfig,
    OptimizerConfig,
    TrainConfig,
)
from redraft.folder import Sealed
from redraft.methods import entry

TINY = Config(
    data=DataConfig(max_length=14, long="drop"),
    noise=NoiseConfig(T=5, hidden=8),
    denoiser=DenoiserConfig(
        width=16, layers=1, heads=2, neighbours=1, recall=True, infills=True, evidence=True
    ),
    optimizer=OptimizerConfig(lr=1e-2),
    train=TrainConfig(
        steps=30, batch=16, log_every=10, save_every=10, validate=32, ema=0.5, drafts=True
    ),
    leader=LeaderConfig(block=5, batch=8, probes=2),
)


def tiny(method: str, **train) -> Config:
    """A run on molecules."""
    return dataclasses.replace(TINY, method=method, train=dataclasses.replace(TINY.train, **train))


def on_lines(method: str, file: Path, **train) -> Config:
    """A run on a file of lines, which is read in no time."""
    config = tiny(method, **{"validate": 8, "device": "cpu"} | train)
    return dataclasses.replace(config, data=DataConfig(domain="lines", file=str(file)))


LINES = sorted(f"{a}{b}{c}{d}" for a in "abcdef" for b in "xyz" for c in "uvw" for d in ("", "st"))
SPAN = {"steps": 17, "log_every": 4, "save_every": 6}  # and blocks of 5


def write_lines(file: Path, lines: list[str] = LINES) -> Path:
    order = random.Random(0).sample(lines, len(lines))
    file.write_text("\n".join(order) + "\n", encoding="utf-8")
    return file


# ------------------------------------------------------------------ what two runs share


def bits(tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Type, shape and every bit, so that not-a-number equals itself and -0 is not 0."""
    return {
        name: (x.dtype, x.shape, x.detach().reshape(-1).view(torch.uint8).numpy().tobytes())
        for name, x in tensors.items()
    }


def outcome(folder: Path) -> dict[str, Any]:
    """All that a run leaves behind, less the clock: equal for equal runs, bit for bit."""
    latest = checkpoint.latest(folder)
    assert latest is not None
    rows = [json.loads(row) for row in (folder / "metrics.jsonl").read_text().splitlines()]
    progress = json.loads((latest / "progress.json").read_text())
    summary = dict(checkpoint.load(folder).summary)
    for timed in (*rows, progress, summary):
        del timed["seconds"]
    return {
        "averaged weights and process": bits(Sealed(folder).tensors("model")),
        "the same in the state": bits(Sealed(latest / "model").tensors("model")),
        "live weights, optimizers, random numbers": bits(Sealed(latest).tensors("state")),
        "progress": progress,
        "summary": summary,
        "metrics": rows,
        "samples": redraft.load(folder, "cpu").sample(6, seed=0),
    }


def assert_same(folder: Path, expected: dict[str, Any]) -> None:
    found = outcome(folder)
    for what, value in expected.items():
        assert found[what] == value, f"{what} of {folder}"


# ------------------------------------------------------------------ children to kill


def fork(work: Callable[[], Any]) -> int:
    """Do the work in a copy of this process; its id. It exits with 0 when all went well."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)


def kill(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@contextmanager
def stopping(config: Config, at: int, number: int = signal.SIGTERM) -> Iterator[None]:
    """A signal arrives while the method takes step `at`."""
    kind = entry(config.method).method
    step = kind.step

    def interrupted(self: Any, *args: Any) -> Any:
        if self.steps_done == at - 1:
            signal.raise_signal(number)
        return step(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "step", interrupted)
        yield


def steps_of(folder: Path) -> int:
    return checkpoint.load_state(folder).progress["step"]
