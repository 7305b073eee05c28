"""Stage 5: the bound that every method minimises, and that every run reports.

    -log p(x_0) <= KL(q(x_T|x_0) || prior)
                   + sum_{t=1..T} KL(q(x_{t-1}|x_t,x_0) || p_theta(x_{t-1}|x_t))

where the term at t=1 is -log p_theta(x_0 | x_1). The sum is estimated range by range: one t drawn
from {low .. high}, its KL weighted by the number of steps in the range. So "joint" is one range
1..T and one pass, the paper's "split" is 2..T beside 1..1, and the exact bound is T ranges of one.

What is differentiated may hold a share of -log p_theta(x_0 | x_t) beside the bound, as in D3PM: it
speaks of every token at every t, where the bound is nearly silent of those that did not change.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from redraft.noise.draws import Generators, Sliced, uniform
from redraft.noise.process import ForwardProcess, full_precision
from redraft.tokenizers.base import PAD

Predictor = Callable[..., Tensor]
"""denoiser(xt, t, padded, belief, evidence) -> logits (B, L, V)."""
Range = tuple[int, int]


@dataclass(frozen=True)
class Draw:
    """One corruption of a batch: x_t at times t, and how many steps it stands for."""

    xt: Tensor
    t: Tensor
    weight: int
    belief: Tensor | None = None
    """(B, L, V) what the denoiser is told that it believed of x_0."""


def ranges(estimator: str, T: int) -> list[Range]:
    return {"joint": [(1, T)], "split": [(2, T), (1, 1)]}[estimator]


def stratified(B: int, span: Range, device: torch.device, generator: Generators = None) -> Tensor:
    """(B,) times in low..high, one from each of B equal strata, in random order."""
    low, high = span
    if low == high:
        return torch.full((B,), low, device=device)
    if isinstance(generator, Sliced):
        whole = stratified(B * generator.parts, span, device, generator.generator)
        return generator.take(whole)
    strata = (torch.arange(B, device=device) + uniform((B,), device, generator)) / B
    times = low + ((high - low + 1) * strata).long().clamp_max(high - low)
    return times[uniform((B,), device, generator).argsort()]


def draw_times(
    x0: Tensor, spans: list[Range], generator: Generators = None
) -> list[tuple[Tensor, int]]:
    """For each range its times (B,) and its number of steps."""
    return [
        (stratified(len(x0), (low, high), x0.device, generator), high - low + 1)
        for low, high in spans
    ]


def corrupt(
    process: ForwardProcess,
    x0: Tensor,
    times: list[tuple[Tensor, int]],
    generator: Generators = None,
) -> list[Draw]:
    return [Draw(process.corrupt(x0, t, generator), t, weight) for t, weight in times]


def predict(
    denoiser: Predictor,
    process: ForwardProcess,
    x: Tensor,
    t: Tensor,
    padded: bool = True,
    belief: Tensor | None = None,
) -> Tensor:
    """log p_theta(x_0 | x_t), (B, L, V), for x of a process, in full precision."""
    return full_precision(denoiser(x, t, padded, belief, process.evidence)).log_softmax(-1)


def token_losses(
    denoiser: Predictor,
    process: ForwardProcess,
    x0: Tensor,
    draws: list[Draw],
    padded: bool = True,
    auxiliary: float = 0.0,
) -> Tensor:
    """(B, L) estimate of every token's share of the bound, in nats; 0 at PAD.

    With a weight `auxiliary` on -log p(x_0 | x_t) beside it.
    """
    total = torch.zeros((), device=x0.device)
    for draw in draws:
        logits = denoiser(draw.xt, draw.t, padded, draw.belief, process.evidence)
        with torch.autocast(x0.device.type, enabled=False):
            total = total + draw.weight * process.step_kl(draw.xt, x0, logits, draw.t)
            if auxiliary:
                total = total + auxiliary * process.clean_nll(draw.xt, x0, logits)
    return torch.where(x0 == PAD, 0, total)


def token_mean(losses: Tensor, x0: Tensor, tokens: Tensor | int | None = None) -> Tensor:
    """Mean over tokens that are not PAD, or over the `tokens` of a batch that x0 is a part of."""
    return losses.sum() / token_count(x0, tokens)


def token_count(x0: Tensor, tokens: Tensor | int | None = None) -> Tensor | int:
    return (x0 != PAD).sum() if tokens is None else tokens


@torch.no_grad()
def exact_bound(
    denoiser: Predictor, process: ForwardProcess, x0: Tensor, generator: Generators = None
) -> Tensor:
    """(B,) bound on -log p(x_0) in nats: all t, one x_t each, and the prior term."""
    bound = torch.where(x0 == PAD, 0, process.prior_kl(x0)).double().sum(-1)
    for t in range(1, process.T + 1):
        draws = corrupt(process, x0, draw_times(x0, [(t, t)]), generator)
        bound += token_losses(denoiser, process, x0, draws).double().sum(-1)
    return bound
