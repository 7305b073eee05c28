"""Markov processes: x_t depends on x_{t-1} alone, through a matrix Q_t (rows are "from").

With Qbar_t = Q_1 ... Q_t, Bayes' rule gives the posterior, and the denoiser's p(x_0) its mixture:

    q(x_{t-1}=j | x_t=k, x_0=i) = Qbar_{t-1}[i, j] Q_t[j, k] / Qbar_t[i, k]
    p(x_{t-1}=j | x_t=k)        = sum_i p(i) q(j | k, i)
                                = Q_t[j, k] * (w @ Qbar_{t-1})[j],   w = p / Qbar_t[:, k]

so no (B, V, V) tensor is ever needed. Both are written here once, for every process that replaces
tokens by tokens; a member says how to look up rows and columns of its matrices.
"""

import copy
from abc import abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from redraft.errors import UserError
from redraft.fusion import fusable
from redraft.noise.draws import Generators, categorical
from redraft.noise.process import (
    ForwardProcess,
    categorical_kl,
    full_precision,
    indicator,
    log,
    uniform_noise,
)
from redraft.precision import exact_product, tf32
from redraft.tokenizers.base import PAD


class MarkovProcess(ForwardProcess):
    """A process that can be looked at fewer times, and at x_t without x_{t+1}: all that sampling in
    fewer steps and with tokens drawn anew needs.
    """

    @abstractmethod
    def renewed(self, xt: Tensor, p: Tensor, s: Tensor) -> Tensor:
        """sum_i p(i) q(x_s | x_0 = i), (B, L, V), for s in 0..T: what x_t says goes through p."""

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
        return log(self.columns(xt, t).gather(-1, x0[..., None]).squeeze(-1))

    def posterior(self, xt: Tensor, x0: Tensor, t: Tensor) -> Tensor:
        evidence = self.columns(xt, t).gather(-1, x0[..., None])  # Qbar_t[x0, xt], (B, L, 1)
        joint = self.rows(x0, t - 1) * self.step_columns(xt, t)
        return joint / evidence.clamp_min(torch.finfo(joint.dtype).tiny)

    def reverse(self, xt: Tensor, p: Tensor, t: Tensor) -> Tensor:
        w = over_evidence(p, self.columns(xt, t))
        return self._but_padding(xt, self.step_columns(xt, t) * self.mix(w, t - 1))

    def renewed(self, xt: Tensor, p: Tensor, s: Tensor) -> Tensor:
        return self._but_padding(xt, self.mix(p, s))

    def _but_padding(self, xt: Tensor, probs: Tensor) -> Tensor:
        """PAD stays PAD."""
        fixed = indicator(xt, self.V).to(probs.dtype)
        return torch.where((xt == PAD)[..., None], fixed, probs)

    def evidence(self, xt: Tensor, t: Tensor) -> Tensor:
        return log(self.columns(xt, t))

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


def over_evidence(p: Tensor, evidence: Tensor) -> Tensor:
    """p / evidence, and 0 where p is 0 or the evidence impossible, in the backward pass too.

    That divides by the evidence twice, so its square must be a number as well.
    """
    possible = (evidence >= torch.finfo(evidence.dtype).tiny ** 0.5) & (p > 0)
    return torch.where(possible, p / torch.where(possible, evidence, 1), 0)


