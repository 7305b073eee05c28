"""Uniform noise (D3PM-Uniform), in closed form; also the reference process of the leader.

A token stays with probability alpha_t, else becomes one of the V' - 1 other valid states. A product
of such matrices is such a matrix: with f_s = 1 - (1 - alpha_s) V' / (V' - 1),

    Qbar_t = lambda_t I + (1 - lambda_t) / V',   lambda_t = prod_{s<=t} f_s

which is not alpha_bar_t: f_T is negative, as a token that is replaced never stays what it was.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from redraft.noise.markov import SubstitutionProcess, check_times
from redraft.noise.process import indicator


class UniformProcess(SubstitutionProcess):
    """`alpha` (T,) is the chance that each step keeps a token."""

    def __init__(self, V: int, alpha: Tensor, dtype: torch.dtype = torch.float32):
        super().__init__(V, T=len(alpha))
        self.states = V - 2
        alpha = alpha.double()
        factors = 1 - (1 - alpha) * self.states / (self.states - 1)
        stay_bar = factors.cumprod(0) * (1 - 1 / self.states) + 1 / self.states
        self.register_buffer("stay", alpha.to(dtype), persistent=False)
        self.register_buffer(
            "stay_bar", torch.cat([alpha.new_ones(1), stay_bar]).to(dtype), persistent=False
        )

    stay: Tensor
    """(T,) the diagonal of Q_t."""
    stay_bar: Tensor
    """(T + 1,) the diagonal of Qbar_t."""

    def _move(self, stay: Tensor) -> Tensor:
        """Off the diagonal of a matrix with this diagonal."""
        return (1 - stay) / (self.states - 1)

    def _spread(self, x: Tensor, stay: Tensor) -> Tensor:
        """Rows (= columns) x of a uniform matrix; PAD and MASK are fixed points."""
        stay, here = stay[:, None, None], indicator(x, self.V)
        noisy = torch.where(here, stay, self._move(stay) * self.valid)
        return torch.where(self.valid[x][..., None], noisy, here.to(stay.dtype))

    def rows(self, x0: Tensor, t: Tensor) -> Tensor:
        return self._spread(x0, self.stay_bar[t])

    def columns(self, xt: Tensor, t: Tensor) -> Tensor:
        return self._spread(xt, self.stay_bar[t])

    def step_columns(self, xt: Tensor, t: Tensor) -> Tensor:
        return self._spread(xt, self.stay[t - 1])

    def mix(self, w: Tensor, t: Tensor) -> Tensor:
        stay = self.stay_bar[t][:, None, None]
        move = self._move(stay)
        total = (w * self.valid).sum(-1, keepdim=True)
        return torch.where(self.valid, (stay - move) * w + move * total, w)

    def at(self, times: Sequence[int]) -> "UniformProcess":
        check_times(times, self.T)
        factors = 1 - self._move(self.stay.double()) * self.states
        jumps = torch.stack([factors[s:t].prod() for s, t in pairwise((0, *times))])
        alpha = jumps * (1 - 1 / self.states) + 1 / self.states  # many steps are one such step
        return UniformProcess(self.V, alpha, self.stay.dtype).to(self.stay.device)
