"""What every test shares: one thread, no network, no screen, the same randomness on every run."""

import os
import random
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch; subprocesses inherit it
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("MPLBACKEND", "Agg")

import hypothesis
import numpy as np
import pytest
import torch
from tiny import tiny

import redraft

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
