"""What every test shares: one thread, no network, no screen, the same randomness on every run."""

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch; subprocesses inherit it
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("MPLBACKEND", "Agg")

import hypothesis
import numpy as np
import pytest
import torch
from tiny import outcome, tiny, write_lines

import redraft
from redraft import trainer
from redraft.config import Config

torch.set_num_threads(1)  # pytest-xdist fills the cores; threads within a worker would fight

hypothesis.settings.register_profile(
    "redraft", deadline=None, derandomize=True, max_examples=25, print_blob=True
)
hypothesis.settings.load_profile("redraft")


@pytest.fixture(autouse=True)
def _same_seeds() -> None:
    """A test's global randomness depends neither on the tests before it nor on its worker."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def molecules(tmp_path_factory) -> Path:
    """The folder of a small model of molecules, which no test changes."""
    folder = tmp_path_factory.mktemp("runs") / "molecules"
    redraft.train(tiny("vsdd", steps=60), folder)
    return folder


@pytest.fixture
def generator() -> torch.Generator:
    """The door by which randomness comes in; under `@given`, make one inside the test instead."""
    return torch.Generator().manual_seed(0)


@pytest.fixture
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a power cut would need it."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture(scope="session")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_lines(tmp_path_factory.mktemp("data") / "lines.txt")


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Config], dict[str, Any]]:
    """What a run comes to when nothing happens; each config is run once."""
    known: list[tuple[Config, dict[str, Any]]] = []

    def of(config: Config) -> dict[str, Any]:
        for other, found in known:
            if other == config:
                return found
        folder = tmp_path_factory.mktemp("whole") / "run"
        trainer.train(config, folder)
        known.append((config, outcome(folder)))
        return known[-1][1]

    return of
