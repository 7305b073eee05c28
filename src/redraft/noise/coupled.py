"""Coupled noise (FLDD; Bartosh et al. 2026): learned marginals, coupled; not Markov.

A network over the whole clean sequence gives every position's marginal, r = t / T:

    u_t = (1 - r)^2 onehot(x_0) + 2 r (1 - r) softmax f_phi(x_0, t) + r^2 uniform

Posterior of z_s given z_t = k, s = t - 1: stay with probability min(u_s[k], u_t[k]) / u_t[k], else
move to j with weight m[j] = max(0, u_s[j] - u_t[j]), normalised. The denoiser predicts z_s itself:

    v = (s / t)^2 onehot(z_t) + (1 - (s / t)^2) p_theta(z_t, t)

While f_phi does not change with t, no state loses more than a share 1 - (s / t)^2 of itself in a
step, so that the true v is among these. What p_theta has wrong moves a token with that share: some
2 log T times in all, not T times.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from redraft.errors import UserError
from redraft.noise.draws import Generators, categorical, uniform
from redraft.noise.process import ForwardProcess, full_precision, indicator, log, uniform_noise
from redraft.tokenizers.base import PAD


class CoupledProcess(ForwardProcess):
    """`network(x0, t)` gives logits (B, L, V) that are -inf outside the valid states."""

    def __init__(self, network: nn.Module | Callable[[Tensor, Tensor], Tensor], V: int, T: int):
        if T < 2:
            raise UserError(f"T must be at least 2, got {T}")
        super().__init__(V, T)
        self.network = network

    def marginal(self, x0: Tensor, t: Tensor) -> Tensor:
        """u_t(x_0), (B, L, V), for t in 0..T."""
        f = full_precision(self.network(x0, t)).softmax(-1)
        r = (t.to(f.dtype) / self.T)[:, None, None]
        clean = indicator(x0, self.V)
        u = (1 - r) ** 2 * clean + 2 * r * (1 - r) * f + r**2 * self.valid / self.valid.sum()
        return torch.where((x0 == PAD)[..., None], clean.to(u.dtype), u)

    def corrupt(self, x0: Tensor, t: Tensor, generator: Generators = None) -> Tensor:
        with torch.no_grad():
            return categorical(self.marginal(x0, t), generator)

    def log_prob(self, xt: Tensor, x0: Tensor, t: Tensor) -> Tensor:
        return token_log_prob(self.marginal(x0, t), xt)

    def posterior(self, xt: Tensor, x0: Tensor, t: Tensor) -> Tensor:
        return couple(self.marginal(x0, t - 1), self.marginal(x0, t), indicator(xt, self.V))

    def reverse(self, xt: Tensor, p: Tensor, t: Tensor) -> Tensor:
        return linger(indicator(xt, self.V), p, t)

    def prior(self, x: Tensor, generator: Generators = None) -> Tensor:
        return uniform_noise(x, self.V, generator)

    def prior_kl(self, x0: Tensor) -> Tensor:
        return torch.zeros(x0.shape, device=x0.device)  # u_T is uniform exactly


def couple(u_s: Tensor, u_t: Tensor, z: Tensor) -> Tensor:
    """The posterior u_{s|t} for z_t, as indicators or relaxed to rows on the simplex, (B, L, V)."""
    stay = torch.where(u_t > u_s, u_s / u_t.clamp_min(torch.finfo(u_t.dtype).tiny), 1)
    gain = (u_s - u_t).clamp_min(0)
    move = gain / gain.sum(-1, keepdim=True).clamp_min(torch.finfo(u_t.dtype).tiny)
    leave = (z * (1 - stay)).sum(-1, keepdim=True)
    return z * stay + leave * move


def linger(z: Tensor, p: Tensor, t: Tensor) -> Tensor:
    """v, (B, L, V): z_t, as it is or relaxed, stays where it is, or goes where p says."""
    kept = (1 - 1 / t.to(p.dtype))[:, None, None] ** 2
    return kept * z + (1 - kept) * p


def relax(u: Tensor, temperature: Tensor | float, generator: Generators = None) -> Tensor:
    """A Concrete draw: a point of the simplex that is nearly one-hot at low temperature."""
    noise = uniform(u.shape, u.device, generator)  # float64: a rounded 1.0 would be infinite
    gumbel = -(-log(noise)).log()
    return ((log(u) + gumbel.to(u.dtype)) / temperature).softmax(-1)


def token_log_prob(u: Tensor, z: Tensor) -> Tensor:
    """log u[z] of every token, (B, L)."""
    return log(u.gather(-1, z[..., None]).squeeze(-1))
