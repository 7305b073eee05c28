"""What a learned kernel has become: does it follow the embeddings, and has it collapsed?

    spearman@t       rank correlation of cos(e_i, e_j) and M_t[i, j] over pairs i != j
    entropy_mean     of the rows of M_1, in nats; at most ln(V' - 1)
    entropy_min      the least of them
    entropy_share    their mean over the largest possible: 1 is uniform noise, 0 a fixed partner

over valid tokens that occur in the training data: rows of others were never learned. Intervals are
over tokens. The collapse table says what the most frequent tokens are replaced by.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import rankdata

from redraft.errors import UserError
from redraft.evaluation import statistics
from redraft.evaluation.statistics import Estimate
from redraft.model import Model
from redraft.noise.committed import CommittedProcess
from redraft.tokenizers.base import EOS

MOST = 256
"""Tokens, the most frequent ones, whose pairs are ranked where there are more."""


def steps_of(model: Model) -> np.ndarray:
    """Q (T, V, V) of a model whose kernel was learned."""
    process = model.trained.process
    if not isinstance(process, CommittedProcess):
        raise UserError(f"{model.config.method} has no learned kernel: its noise is as it was made")
    return process.Q.cpu().numpy()


def kernel_of(model: Model) -> np.ndarray:
    """M (T, V', V') over valid states, rows that sum to one, zero diagonal."""
    Q = steps_of(model)[:, EOS:, EOS:].astype(np.float64)
    states = np.arange(Q.shape[-1])
    Q[:, states, states] = 0  # what a step keeps does not count
    return Q / Q.sum(-1, keepdims=True)


def times_of(T: int) -> list[int]:
    """Early, at the quarters, and late."""
    return sorted({1, max(T // 4, 1), max(T // 2, 1), max(3 * T // 4, 1), T})


def run(model: Model, seed: int = 0) -> dict[str, Estimate]:
    """Every measure with its interval over tokens."""
    M, counts = kernel_of(model), model.trained.tokens[EOS:]
    seen = np.argsort(-counts, kind="stable")[: min(MOST, int((counts > 0).sum()))]
    cosine = cosines(embeddings_of(model))[np.ix_(seen, seen)]
    found = {
        f"spearman@{t}": spearman(cosine, M[t - 1][np.ix_(seen, seen)], seed)
        for t in times_of(len(M))
    }
    entropies = row_entropies(M[0])[seen]
    largest = math.log(M.shape[-1] - 1)
    least = float(entropies.min())
    return found | {
        "entropy_mean": statistics.bootstrap_mean(entropies, seed),
        "entropy_min": Estimate(least, least, least),
        "entropy_share": statistics.bootstrap_mean(entropies / largest, seed),
    }


def embeddings_of(model: Model) -> np.ndarray:
    """(V', D) those that the kernel was made from, or else the denoiser's."""
    process = model.trained.process
    made_from = getattr(process, "embeddings", model.trained.denoiser.embeddings)
    return made_from[EOS:].detach().double().cpu().numpy()


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


def collapse_table(model: Model, t: int = 1, rows: int = 10, top: int = 5) -> list[dict[str, Any]]:
    """What the most frequent tokens become, with probabilities; 1 / (V' - 1) would be uniform."""
    M, tokens = kernel_of(model)[t - 1], model.tokenizer.tokens[EOS:]
    shares = model.trained.tokens[EOS:] / model.trained.tokens.sum()
    return [
        {
            "token": tokens[i],
            "share": float(shares[i]),
            "becomes": [[tokens[j], float(M[i, j])] for j in largest(M[i], top)],
        }
        for i in largest(shares, rows)
    ]


def largest(values: Sequence[float] | np.ndarray, n: int) -> list[int]:
    return np.argsort(-np.asarray(values), kind="stable")[:n].tolist()
