"""Methods so small that their expectations over noise can be enumerated.

With three valid states and two tokens there are nine corruptions, so that the gradient that a
method takes on average is known to rounding.
"""

import math
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from redraft.batches import Batch, Batches
from redraft.config import Config
from redraft.denoiser import Denoiser
from redraft.methods import entry
from redraft.methods.method import Player
from redraft.methods.stackelberg import Game
from redraft.noise.process import ForwardProcess
from redraft.noise.schedule import alpha_bar, steps
from redraft.noise.semantic import SemanticProcess
from redraft.noise.uniform import UniformProcess
from redraft.objective import Draw, corrupt, draw_times, ranges
from redraft.tokenizers.base import EOS

V, T = 5, 3
VALID = range(EOS, V)
STILL = {"lr": 1e-30, "clip": 0.0, "warmup": 0.0, "decay": "constant"}
"""An optimizer that leaves float64 weights where they are, and their gradients as they came."""


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def jolt(module: nn.Module, scale: float) -> None:
    """Away from the symmetric start, where gradients vanish or agree by accident."""
    with torch.no_grad():
        for p in module.parameters():
            p.add_(scale * torch.randn_like(p))


def make_config(method: str, **tables: Any) -> Config:
    values: dict[str, Any] = {
        "method": method,
        "noise": {"T": T, "hidden": 4},
        "denoiser": {"width": 4, "layers": 1, "heads": 1},
        "train": {"batch": 8},
    }
    for name, table in tables.items():
        values[name] = values.get(name, {}) | table
    return Config.from_dict(values)


def pattern(n: int, seed: int) -> list[np.ndarray]:
    """Sequences that count upwards in a circle from anywhere, of lengths 6 and 8."""
    rng = np.random.default_rng(seed)
    ends = [(int(rng.integers(3)), 6 + 2 * int(rng.integers(2))) for _ in range(n)]
    return [EOS + (start + np.arange(length)) % 3 for start, length in ends]


def make_method(
    name: str, seed: int = 0, dtype: torch.dtype = torch.float64, scale: float = 0.5, **tables: Any
) -> Any:
    torch.manual_seed(seed)
    config = make_config(name, **tables)
    denoiser = Denoiser(config.denoiser, V, config.noise.T, max_length=8).to(dtype)
    process = entry(name).process(config, V, 8)
    if dtype == torch.float64:
        process = process.double()
    jolt(denoiser, scale)
    jolt(process, scale)
    held_out = Batches(pattern(24, seed=1), 6, seed=2)
    return entry(name).method(config, denoiser, process, held_out, seeded(seed))


class Position:
    """A small position of the game: denoiser, drafted noise, one batch, and reference draws."""

    def __init__(self, B: int, L: int, estimator: str = "joint", scale: float = 0.5):
        torch.manual_seed(0)
        config = make_config("vsdd")
        self.denoiser = Denoiser(config.denoiser, V, T, max_length=8).double()
        process = entry("vsdd").process(config, V, 8).double()
        assert isinstance(process, SemanticProcess)
        jolt(self.denoiser, 0.5)
        jolt(process.scores, scale)
        self.phi = list(process.scores.parameters())
        self.noise = process.draft(self.denoiser.embeddings)
        self.x0 = torch.randint(EOS, V, (B, L), generator=seeded(1))
        self.times = draw_times(self.x0, ranges(estimator, T), seeded(2))
        self.alpha = steps(alpha_bar("linear", T))
        self.reference = UniformProcess(V, self.alpha, torch.float64)
        self.draws = corrupt(self.reference, self.x0, self.times, seeded(3))

    def game(
        self, noise: ForwardProcess | None = None, judge: ForwardProcess | None = None
    ) -> Game:
        batch = Batch(self.x0, padded=False, weight=1.0)
        noise = self.noise.detached() if noise is None else noise
        return Game(self.denoiser, noise, self.reference, batch, self.draws, judge=judge)

    def probes(self) -> list[tuple[list[Draw], Tensor]]:
        """Every corruption of the batch at its times, with its probability as a function of phi."""
        Q_bar = brute_products(brute_steps(self.noise.M, self.alpha))
        tokens = self.x0.numel()
        found = []
        for states in product(VALID, repeat=tokens * len(self.times)):
            cut = torch.tensor(states).view(len(self.times), *self.x0.shape)
            probe = [Draw(x, t, w) for x, (t, w) in zip(cut, self.times, strict=True)]
            q = torch.stack([Q_bar[d.t[:, None], self.x0, d.xt].prod() for d in probe]).prod()
            found.append((probe, q))
        return found


# By brute force: the definitions, as functions of the parameters.


def brute_steps(M: Tensor, alpha: Tensor) -> Tensor:
    """(T + 1, V, V) the matrices Q_t; the first is unused."""
    eye = torch.eye(V, dtype=M.dtype)
    return torch.stack([eye, *(a * eye + (1 - a) * m for a, m in zip(alpha, M, strict=True))])


def brute_products(Q: Tensor) -> Tensor:
    """(T + 1, V, V) Qbar_0 = I, Qbar_1, ..."""
    bars = [Q[0]]
    for Q_t in Q[1:]:
        bars.append(bars[-1] @ Q_t)
    return torch.stack(bars)


def brute_posterior(Q: Tensor, t: int, k: int) -> Tensor:
    """(V, V) q(x_{t-1} = j | x_t = k, x_0 = i) as [i, j], zero where i is no valid state."""
    Q_bar = brute_products(Q)
    rows = [Q_bar[t - 1, i] * Q[t, :, k] / Q_bar[t, i, k] for i in VALID]
    return torch.stack([torch.zeros_like(rows[0])] * EOS + rows)


def brute_kl(q: Tensor, p: Tensor) -> Tensor:
    keep = q.detach() > 0
    return (q[keep] * (q[keep] / p[keep]).log()).sum()


def every_draw(bound: str, x0: Tensor) -> list[tuple[list[tuple[Tensor, int]], float]]:
    """All times that an estimator may draw for a batch of one, with their probabilities."""
    spans = ranges(bound, T)
    choices = [range(low, high + 1) for low, high in spans]
    sizes = [high - low + 1 for low, high in spans]
    chance = 1 / math.prod(sizes)
    return [
        ([(torch.tensor([t]), n) for t, n in zip(times, sizes, strict=True)], chance)
        for times in product(*choices)
    ]


def every_state(n: int, L: int) -> list[Tensor]:
    """All n-tuples of corrupted sequences, (n, 1, L) each."""
    return [torch.tensor(s).view(n, 1, L) for s in product(VALID, repeat=n * L)]


# What is compared, and how.


def flat(tensors: Any) -> Tensor:
    return torch.cat([t.flatten() for t in tensors])


def gradients(player: Player) -> Tensor:
    """The gradients at hand of all its parameters, as one vector."""
    return flat([torch.zeros_like(p) if p.grad is None else p.grad for p in player.parameters])


def same(a: Any, b: Any) -> bool:
    """Bit-for-bit, through dicts, lists and tuples."""
    if isinstance(a, Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b
