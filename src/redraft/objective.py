"""Stage 5: the bound that every method minimises, and that every run reports.

    -log p(x_0) <= KL(q(x_T|x_0) || prior)
                   + sum_{t=1..T} KL(q(x_{t-1}|x_t,x_0) || p_theta(x_{t-1}|x_t))

where the term at t=1 is -log p_theta(x_0 | x_1). The sum is estimated range by range: one t drawn
from {low .. high}, its KL weighted by the number of steps in the range. So "joint" is one range
1..T and one pass, the paper's "split" is 2..T beside 1..1, and the exact bound is T ranges of one.

Where a part of x_0 is given, the same holds of the rest, all terms conditioned on that part.

What is differentiated may hold a share of -log p_theta(x_0 | x_t) beside the bound, as in D3PM: it
speaks of every token at every t, where the bound is nearly silent of those that did not change.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from redraft.noise.draws import Generators, Sliced, uniform
from redraft.noise.process import ForwardProcess, full_precision
from redraft.tokenizers.base import PAD

Predictor = Callable[..., Tensor]
"""denoiser(xt, t, padded, belief, evidence, given) -> logits (B, L, V)."""
Range = tuple[int, int]


@dataclass(frozen=True)
class Draw:
    """One corruption of a batch: x_t at times t, and how many steps it stands for."""

    xt: Tensor
    t: Tensor
    weight: int
    belief: Tensor | None = None
    """(B, L, V) what the denoiser is told that it believed of x_0."""
    given: Tensor | None = None
    """(B, L) which tokens are those of x_0, and known to be."""

    def giving(self, x0: Tensor, given: Tensor) -> "Draw":
        """The same noise, but where x_0 is given."""
        return replace(self, xt=torch.where(given, x0, self.xt), given=given)

    def counted(self, tokens: Tensor) -> Tensor:
        """A share of every token (B, L), 0 where it is given."""
        return tokens if self.given is None else tokens.where(~self.given, 0)


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


def parts_given(x0: Tensor, generator: Generators = None) -> Tensor:
    """(B, L) what of each sequence is given: nothing in half of them or more, else all but runs.

    Runs are of any length, and few or many of them are hidden: the denoiser meets single tokens,
    spans, beginnings and ends. Where none would be hidden, all are.
    """
    B, L = x0.shape
    some, scale, shift, share = (uniform((B, 1), x0.device, generator) for _ in range(4))
    length = L**scale  # of a run, from 1 to L
    run = ((torch.arange(L, device=x0.device) + shift * length) / length).long()  # (B, L)
    hidden = uniform((B, L + 1), x0.device, generator).gather(1, run) < share
    return (some < 0.5) & hidden.any(-1, keepdim=True) & ~hidden


def predict(
    denoiser: Predictor,
    process: ForwardProcess,
    x: Tensor,
    t: Tensor,
    padded: bool = True,
    belief: Tensor | None = None,
    given: Tensor | None = None,
) -> Tensor:
    """log p_theta(x_0 | x_t), (B, L, V), for x of a process, in full precision."""
    logits = denoiser(x, t, padded, belief, process.evidence, given)
    return full_precision(logits).log_softmax(-1)


def token_losses(
    denoiser: Predictor,
    process: ForwardProcess,
    x0: Tensor,
    draws: list[Draw],
    padded: bool = True,
    auxiliary: float = 0.0,
) -> Tensor:
    """(B, L) estimate of every token's share of the bound, in nats; 0 at PAD and where given.

    With a weight `auxiliary` on -log p(x_0 | x_t) beside it.
    """
    total = torch.zeros((), device=x0.device)
    for draw in draws:
        logits = denoiser(draw.xt, draw.t, padded, draw.belief, process.evidence, draw.given)
        with torch.autocast(x0.device.type, enabled=False):
            losses = draw.weight * process.step_kl(draw.xt, x0, logits, draw.t)
            if auxiliary:
                losses = losses + auxiliary * process.clean_nll(draw.xt, x0, logits)
        total = total + draw.counted(losses)
    return torch.where(x0 == PAD, 0, total)


def token_mean(losses: Tensor, x0: Tensor, tokens: Tensor | int | None = None) -> Tensor:
    """Mean over tokens that are not PAD, or over the `tokens` of a batch that x0 is a part of."""
    return losses.sum() / token_count(x0, tokens)


def token_count(x0: Tensor, tokens: Tensor | int | None = None) -> Tensor | int:
    return (x0 != PAD).sum() if tokens is None else tokens


@torch.no_grad()
def exact_bound(
    denoiser: Predictor,
    process: ForwardProcess,
    x0: Tensor,
    generator: Generators = None,
    given: Tensor | None = None,
) -> Tensor:
    """(B,) bound on -log p(x_0) in nats: all t, one x_t each, and the prior term.

    With `given` (B, L), on -log p(the rest | what is given), for a denoiser that infills.
    """
    free = x0 != PAD if given is None else (x0 != PAD) & ~given
    bound = torch.where(free, process.prior_kl(x0), 0).double().sum(-1)
    for t in range(1, process.T + 1):
        draws = corrupt(process, x0, draw_times(x0, [(t, t)]), generator)
        if given is not None:
            draws = [draw.giving(x0, given) for draw in draws]
        bound += token_losses(denoiser, process, x0, draws).double().sum(-1)
    return bound
