"""What a learned kernel has become: does it follow the embeddings, and has it collapsed?

    spearman@t       rank correlation of cos(e_i, e_j) and M_t[i, j] over pairs i != j
    entropy_mean     of the rows of M_1, in nats; at most ln(V' - 1)
    entropy_min      the least of them
    entropy_share    their mean over the largest possible: 1 is uniform noise, 0 a fixed partner

over valid tokens that occur in the training data: rows of others were never learned. Intervals are
over tokens. The collapse table says what the most frequent tokens are replaced by.

Of a large vocabulary the most frequent tokens are looked at, at a few times: all of it would be
near a gigabyte.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.numpy import save as format_tensors
from scipy.stats import rankdata

from redraft.evaluation import results, statistics
from redraft.evaluation.results import Run
from redraft.evaluation.statistics import Estimate
from redraft.folder import explained
from redraft.model import Model
from redraft.noise.committed import CommittedProcess
from redraft.tokenizers.base import EOS

LARGE = 256
"""Vocabularies up to here are kept whole."""
MOST = 128
"""Tokens of a larger one, the most frequent ones, whose rows are kept: 5 MB of V = 2048."""


@dataclass(frozen=True, eq=False)
class Kernel:
    """A learned kernel, or the part of it that is looked at, and what it is held against."""

    Q: np.ndarray
    """(times, states, V) rows of Q_t, all of T and V where nothing else is said."""
    embeddings: np.ndarray
    """(states, D) those that the kernel was made from, or else the denoiser's."""
    counts: np.ndarray
    """(V,) how often each token occurs in the training data."""
    tokens: list[str]
    part: tuple[np.ndarray, np.ndarray] | None = None
    """Times t that are kept, the last of them T, and ids of the states that are."""

    @property
    def times(self) -> np.ndarray:
        return np.arange(1, len(self.Q) + 1) if self.part is None else self.part[0]

    @property
    def states(self) -> np.ndarray:
        """Ids of the tokens that the rows belong to."""
        return np.arange(len(self.tokens)) if self.part is None else self.part[1]

    @cached_property
    def valid(self) -> np.ndarray:
        """Valid states among them, as numbers from 0 at EOS, (n,)."""
        return self.states[self.states >= EOS] - EOS

    @cached_property
    def M(self) -> np.ndarray:
        """(times, n, V') from and to valid states, rows that sum to one, none to itself."""
        M = self.Q[:, self.states >= EOS, EOS:].astype(np.float64)
        M[:, np.arange(len(self.valid)), self.valid] = 0  # what a step keeps does not count
        return M / M.sum(-1, keepdims=True)

    def __len__(self) -> int:
        """T."""
        return int(self.times[-1])

    def __getitem__(self, index: int) -> np.ndarray:
        """Q_t, (V, V), by t - 1, or of the time nearest to it; rows that were not kept are 0."""
        nearest = int(np.abs(self.times - (index + 1)).argmin())
        whole = np.zeros((len(self.tokens),) * 2, self.Q.dtype)
        whole[self.states] = self.Q[nearest]
        return whole

    def to_bytes(self) -> bytes:
        """As a safetensors file."""
        arrays = {"Q": self.Q, "embeddings": self.embeddings, "counts": self.counts}
        if self.part is not None:
            arrays |= {"times": self.part[0], "states": self.part[1]}
        return format_tensors(arrays, {"tokens": json.dumps(self.tokens)})

    @classmethod
    def read(cls, path: Path) -> "Kernel":
        with explained(path), safe_open(path, "np") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            cut = "times" in arrays
            part = (arrays.pop("times"), arrays.pop("states")) if cut else None
            return cls(**arrays, tokens=json.loads(file.metadata()["tokens"]), part=part)


@torch.no_grad()
def kernel_of(model: Model) -> Kernel | None:
    """None where the noise is as it was made."""
    trained, process = model.trained, model.trained.process
    if not isinstance(process, CommittedProcess):
        return None
    Q, e = process.Q, getattr(process, "embeddings", trained.denoiser.embeddings)
    part = None
    if process.V > LARGE:
        part = np.array(times_of(process.T)), frequent(trained.tokens)
        at, states = (torch.from_numpy(x).to(Q.device) for x in part)
        Q, e = torch.stack([Q[t - 1, states] for t in at]), e[states]
    Q, e = (x.cpu().contiguous().numpy() for x in (Q, e))
    return Kernel(Q, e, trained.tokens, list(trained.tokenizer.tokens), part)