class DenseProcess(SubstitutionProcess):
    """A process given by its matrices Q_t, (T, V, V) for t = 1..T, and their products if known.

    Columns are looked up as rows of transposed stacks: neighbours in memory.
    """

    def __init__(self, Q: Tensor, Q_bar: Tensor | None = None):
        super().__init__(Q.shape[-1], len(Q), Q.device)
        Q_bar = cumulative_products(Q) if Q_bar is None else Q_bar
        self.register_buffer("Q_columns", Q.mT.contiguous(), persistent=False)
        self.register_buffer("Q_bar", Q_bar.contiguous(), persistent=False)
        self.register_buffer("Q_bar_columns", Q_bar.mT.contiguous(), persistent=False)

    Q_columns: Tensor
    """(T, V, V) of t - 1, x_t, x_{t-1}."""
    Q_bar: Tensor
    """(T + 1, V, V) of t, x_0, x_t; Qbar_0 is the identity."""
    Q_bar_columns: Tensor
    """(T + 1, V, V) of t, x_t, x_0."""

    @property
    def Q(self) -> Tensor:
        """(T, V, V) of t - 1, x_{t-1}, x_t."""
        return self.Q_columns.mT

    def detached(self) -> "DenseProcess":
        """The same process without a gradient."""
        fixed = copy.copy(self)
        fixed._buffers = {name: stack.detach() for name, stack in self.named_buffers()}
        return fixed

    @torch.no_grad()
    def become(self, other: "DenseProcess") -> None:
        """Take over the matrices of another process, in place: recorded steps go on using them."""
        for name in ("Q_columns", "Q_bar", "Q_bar_columns"):
            getattr(self, name).copy_(getattr(other, name))

    def rows(self, x0: Tensor, t: Tensor) -> Tensor:
        return self.Q_bar[t[:, None], x0]

    def columns(self, xt: Tensor, t: Tensor) -> Tensor:
        return self.Q_bar_columns[t[:, None], xt]

    def step_columns(self, xt: Tensor, t: Tensor) -> Tensor:
        return self.Q_columns[(t - 1)[:, None], xt]

    def log_prob(self, xt: Tensor, x0: Tensor, t: Tensor) -> Tensor:
        return log(self.Q_bar[t[:, None], x0, xt])

    def step_kl(self, xt: Tensor, x0: Tensor, logits: Tensor, t: Tensor) -> Tensor:
        w = looked_up_weights(logits, self.Q_bar_columns, xt, t)
        mixed = self.mix(w, t - 1)
        kl = looked_up_kl(mixed, self.Q_columns, self.Q_bar, xt, x0, t)
        return kl * (xt != PAD)

    def mix(self, w: Tensor, t: Tensor) -> Tensor:
        """Matrices are gathered for as many rows at once as keep below max(T V^2, B L V) numbers.

        Grouping rows by t would need fewer, but then the host has to wait for t.
        """
        if len(t) == 1:
            return w @ self.Q_bar[t]
        rows = max(self.T, w.shape[0] * w.shape[1] // self.V)
        parts = zip(w.split(rows), t.split(rows), strict=True)
        return torch.cat([part @ self.Q_bar[s] for part, s in parts])

    def at(self, times: Sequence[int]) -> "DenseProcess":
        check_times(times, self.T)
        jumps = [product(self.Q[s:t]) for s, t in pairwise((0, *times))]
        return DenseProcess(torch.stack(jumps), self.Q_bar[[0, *times]])


@fusable
def looked_up_weights(logits: Tensor, Q_bar_columns: Tensor, xt: Tensor, t: Tensor) -> Tensor:
    """w = p / Qbar_t[:, x_t], (B, L, V)."""
    p = full_precision(logits).softmax(-1)
    return over_evidence(p, Q_bar_columns[t[:, None], xt])


@fusable
def looked_up_kl(
    mixed: Tensor, Q_columns: Tensor, Q_bar: Tensor, xt: Tensor, x0: Tensor, t: Tensor
) -> Tensor:
    """(B, L) KL of the posterior to the reverse step Q_t[:, x_t] * mixed."""
    tiny = torch.finfo(mixed.dtype).tiny
    evidence = Q_bar[t[:, None], x0, xt].clamp_min(tiny)[..., None]
    return kl_of_products(
        Q_bar[(t - 1)[:, None], x0] / evidence, mixed, Q_columns[(t - 1)[:, None], xt]
    )


def kl_of_products(q: Tensor, p: Tensor, factor: Tensor) -> Tensor:
    """KL(q * factor || p * factor), in whose logarithm the factor cancels."""
    weight, tiny = q * factor, torch.finfo(p.dtype).tiny
    possible = weight > 0
    log_ratio = (
        torch.where(possible, q, 1).log() - torch.where(possible, p.clamp_min(tiny), 1).log()
    )
    return (weight * log_ratio).sum(-1)


def step_matrices(M: Tensor, alpha: Tensor) -> Tensor:
    """Q_t = alpha_t I + (1 - alpha_t) M_t, (T, V, V) from M (T, V, V) and alpha (T,)."""
    alpha = alpha.to(M)[:, None, None]
    return alpha * identity(M) + (1 - alpha) * M


def identity(like: Tensor) -> Tensor:
    """(V, V), of the size, type and place of the matrices (..., V, V) given."""
    return torch.eye(like.shape[-1], dtype=like.dtype, device=like.device)


SMALL = 256
"""Vocabularies up to here are cheap: their products are kept in float64, and made in parallel."""


def wide(V: int, dtype: torch.dtype) -> torch.dtype:
    """Products of many matrices are kept in float64 where V is small enough for it to be cheap."""
    return torch.float64 if V <= SMALL else dtype


def cumulative_products(Q: Tensor) -> Tensor:
    """(T + 1, V, V): Qbar_t = Q_1 ... Q_t, t = 0..T, rows renormalised, never in low precision."""
    V = Q.shape[-1]
    with tf32(False), torch.autocast(Q.device.type, enabled=False):
        products = scan if V <= SMALL else Chain.apply
        Q_bar = products(Q.to(wide(V, Q.dtype)))
    assert isinstance(Q_bar, Tensor)
    return torch.cat([identity(Q)[None], Q_bar.to(Q.dtype)])


def scan(Q: Tensor) -> Tensor:
    """All products of a stack in log2(T) batched multiplications: more work, less waiting."""
    span = 1
    while span < len(Q):
        joined = Q[:-span] @ Q[span:]
        Q = torch.cat([Q[:span], joined / joined.sum(-1, keepdim=True)])
        span *= 2
    return Q


class Chain(torch.autograd.Function):
    """All products of a stack one after the other, remembering nothing but stack and products.

    With G_t the gradient of all later uses of Qbar_t, taken back through the renormalisation (whose
    divisor is 1 but for rounding):

        grad Q_t = Qbar_{t-1}^T G_t,   G_{t-1} += G_t Q_t^T
    """

    @staticmethod
    def forward(ctx: Any, Q: Tensor) -> Tensor:
        Q_bar = torch.empty_like(Q)
        Q_bar[0] = Q[0]
        for t in range(1, len(Q)):
            product = exact_product(Q_bar[t - 1], Q[t])
            torch.div(product, product.sum(-1, keepdim=True), out=Q_bar[t])
        ctx.save_for_backward(Q, Q_bar)
        return Q_bar

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        Q, Q_bar = ctx.saved_tensors
        (grad_Q_bar,) = grads
        grad_Q, G = torch.empty_like(Q), torch.zeros_like(Q[0])
        for t in range(len(Q) - 1, 0, -1):
            G = G + grad_Q_bar[t]
            G = G - (G * Q_bar[t]).sum(-1, keepdim=True)
            grad_Q[t] = exact_product(Q_bar[t - 1].mT, G)
            G = exact_product(G, Q[t].mT)
        grad_Q[0] = G + grad_Q_bar[0]
        return grad_Q


def product(Q: Tensor) -> Tensor:
    """Q_1 ... Q_n of a stack (n, V, V)."""
    return cumulative_products(Q)[-1]
