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

from redraft.fusion import fusable
from redraft.noise.draws import Generators, uniform
from redraft.noise.markov import SubstitutionProcess, check_times, kl_of_products, over_evidence
from redraft.noise.process import full_precision, indicator
from redraft.tokenizers.base import EOS, PAD


class UniformProcess(SubstitutionProcess):
    """`alpha` (T,) is the chance that each step keeps a token."""

    def __init__(self, V: int, alpha: Tensor, dtype: torch.dtype = torch.float32):
        super().__init__(V, T=len(alpha))
        n = V - 2
        alpha = alpha.double()
        factors = 1 - (1 - alpha) * n / (n - 1)
        lam = torch.cat([alpha.new_ones(1), factors.cumprod(0)])
        self.register_buffer("factors", factors, persistent=False)
        diagonals = {"stay": alpha, "stay_bar": lam * (1 - 1 / n) + 1 / n}
        others = {"move": (1 - alpha) / (n - 1), "move_bar": (1 - lam) / n}
        for name, exact in (diagonals | others).items():
            self.register_buffer(name, exact.to(dtype), persistent=False)

    factors: Tensor
    """(T,) f, in float64."""
    stay: Tensor
    """(T,) the diagonal of Q_t."""
    move: Tensor
    """(T,) what lies off it."""
    stay_bar: Tensor
    """(T + 1,) the diagonal of Qbar_t."""
    move_bar: Tensor
    """(T + 1,) what lies off it."""

    def _spread(self, x: Tensor, stay: Tensor, move: Tensor) -> Tensor:
        """Rows (= columns) x of a uniform matrix; PAD and MASK are fixed points."""
        stay, move, here = stay[:, None, None], move[:, None, None], indicator(x, self.V)
        noisy = torch.where(here, stay, move * self.valid)
        return torch.where(self.valid[x][..., None], noisy, here.to(stay.dtype))

    def rows(self, x0: Tensor, t: Tensor) -> Tensor:
        return self._spread(x0, self.stay_bar[t], self.move_bar[t])

    def columns(self, xt: Tensor, t: Tensor) -> Tensor:
        return self._spread(xt, self.stay_bar[t], self.move_bar[t])

    def step_columns(self, xt: Tensor, t: Tensor) -> Tensor:
        return self._spread(xt, self.stay[t - 1], self.move[t - 1])

    def mix(self, w: Tensor, t: Tensor) -> Tensor:
        stay, move = self.stay_bar[t][:, None, None], self.move_bar[t][:, None, None]
        total = (w * self.valid).sum(-1, keepdim=True)
        return torch.where(self.valid, (stay - move) * w + move * total, w)

    def corrupt(self, x0: Tensor, t: Tensor, generator: Generators = None) -> Tensor:
        """As `categorical` would draw from the rows, without them: all other states are alike."""
        stay, move = (chance[t].double()[:, None] for chance in (self.stay_bar, self.move_bar))
        place, others = x0 - EOS, self.V - EOS - 1
        u = uniform(x0.shape, x0.device, generator) * (stay + others * move)
        kept = (x0 == PAD) | (u >= place * move) & (u < place * move + stay)
        other = (torch.where(u < place * move, u, u - stay) / move).clamp(0, others - 1).long()
        return torch.where(kept, x0, EOS + other + (other >= place))

    def step_kl(self, xt: Tensor, x0: Tensor, logits: Tensor, t: Tensor) -> Tensor:
        chances = (self.stay[t - 1], self.move[t - 1], self.stay_bar[t], self.move_bar[t])
        before = (self.stay_bar[t - 1], self.move_bar[t - 1])
        numbers = (number[:, None, None] for number in chances + before)
        return closed_kl(logits, xt, x0, self.valid, *numbers) * (xt != PAD)

    def at(self, times: Sequence[int]) -> "UniformProcess":
        check_times(times, self.T)
        jumps = torch.stack([self.factors[s:t].prod() for s, t in pairwise((0, *times))])
        alpha = jumps * (1 - 1 / (self.V - 2)) + 1 / (self.V - 2)  # many steps are one such step
        return UniformProcess(self.V, alpha, self.stay.dtype).to(self.stay.device)


@fusable
def closed_kl(
    logits: Tensor,
    xt: Tensor,
    x0: Tensor,
    valid: Tensor,
    stay: Tensor,
    move: Tensor,
    stay_now: Tensor,
    move_now: Tensor,
    stay_before: Tensor,
    move_before: Tensor,
) -> Tensor:
    """(B, L) KL of the posterior to the reverse step, from diagonals and what lies off them.

    Of Q_t, of Qbar_t (now) and of Qbar_{t-1} (before), each (B, 1, 1) or (1, 1, 1).
    """
    p = full_precision(logits).softmax(-1)
    states = torch.arange(p.shape[-1], device=p.device)
    at_xt, at_x0 = states == xt[..., None], states == x0[..., None]
    w = over_evidence(p, torch.where(at_xt, stay_now, move_now)) * valid
    mixed = (stay_before - move_before) * w + move_before * w.sum(-1, keepdim=True)
    evidence = torch.where((xt == x0)[..., None], stay_now, move_now)  # Qbar_t[x_0, x_t]
    expected = torch.where(at_x0, stay_before, move_before * valid) / evidence
    return kl_of_products(expected, mixed, torch.where(at_xt, stay, move))
