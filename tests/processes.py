"""Forward processes for tests, and their definitions by hand: plain arrays and loops.

Letters: V states (PAD and MASK among them), T steps; Q and Q_bar[t] are arrays, Q_bar[0] = I.
"""

import itertools
import math
from collections.abc import Iterator

import numpy as np
import torch
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from torch import Tensor, nn

from redraft.noise.absorbing import AbsorbingProcess
from redraft.noise.coupled import CoupledProcess
from redraft.noise.markov import DenseProcess, MarkovProcess, SubstitutionProcess
from redraft.noise.schedule import SCHEDULES, alpha_bar, sinusoid, steps
from redraft.noise.semantic import BilinearScores, CosineScores, SemanticProcess
from redraft.noise.uniform import UniformProcess
from redraft.tokenizers.base import MASK, PAD

SUBSTITUTIONS = ["uniform", "learned", "low rank", "fixed", "dense"]
MARKOV = [*SUBSTITUTIONS, "absorbing"]
D = 4
TAU = 0.3

sizes = st.integers(5, 8)
lengths = st.integers(1, 4)
times = st.integers(2, 5)
seeds = st.integers(0, 10_000)
schedules = st.sampled_from(sorted(SCHEDULES))


def close(got: Tensor | np.ndarray, expected: object, atol: float = 1e-12) -> None:
    """Equal as far as float64 goes."""
    got = got.detach().numpy() if isinstance(got, Tensor) else got
    assert_allclose(got, np.asarray(expected), rtol=1e-9, atol=atol)


# By hand: the definitions, with plain arrays and loops.


def valid_states(V: int) -> list[int]:
    return [i for i in range(V) if i not in (PAD, MASK)]


def substitution_steps(M: np.ndarray, bar: np.ndarray) -> np.ndarray:
    """Q_t = alpha_t I + (1 - alpha_t) M_t, on valid states; specials are fixed points."""
    T, V, _ = M.shape
    Q = np.zeros((T, V, V))
    for t in range(T):
        alpha = bar[t + 1] / bar[t]
        for i, j in itertools.product(range(V), repeat=2):
            if i in (PAD, MASK) or j in (PAD, MASK):
                Q[t, i, j] = float(i == j)
            else:
                Q[t, i, j] = alpha * (i == j) + (1 - alpha) * M[t, i, j]
    return Q


def flat_kernel(V: int, T: int) -> np.ndarray:
    return np.full((T, V, V), 1 / (V - 3)) * (1 - np.eye(V))


def softmax_kernel(s: np.ndarray) -> np.ndarray:
    """M[i, j] = softmax over the valid j != i of s[i, j]."""
    T, V, _ = s.shape
    M = np.zeros((T, V, V))
    for t, i in itertools.product(range(T), valid_states(V)):
        others = [j for j in valid_states(V) if j != i]
        weights = np.exp(s[t, i, others] - s[t, i, others].max())
        M[t, i, others] = weights / weights.sum()
    return M


def masking_steps(V: int, bar: np.ndarray) -> np.ndarray:
    Q = np.zeros((len(bar) - 1, V, V))
    for t in range(len(bar) - 1):
        alpha = bar[t + 1] / bar[t]
        for i in range(V):
            if i in (PAD, MASK):
                Q[t, i, i] = 1
            else:
                Q[t, i, i], Q[t, i, MASK] = alpha, 1 - alpha
    return Q


def products(Q: np.ndarray) -> np.ndarray:
    """(T + 1, V, V): the identity, Q_1, Q_1 Q_2, ..."""
    Q_bar = [np.eye(Q.shape[-1])]
    for step in Q:
        Q_bar.append(Q_bar[-1] @ step)
    return np.stack(Q_bar)


def bayes(Q: np.ndarray, t: int, i: int, k: int) -> np.ndarray:
    """q(x_{t-1} | x_t = k, x_0 = i), (V,)."""
    Q_bar = products(Q)
    return Q_bar[t - 1][i] * Q[t - 1][:, k] / Q_bar[t][i, k]


def bayes_by_paths(Q: np.ndarray, t: int, i: int, k: int) -> np.ndarray:
    """The same, by summing over every path x_1 .. x_{t-1} from i to k."""
    V = Q.shape[-1]
    mass = np.zeros(V)
    for path in itertools.product(range(V), repeat=t - 1):
        states = (i, *path, k)
        mass[states[-2]] += math.prod(Q[s, states[s], states[s + 1]] for s in range(t))
    return mass / mass.sum()


def kl(q: np.ndarray, p: np.ndarray) -> float:
    return sum(a * math.log(a / b) for a, b in zip(q, p, strict=True) if a > 0)


def bilinear_by_hand(scores: BilinearScores, embeddings: Tensor) -> np.ndarray:
    e = embeddings.numpy()
    e = e / np.sqrt((e**2).sum(-1, keepdims=True))

    def layer(linear: nn.Linear, x: np.ndarray) -> np.ndarray:
        return linear.weight.detach().numpy() @ x + linear.bias.detach().numpy()

    s = []
    for t in range(1, scores.T + 1):
        features = sinusoid(torch.tensor(t), scores.T, scores.trunk.in_features).double().numpy()
        h = layer(scores.trunk, features)
        h = h / (1 + np.exp(-h))
        A = layer(scores.head, h).reshape(scores.width, -1)
        if scores.other is not None:
            A = A @ layer(scores.other, h).reshape(scores.width, -1).T
        s.append(e @ A @ e.T)
    return np.stack(s)


