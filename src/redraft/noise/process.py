"""What every forward process can do, Markov or not.

Letters: B batch, L length, V vocabulary, T steps. Times t run 1..T; x_0 is clean.
PAD never moves, and is never predicted.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from redraft.errors import UserError
from redraft.fusion import fusable
from redraft.noise.draws import Generators, uniform
from redraft.tokenizers.base import MASK, PAD


class ForwardProcess(nn.Module, ABC):
    """q(x_1 .. x_T | x_0) on sequences of V states, and the reverse steps that it implies."""

    T: int
    V: int
    lateness: float = 1.5
    """Fewer steps are at T (k / n) ** lateness: above 1 they crowd towards the clean end, where
    mistakes are taken back, if tokens can be."""

    def __init__(self, V: int, T: int, device: torch.device | None = None):
        super().__init__()
        if V - 2 < 3:
            raise UserError(f"a process needs at least 3 valid states, got {V - 2}")
        self.V, self.T = V, T
        states = torch.arange(V, device=device)
        self.register_buffer("valid", (states != PAD) & (states != MASK), persistent=False)

    valid: Tensor
    """(V,) True for the states that noise lives on: all but PAD and MASK."""

    @abstractmethod
    def corrupt(self, x0: Tensor, t: Tensor, generator: Generators = None) -> Tensor:
        """x_t ~ q(x_t | x_0): (B, L) from x0 (B, L) and t (B,)."""

    @abstractmethod
    def log_prob(self, xt: Tensor, x0: Tensor, t: Tensor) -> Tensor:
        """log q(x_t | x_0) of every token, (B, L)."""

    @abstractmethod
    def posterior(self, xt: Tensor, x0: Tensor, t: Tensor) -> Tensor:
        """q(x_{t-1} | x_t, x_0), (B, L, V)."""

    @abstractmethod
    def reverse(self, xt: Tensor, p: Tensor, t: Tensor) -> Tensor:
        """p_theta(x_{t-1} | x_t), (B, L, V), from the denoiser's probabilities p (B, L, V)."""

    def evidence(self, xt: Tensor, t: Tensor) -> Tensor | None:
        """log q(x_t | x_0) for every x_0, (B, L, V); None where a denoiser has no use for it."""
        return None

    @abstractmethod
    def prior(self, x: Tensor, generator: Generators = None) -> Tensor:
        """Pure noise in the shape of x: what sampling starts from; PAD stays PAD."""

    @abstractmethod
    def prior_kl(self, x0: Tensor) -> Tensor:
        """KL(q(x_T | x_0) || prior) of every token, (B, L)."""

    def step_kl(self, xt: Tensor, x0: Tensor, logits: Tensor, t: Tensor) -> Tensor:
        """KL(q(x_{t-1}|x_t,x_0) || p_theta(x_{t-1}|x_t)), (B, L); -log p_theta(x_0|x_1) at t=1.

        From the denoiser's logits (B, L, V), in full precision from there on.
        """
        p = full_precision(logits).softmax(-1)
        return categorical_kl(self.posterior(xt, x0, t), self.reverse(xt, p, t))

    def clean_nll(self, xt: Tensor, x0: Tensor, logits: Tensor) -> Tensor:
        """-log p_theta(x_0 | x_t), (B, L); 0 where x_t tells x_0."""
        return negative_log(logits, x0)


def log(probs: Tensor) -> Tensor:
    """Finite where a probability is 0."""
    return probs.clamp_min(torch.finfo(probs.dtype).tiny).log()


def categorical_kl(q: Tensor, p: Tensor) -> Tensor:
    """KL(q || p) over the last axis with 0 log 0 = 0, in the backward pass too."""
    tiny = torch.finfo(p.dtype).tiny
    support = q > 0
    log_ratio = torch.where(support, q, 1).log() - torch.where(support, p.clamp_min(tiny), 1).log()
    return (q * log_ratio).sum(-1)


@fusable
def negative_log(logits: Tensor, x0: Tensor) -> Tensor:
    """(B, L) -log p(x_0), of valid tokens."""
    log_p = full_precision(logits).log_softmax(-1)
    return -log_p.gather(-1, x0.clamp_min(MASK + 1)[..., None]).squeeze(-1)


def full_precision(x: Tensor) -> Tensor:
    """Float32, or float64 where x is: logits leave autocast here."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def indicator(x: Tensor, V: int) -> Tensor:
    """(..., V) booleans, True at x: a one-hot vector in one byte a state."""
    return x[..., None] == torch.arange(V, device=x.device)


def uniform_noise(x: Tensor, V: int, generator: Generators = None) -> Tensor:
    """Every token but PAD replaced by a valid state drawn uniformly."""
    noise = (MASK + 1) + (uniform(x.shape, x.device, generator) * (V - MASK - 1)).long()
    return torch.where(x == PAD, x, noise)
