"""Markov processes: x_t depends on x_{t-1} alone, through a matrix Q_t (rows are "from").

With Qbar_t = Q_1 ... Q_t, Bayes' rule gives the posterior, and the denoiser's p(x_0) its mixture:

    q(x_{t-1}=j | x_t=k, x_0=i) = Qbar_{t-1}[i, j] Q_t[j, k] / Qbar_t[i, k]
    p(x_{t-1}=j | x_t=k)        = sum_i p(i) q(j | k, i)
                                = Q_t[j, k] * (w @ Qbar_{t-1})[j],   w = p / Qbar_t[:, k]

so no (B, V, V) tensor is ever needed. Both are written here once, for every process that replaces
tokens by tokens; a member says how to look up rows and columns of its matrices.
"""

from abc import abstractmethod
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from redraft.errors import UserError
from redraft.noise.draws import Generators, categorical
from redraft.noise.process import ForwardProcess, categorical_kl, indicator, uniform_noise
from redraft.tokenizers.base import PAD


class MarkovProcess(ForwardProcess):
    """A process that can be looked at fewer times: all that sampling in fewer steps needs."""

    @abstractmethod
    def at(self, times: Sequence[int]) -> "MarkovProcess":
        """The process at 0 < times[0] < ... < times[-1] = T only: its step n is times[n-1]."""


class SubstitutionProcess(MarkovProcess):
    """Tokens are replaced by tokens; the prior is uniform over the valid states.

    Times t are (B,), or (1,) where all rows are at the same time.
    """

    @abstractmethod
    def rows(self, x0: Tensor, t: Tensor) -> Tensor:
        """Qbar_t[x0, :], (B, L, V), for t in 0..T."""

    @abstractmethod
    def columns(self, xt: Tensor, t: Tensor) -> Tensor:
        """Qbar_t[:, xt], (B, L, V), for t in 1..T."""

    @abstractmethod
    def step_columns(self, xt: Tensor, t: Tensor) -> Tensor:
        """Q_t[:, xt], (B, L, V), for t in 1..T."""

    @abstractmethod
    def mix(self, w: Tensor, t: Tensor) -> Tensor:
        """w @ Qbar_t, (B, L, V) from (B, L, V), for t in 0..T."""

    def corrupt(self, x0: Tensor, t: Tensor, generator: Generators = None) -> Tensor:
        return categorical(self.rows(x0, t).detach(), generator)

    def log_prob(self, xt: Tensor, x0: Tensor, t: Tensor) -> Tensor:
        probs = self.columns(xt, t).gather(-1, x0[..., None]).squeeze(-1)
        return probs.clamp_min(torch.finfo(probs.dtype).tiny).log()

    def posterior(self, xt: Tensor, x0: Tensor, t: Tensor) -> Tensor:
        evidence = self.columns(xt, t).gather(-1, x0[..., None])  # Qbar_t[x0, xt], (B, L, 1)
        joint = self.rows(x0, t - 1) * self.step_columns(xt, t)
        return joint / evidence.clamp_min(torch.finfo(joint.dtype).tiny)

    def reverse(self, xt: Tensor, p: Tensor, t: Tensor) -> Tensor:
        evidence = self.columns(xt, t)  # (B, L, V)
        possible = (evidence > 0) & (p > 0)
        w = torch.where(possible, p / torch.where(possible, evidence, 1), 0)
        mixture = self.step_columns(xt, t) * self.mix(w, t - 1)
        fixed = indicator(xt, self.V).to(mixture.dtype)
        return torch.where((xt == PAD)[..., None], fixed, mixture)

    def prior(self, x: Tensor, generator: Generators = None) -> Tensor:
        return uniform_noise(x, self.V, generator)

    def prior_kl(self, x0: Tensor) -> Tensor:
        end = self.rows(x0, torch.full_like(x0[:, 0], self.T))
        flat = self.valid.to(end.dtype) / self.valid.sum()
        return categorical_kl(end, flat) * (x0 != PAD)


