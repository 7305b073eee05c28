"""Which sequences hold a long run of a training sequence, found by hashes of all runs."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from redraft.errors import UserError
from redraft.evaluation import statistics
from redraft.evaluation.statistics import Estimate

LONGEST = 50
"""Tokens in a row that a story may share with a training story and still be its own."""
BLOCK = 1 << 18
"""Training tokens searched for copies at a time."""
BASE = np.uint64(0x9E3779B97F4A7C15)
"""Of the hashes of runs: any odd number of 64 bits would do."""

Ids = Sequence[int] | np.ndarray


def copied(
    samples: Sequence[Ids],
    training: Iterable[Ids],
    longest: int = LONGEST,
    seed: int = 0,
) -> Estimate:
    """The share of samples with a run of more than `longest` ids from a training sequence."""
    return statistics.share(copies(samples, training, longest), seed)


def copies(samples: Sequence[Ids], training: Iterable[Ids], longest: int = LONGEST) -> np.ndarray:
    """Whether each sample shares a run of more than `longest` ids with a training sequence, (n,).

    Of every run of longest + 1 ids the hashes are compared, then, where they agree, the runs.
    """
    if longest < 0:
        raise UserError(f"the longest run that is no copy must be at least 0 ids, got {longest}")
    own = _Runs(samples, longest + 1)
    order = np.argsort(own.hashes)
    hashes = own.hashes[order]
    found = np.zeros(len(samples), bool)
    for block in _blocks(training):
        known = _Runs(block, longest + 1)
        alike = _among(known.hashes, hashes).nonzero()[0]
        runs = {known.run(number) for number in alike.tolist()}
        shared = np.unique(known.hashes[alike])
        first, last = (np.searchsorted(hashes, shared, side) for side in ("left", "right"))
        spans = (order[a:b].tolist() for a, b in zip(first, last, strict=True))
        for number in chain.from_iterable(spans):
            if not found[own.owners[number]]:
                found[own.owners[number]] = own.run(number) in runs
    return found


class _Runs:
    """All runs of `size` ids within sequences: their starts, their sequences, their hashes."""

    def __init__(self, sequences: Sequence[Ids], size: int):
        lengths = [len(sequence) for sequence in sequences]
        self.size = size
        self.ids = np.fromiter(chain.from_iterable(sequences), np.uint64, sum(lengths))
        owners = np.repeat(np.arange(len(lengths)), lengths)
        n = max(len(owners) - size + 1, 0)
        self.starts = (owners[:n] == owners[len(owners) - n :]).nonzero()[0]
        self.owners = owners[self.starts]
        self.hashes = rolling(self.ids, size)[self.starts]

    def run(self, number: int) -> bytes:
        start = self.starts[number]
        return self.ids[start : start + self.size].tobytes()


def rolling(ids: np.ndarray, size: int) -> np.ndarray:
    """A hash of every run of `size` ids, sum_j id_j b^(size - 1 - j) mod 2^64."""
    n = max(len(ids) - size + 1, 0)
    hashes = np.zeros(n, np.uint64)
    for j in range(size):
        hashes *= BASE
        hashes += ids[j : j + n]
    return hashes


def _among(values: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """Which values are in an ordered array, (n,)."""
    if not len(ordered):
        return np.zeros(len(values), bool)
    return ordered[np.searchsorted(ordered[:-1], values)] == values


def _blocks(sequences: Iterable[Ids]) -> Iterator[list[Ids]]:
    block, size = [], 0
    for sequence in sequences:
        block.append(sequence)
        size += len(sequence)
        if size >= BLOCK:
            yield block
            block, size = [], 0
    yield block