def frequent(counts: np.ndarray) -> np.ndarray:
    """Ids of the most frequent valid tokens, in their own order."""
    return np.sort(EOS + np.argsort(-counts[EOS:], kind="stable")[:MOST])


def times_of(T: int) -> list[int]:
    """Early, at the quarters, and late."""
    return sorted({1, max(T // 4, 1), max(T // 2, 1), max(3 * T // 4, 1), T})


def result(run: Run, kernel: Kernel, seed: int = 0) -> dict[str, Any]:
    """All that there is to say of a run's kernel."""
    table = collapse_table(kernel)
    return results.result(run, "noise", len(kernel.valid), measures(kernel, seed), collapse=table)


def measures(kernel: Kernel, seed: int = 0) -> dict[str, Estimate]:
    """Every measure with its interval over tokens."""
    times = times_of(len(kernel))
    found = {f"spearman@{t}": spearman(*among_seen(kernel, t), seed) for t in times}
    entropies = row_entropies(kernel.M[0])[seen(kernel)]
    largest = math.log(kernel.M.shape[-1] - 1)
    least = float(entropies.min())
    return found | {
        "entropy_mean": statistics.bootstrap_mean(entropies, seed),
        "entropy_min": Estimate(least, least, least),
        "entropy_share": statistics.bootstrap_mean(entropies / largest, seed),
    }


def seen(kernel: Kernel) -> np.ndarray:
    """Rows of tokens that occur in the training data, the most frequent first."""
    counts = kernel.counts[EOS:][kernel.valid]
    return np.argsort(-counts, kind="stable")[: int((counts > 0).sum())]


def among_seen(kernel: Kernel, t: int) -> tuple[np.ndarray, np.ndarray]:
    """(n, n) cosines and transition probabilities at t among those tokens."""
    rows, M = seen(kernel), kernel.M[kernel.times.tolist().index(t)]
    embeddings = kernel.embeddings[kernel.states >= EOS][rows]
    return cosines(embeddings.astype(np.float64)), M[np.ix_(rows, kernel.valid[rows])]


def cosines(e: np.ndarray) -> np.ndarray:
    e = e / np.maximum(np.linalg.norm(e, axis=-1, keepdims=True), np.finfo(float).tiny)
    return e @ e.T


def spearman(a: np.ndarray, b: np.ndarray, seed: int = 0, resamples: int = 200) -> Estimate:
    """Of two (n, n) matrices off their diagonals; tokens are drawn anew with all their pairs.

    Ranks are those among all pairs. A token drawn twice makes no pair with itself.
    """
    off = ~np.eye(len(a), dtype=bool)
    x, y = np.zeros_like(a), np.zeros_like(b)
    x[off], y[off] = rankdata(a[off]), rankdata(b[off])
    rng = np.random.default_rng(seed)
    drawn = (rng.integers(len(a), size=len(a)) for _ in range(resamples))
    low, high = np.quantile([correlation(x, y, at) for at in drawn], statistics.TAILS)
    return Estimate(correlation(x, y, np.arange(len(a))), float(low), float(high))


def correlation(a: np.ndarray, b: np.ndarray, at: np.ndarray) -> float:
    """Pearson's, over pairs of different tokens among those at `at`."""
    pairs = at[:, None] != at
    if not pairs.any():
        return 0.0
    x, y = (m[np.ix_(at, at)][pairs] for m in (a, b))
    x, y = x - x.mean(), y - y.mean()
    size = math.sqrt((x @ x) * (y @ y))
    return float(x @ y) / size if size > 0 else 0.0


def row_entropies(M: np.ndarray) -> np.ndarray:
    """(V',) in nats, with 0 log 0 = 0."""
    return -(M * np.log(np.where(M > 0, M, 1))).sum(-1)


def collapse_table(
    kernel: Kernel, t: int = 1, rows: int = 10, top: int = 5
) -> list[dict[str, Any]]:
    """What the most frequent tokens become, with probabilities; 1 / (V' - 1) would be uniform."""
    M, tokens = kernel.M[kernel.times.tolist().index(t)], kernel.tokens[EOS:]
    shares = (kernel.counts[EOS:] / kernel.counts.sum())[kernel.valid]
    return [
        {
            "token": tokens[kernel.valid[i]],
            "share": float(shares[i]),
            "becomes": [[tokens[j], float(M[i, j])] for j in largest(M[i], top)],
        }
        for i in largest(shares, rows)
    ]


def largest(values: Sequence[float] | np.ndarray, n: int) -> list[int]:
    return np.argsort(-np.asarray(values), kind="stable")[:n].tolist()