# The processes under test, each with its matrices Q (T, V, V) by hand.


def move(module: nn.Module, seed: int, scale: float = 0.5) -> None:
    """Weights as training would leave them: none is zero."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in module.parameters():
            weight.copy_(scale * torch.randn(weight.shape, generator=generator).to(weight))


def bilinear(
    V: int, T: int, schedule: str = "linear", rank: int | None = None
) -> tuple[SemanticProcess, BilinearScores]:
    scores = BilinearScores(T, D, hidden=6, rank=rank)
    process = SemanticProcess(scores, V, D, steps(alpha_bar(schedule, T))).double()
    return process, scores


def random_embeddings(V: int, seed: int) -> Tensor:
    rng = np.random.default_rng(seed)
    return torch.tensor(rng.normal(size=(V, D)))


def make(
    kind: str, V: int, T: int, seed: int, schedule: str = "linear"
) -> tuple[MarkovProcess, np.ndarray]:
    bar = alpha_bar(schedule, T)
    rng = np.random.default_rng(seed)
    embeddings = random_embeddings(V, seed)
    if kind == "uniform":
        process = UniformProcess(V, steps(bar), torch.float64)
        return process, substitution_steps(flat_kernel(V, T), bar.numpy())
    if kind == "absorbing":
        return AbsorbingProcess(V, bar, torch.float64), masking_steps(V, bar.numpy())
    if kind == "dense":
        M = softmax_kernel(rng.normal(size=(T, V, V)))
        Q = substitution_steps(M, bar.numpy())
        return DenseProcess(torch.tensor(Q)), Q
    if kind == "fixed":
        process = SemanticProcess(CosineScores(T, TAU), V, D, steps(bar)).double()
        process.commit(embeddings)
        e = embeddings.numpy()
        cosine = np.array([[a @ b / math.sqrt((a @ a) * (b @ b)) for b in e] for a in e])
        M = softmax_kernel(np.repeat(cosine[None] / TAU, T, axis=0))
        return process, substitution_steps(M, bar.numpy())
    process, scores = bilinear(V, T, schedule, rank=2 if kind == "low rank" else None)
    move(scores, seed)
    process.commit(embeddings)
    M = softmax_kernel(bilinear_by_hand(scores, embeddings))
    return process, substitution_steps(M, bar.numpy())


def substitution(
    kind: str, V: int, T: int, seed: int, schedule: str = "linear"
) -> tuple[SubstitutionProcess, np.ndarray]:
    process, Q = make(kind, V, T, seed, schedule)
    assert isinstance(process, SubstitutionProcess)
    return process, Q


def every_state(V: int, T: int) -> tuple[Tensor, Tensor]:
    """x (T, V) with all states in each row, and t (T,) = 1..T."""
    return torch.arange(V).expand(T, V), torch.arange(1, T + 1)


def reachable(Q: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Every (t, x_0, x_t) that the process allows; MASK is no clean token."""
    T, V, _ = Q.shape
    Q_bar = products(Q)
    for t, i, k in itertools.product(range(1, T + 1), range(V), range(V)):
        if Q_bar[t][i, k] > 1e-300 and i != MASK:
            yield t, i, k


def triples(Q: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
    """The same as a batch of sequences of one token: xt (B, 1), x0 (B, 1), t (B,)."""
    t, x0, xt = torch.tensor(list(reachable(Q))).unbind(-1)
    return xt[:, None], x0[:, None], t


def predictions(B: int, L: int, V: int, seed: int) -> Tensor:
    """p (B, L, V) on valid states, as a denoiser gives it."""
    rng = np.random.default_rng(seed)
    p = np.zeros((B, L, V))
    p[..., MASK + 1 :] = rng.dirichlet(np.ones(V - 2), size=(B, L))
    return torch.tensor(p)


def mixtures(Q: np.ndarray, p: Tensor, seen: list[tuple[int, int, int]]) -> np.ndarray:
    """sum_i p(i) q(. | k, i) for each (t, _, k); SUBS carries over tokens that are not MASK."""
    masks = bool(Q[0, MASK + 1 :, MASK].any())
    out = []
    for (t, _, k), row in zip(seen, p[:, 0].numpy(), strict=True):
        if masks and k != MASK:
            out.append(np.eye(len(row))[k])
        else:
            out.append(sum(row[i] * bayes(Q, t, i, k) for i in valid_states(len(row))))
    return np.stack(out)


# Coupled marginals, on a network whose logits are known.


class Table:
    """Stands in for a network over the whole sequence: known logits, -inf at PAD and MASK."""

    def __init__(self, V: int, T: int, seed: int):
        rng = np.random.default_rng(seed)
        self.own = torch.tensor(rng.normal(size=(T + 1, V, V)))
        self.others = torch.tensor(rng.normal(size=(V, V)))

    def __call__(self, x0: Tensor, t: Tensor) -> Tensor:
        logits = self.own[t[:, None], x0] + self.others[x0].sum(1, keepdim=True)
        return logits.index_fill(-1, torch.tensor([PAD, MASK]), -torch.inf)


def marginals(V: int, T: int, seed: int) -> CoupledProcess:
    return CoupledProcess(Table(V, T, seed), V, T).double()
