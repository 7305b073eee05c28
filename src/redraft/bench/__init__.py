"""Speed and memory, as ratios measured in one run.

measure      clocks that wait for the device, medians, the hardware's own limit
train        a training step: its parts, its rate, its ratio to MDLM's
sample       sequences a second from noise
kernel       building a learned kernel, with and without its gradient
checkpoint   what saving costs
agreement    losses with and without what makes a GPU fast
serve        the page as a visitor meets it
"""

from collections.abc import Callable

import numpy as np

from redraft.bench.agreement import agreement
from redraft.bench.checkpoint import checkpoint
from redraft.bench.kernel import kernel
from redraft.bench.measure import Row
from redraft.bench.sample import sample
from redraft.bench.serve import serve
from redraft.bench.train import train
from redraft.config import Config
from redraft.domains import Dataset
from redraft.tokenizers.text import WordTokenizer

BENCHES: dict[str, Callable[[Config, Dataset, list[str], bool], list[Row]]] = {
    "train": lambda config, data, methods, quick: train(
        config, data, methods, windows=3 if quick else 10, warm=1 if quick else 10
    ),
    "sample": lambda config, data, methods, quick: sample(
        config, data, methods, windows=1 if quick else 3, n=64 if quick else 8192
    ),
    "kernel": lambda config, data, methods, quick: kernel(config, data, windows=3 if quick else 10),
    "checkpoint": lambda config, data, methods, quick: checkpoint(
        config, data, windows=2 if quick else 5
    ),
    "agreement": lambda config, data, methods, quick: agreement(config, data, methods),
    "serve": lambda config, data, methods, quick: serve(requests=50 if quick else 500),
}


def random_tokens(V: int, L: int, n: int = 4096) -> Dataset:
    """Sequences of one length over V tokens, where only shapes matter."""
    tokenizer = WordTokenizer([f"w{i}" for i in range(V - 3)])
    rows = list(np.random.default_rng(0).integers(3, V, size=(n, L)))
    return Dataset(tokenizer, rows, rows[: n // 4], rows[: n // 4], "random tokens", f"{n} of {L}")