def check_times(times: Sequence[int], T: int) -> None:
    """Times of a coarser process rise from above 0 to T."""
    rising = all(s < t for s, t in pairwise((0, *times)))
    if not times or not rising or times[-1] != T:
        raise UserError(f"times must rise from above 0 to T={T}, got {list(times)}")


class DenseProcess(SubstitutionProcess):
    """A process given by its stacks of matrices Q and Qbar, each (T, V, V) for t = 1..T."""

    def __init__(self, Q: Tensor, Q_bar: Tensor | None = None):
        super().__init__(V=Q.shape[-1], T=len(Q))
        self.to(Q.device)
        self.register_buffer("Q", Q, persistent=False)
        self.register_buffer(
            "Q_bar", cumulative_products(Q) if Q_bar is None else Q_bar, persistent=False
        )

    Q: Tensor
    Q_bar: Tensor

    def detached(self) -> "DenseProcess":
        """The same process without a gradient."""
        return DenseProcess(self.Q.detach(), self.Q_bar.detach())

    def rows(self, x0: Tensor, t: Tensor) -> Tensor:
        rows = self.Q_bar[(t - 1).clamp_min(0)[:, None], x0]
        clean = indicator(x0, self.V).to(rows.dtype)
        return torch.where((t == 0)[:, None, None], clean, rows)  # Qbar_0 = I is not stored

    def columns(self, xt: Tensor, t: Tensor) -> Tensor:
        return self.Q_bar[(t - 1)[:, None], :, xt]

    def step_columns(self, xt: Tensor, t: Tensor) -> Tensor:
        return self.Q[(t - 1)[:, None], :, xt]

    def mix(self, w: Tensor, t: Tensor) -> Tensor:
        """Matrices are gathered for as many rows at once as keep below max(T V^2, B L V) numbers.

        Grouping rows by t would need fewer, but then the host has to wait for t.
        """
        earlier = (t - 1).clamp_min(0)
        if len(t) == 1:
            mixed = w @ self.Q_bar[earlier]
        else:
            rows = max(self.T, w.shape[0] * w.shape[1] // self.V)
            parts = zip(w.split(rows), earlier.split(rows), strict=True)
            mixed = torch.cat([part @ self.Q_bar[s] for part, s in parts])
        return torch.where((t == 0)[:, None, None], w, mixed)

    def at(self, times: Sequence[int]) -> "DenseProcess":
        check_times(times, self.T)
        jumps = [product(self.Q[s:t]) for s, t in pairwise((0, *times))]
        return DenseProcess(torch.stack(jumps), self.Q_bar[[t - 1 for t in times]])


def step_matrices(M: Tensor, alpha: Tensor) -> Tensor:
    """Q_t = alpha_t I + (1 - alpha_t) M_t, (T, V, V) from M (T, V, V) and alpha (T,)."""
    alpha = alpha.to(M)[:, None, None]
    return alpha * torch.eye(M.shape[-1]).to(M) + (1 - alpha) * M


def wide(V: int, dtype: torch.dtype) -> torch.dtype:
    """Products of many matrices are kept in float64 where V is small enough for it to be cheap."""
    return torch.float64 if V <= 256 else dtype


def cumulative_products(Q: Tensor) -> Tensor:
    """Qbar_t = Q_1 ... Q_t for every t, rows renormalised, never in reduced precision."""
    Q_wide = Q.to(wide(Q.shape[-1], Q.dtype))
    Q_bar = [Q_wide[0]]
    with torch.autocast(Q.device.type, enabled=False):
        for Q_t in Q_wide[1:]:
            bar = Q_bar[-1] @ Q_t
            Q_bar.append(bar / bar.sum(-1, keepdim=True))
    return torch.stack(Q_bar).to(Q.dtype)


def product(Q: Tensor) -> Tensor:
    """Q_1 ... Q_n of a stack (n, V, V)."""
    return cumulative_products(Q)[-1]
