"""Absorbing noise (MDLM): a token is kept, or becomes MASK and stays so.

    q(x_t = x_0) = alpha_bar_t,   q(x_t = MASK) = 1 - alpha_bar_t

SUBS: the denoiser puts no mass on MASK, and tokens that are not masked are carried over. The step
from a masked token keeps the mask with probability stay = (1 - alpha_bar_{t-1}) / (1 - alpha_bar_t)
and else draws from p, so that the KL is (1 - stay) * -log p(x_0), on masked tokens alone.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from redraft.noise.draws import Generators, uniform
from redraft.noise.markov import MarkovProcess, check_times
from redraft.noise.process import indicator, log, negative_log
from redraft.tokenizers.base import MASK, PAD


class AbsorbingProcess(MarkovProcess):
    """`alpha_bar` (T + 1,) is the share of tokens not yet masked."""

    lateness = 1.0  # a token that was unmasked stays as it is, late steps or not

    def __init__(self, V: int, alpha_bar: Tensor, dtype: torch.dtype = torch.float32):
        super().__init__(V, T=len(alpha_bar) - 1)
        alpha_bar = alpha_bar.double()
        masked = 1 - alpha_bar  # of which float32 would leave little where it is small
        self.register_buffer("alpha_bar", alpha_bar, persistent=False)
        self.register_buffer("kept", alpha_bar.to(dtype), persistent=False)
        self.register_buffer("masked", masked.to(dtype), persistent=False)
        self.register_buffer("stay", (masked[:-1] / masked[1:]).to(dtype), persistent=False)

    alpha_bar: Tensor
    """(T + 1,) in float64."""
    kept: Tensor
    """(T + 1,) alpha_bar."""
    masked: Tensor
    """(T + 1,) 1 - alpha_bar."""
    stay: Tensor
    """(T,) chance that a token masked at t was masked at t - 1."""

    def corrupt(self, x0: Tensor, t: Tensor, generator: Generators = None) -> Tensor:
        masked = uniform(x0.shape, x0.device, generator) >= self.kept[t][:, None]
        return torch.where(masked & (x0 != PAD), MASK, x0)

    def log_prob(self, xt: Tensor, x0: Tensor, t: Tensor) -> Tensor:
        kept, masked = self.kept[t][:, None], self.masked[t][:, None]
        probs = torch.where(xt == MASK, masked, kept * (xt == x0))
        return log(torch.where(self.valid[x0], probs, (xt == x0).to(kept.dtype)))

    def posterior(self, xt: Tensor, x0: Tensor, t: Tensor) -> Tensor:
        return self.reverse(xt, indicator(x0, self.V).to(self.kept.dtype), t)

    def reverse(self, xt: Tensor, p: Tensor, t: Tensor) -> Tensor:
        stay = self.stay[t - 1][:, None, None].to(p.dtype)
        current = indicator(xt, self.V).to(p.dtype)
        unmasking = stay * current + (1 - stay) * p
        return torch.where((xt == MASK)[..., None], unmasking, current)

    def renewed(self, xt: Tensor, p: Tensor, s: Tensor) -> Tensor:
        current = indicator(xt, self.V).to(p.dtype)
        clean = torch.where((xt == MASK)[..., None], p, current)  # what is not masked is known
        masks = indicator(torch.full_like(xt, MASK), self.V).to(p.dtype)
        kept, masked = (a[s][:, None, None].to(p.dtype) for a in (self.kept, self.masked))
        return torch.where((xt == PAD)[..., None], current, kept * clean + masked * masks)

    def step_kl(self, xt: Tensor, x0: Tensor, logits: Tensor, t: Tensor) -> Tensor:
        nll = self.clean_nll(xt, x0, logits)
        return (1 - self.stay[t - 1])[:, None].to(nll.dtype) * nll

    def clean_nll(self, xt: Tensor, x0: Tensor, logits: Tensor) -> Tensor:
        return negative_log(logits, x0) * (xt == MASK)

    def prior(self, x: Tensor, generator: Generators = None) -> Tensor:
        return torch.where(x == PAD, x, MASK)

    def prior_kl(self, x0: Tensor) -> Tensor:
        return torch.zeros(x0.shape, dtype=self.kept.dtype, device=x0.device)

    def at(self, times: Sequence[int]) -> "AbsorbingProcess":
        check_times(times, self.T)
        coarse = self.alpha_bar[[0, *times]]
        return AbsorbingProcess(self.V, coarse, self.kept.dtype).to(coarse.device)
