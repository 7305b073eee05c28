"""Stage 8: one reverse loop, and three ways into it.

    sample   start from noise everywhere
    infill   start from noise where the mask is; the context is fixed at every step
    revise   noise x for a part of the way, then come back

Temperature and top-p act on p(x_0 | x_t), before the posterior. Progress bars, traces and web pages
are callbacks: they see every step.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal, get_args

import torch
from torch import Tensor

from redraft.config import Told, check
from redraft.denoiser import Denoiser
from redraft.errors import UserError
from redraft.noise.draws import Generators, categorical
from redraft.noise.markov import MarkovProcess
from redraft.noise.process import ForwardProcess
from redraft.objective import predict
from redraft.recording import Recorder, directly
from redraft.tokenizers.base import MASK, PAD


@dataclass(frozen=True)
class Step:
    """What a callback sees."""

    n: int
    """Steps still to go."""
    t: int
    """The time that the denoiser was told."""
    to: int
    """The time that the sequence has come to."""
    x: Tensor
    """(B, L) the sequence after this step."""
    p: Tensor
    """(B, L, V) what the denoiser believed of x_0 before it."""


Callback = Callable[[Step], None]


class Trace(list[tuple[int, list[int]]]):
    """A callback that keeps the first sequence of the first batch, at each time it comes to."""

    def __call__(self, step: Step) -> None:
        if not self or self[-1][0] > 0:
            self.append((step.to, step.x[0].tolist()))


@dataclass(frozen=True)
class Sampler:
    denoiser: Denoiser
    process: ForwardProcess
    steps: int | None = None
    """Number of reverse steps; all T of them by default."""
    temperature: float = 1.0
    """Below 1 sharpens p(x_0); 0 takes its largest."""
    top_p: float = 1.0
    """Keeps only the most probable states that make up this mass."""
    renew: float = 0.0
    """Steps from t = renew * T on forget x_t and keep what the denoiser made of it."""
    told: Told = "share"
    """What time a denoiser that does not infill is told where only a part is drawn."""
    precision: Literal["float32", "bf16"] = "float32"
    """Arithmetic of the denoiser; reverse steps are in float32, draws in float64."""

    def __post_init__(self):
        T = self.process.T
        check(self.temperature >= 0, f"temperature must be >= 0, got {self.temperature}")
        check(self.temperature < math.inf, "temperature must be finite, got inf")
        check(0 < self.top_p <= 1, f"top_p must be in (0, 1], got {self.top_p}")
        check(0 <= self.renew <= 1, f"renew must be in [0, 1], got {self.renew}")
        known = get_args(Told)
        check(self.told in known, f"told must be one of {', '.join(known)}, got {self.told}")
        check(
            self.told == "share" or not self.denoiser.infills,
            f"this model infills, and is told what is given, got told {self.told}",
        )
        possible = self.steps is None or 1 <= self.steps <= T
        check(possible, f"steps must be in 1..{T}, got {self.steps}")
        if isinstance(self.process, MarkovProcess):
            return
        if self.steps not in (None, T):
            raise UserError(
                f"this model samples in all its {T} steps only (its noise is not Markov), "
                f"got steps {self.steps}"
            )
        if self.renew:
            raise UserError(
                f"this model renews nothing (its noise is not Markov), got renew {self.renew}"
            )

    @cached_property
    def network(self) -> Denoiser:
        """The denoiser in the arithmetic asked for."""
        if self.precision == "float32":
            return self.denoiser
        return copy.deepcopy(self.denoiser).to(torch.bfloat16)

    @cached_property
    def times(self) -> list[int]:
        """The times at which the denoiser is asked, rising to T."""
        T, n = self.process.T, self.steps or self.process.T
        late = self.process.lateness
        return [max(k, math.ceil(T * (k / n) ** late - 1e-9)) for k in range(1, n + 1)]

    def steps_from(self, strength: float) -> int:
        """How many of the steps lead back from t = strength * T, or from the time nearest to it."""
        times = [0, *self.times]
        return min(range(len(times)), key=lambda n: abs(times[n] - strength * self.process.T))

    @cached_property
    def coarse(self) -> ForwardProcess:
        """The process at those times."""
        if isinstance(self.process, MarkovProcess) and len(self.times) < self.process.T:
            return self.process.at(self.times)
        return self.process

    def sample(
        self, start: Tensor, generator: Generators = None, callback: Callback | None = None
    ) -> Tensor:
        """New sequences from x_T (B, L), such as `process.prior(canvas(lengths))`."""
        return self._reverse(start, len(self.times), start != PAD, generator, callback)

    def infill(
        self,
        x: Tensor,
        mask: Tensor,
        generator: Generators = None,
        callback: Callback | None = None,
        strength: float = 1.0,
    ) -> Tensor:
        """x (B, L) with the positions of mask (B, L) drawn anew, given all others.

        Below strength 1 they begin from what they are, taken to t = strength * T. The denoiser is
        told what is given, or how little of x is noisy (`told`), lest it distrust the context.
        """
        check(bool(mask.any(-1).all()), "nothing to infill: no position is masked")
        check(0 < strength <= 1, f"strength must be above 0 and at most 1, got {strength}")
        free, n = mask & (x != PAD), max(self.steps_from(strength), 1)
        if strength == 1:
            start = self.coarse.prior(x, generator)
        else:
            start = self.coarse.corrupt(x, torch.full_like(x[0, :1], n), generator)
        x = torch.where(free, start, x)
        return self._reverse(x, n, free, generator, callback, clean=True)

    def revise(
        self,
        x: Tensor,
        strength: float,
        noising: bool = True,
        generator: Generators = None,
        callback: Callback | None = None,
        kept: Tensor | None = None,
    ) -> Tensor:
        """x (B, L) taken to t = strength * T and back; without noising, x is taken for x_t.

        Where kept (B, L), if it is given, x stays what it is.
        """
        check(0 <= strength <= 1, f"strength must be in [0, 1], got {strength}")
        n = self.steps_from(strength)
        if n == 0:
            return x
        free, start = x != PAD, x
        if kept is not None:
            free = free & ~kept
        if noising:
            start = self.coarse.corrupt(x, torch.full_like(x[0, :1], n), generator)
        return self._reverse(torch.where(free, start, x), n, free, generator, callback)

    @torch.no_grad()
    def _reverse(
        self,
        x: Tensor,
        n_start: int,
        free: Tensor,
        generator: Generators,
        callback: Callback | None,
        clean: bool = False,
    ) -> Tensor:
        """From n_start steps before the end; what is not free stays, and may be known as clean."""
        prediction = self._prediction(bool((x == PAD).any()), free if clean else None)

        def step(
            renewed: bool, x: Tensor, t: Tensor, n: Tensor, *belief: Tensor
        ) -> dict[str, Tensor]:
            p = prediction(x, t, *belief)
            drawn = categorical(self.step(x, p, n, renewed), generator)
            return {"x": torch.where(free, drawn, x), "p": p}

        run = directly
        if x.is_cuda and not self.denoiser.timeless and isinstance(generator, torch.Generator):
            run = Recorder(generator)
        beliefs = [] if self.denoiser.recall is None else [self._no_belief(x)]
        for n in range(n_start, 0, -1):
            t, to = self.times[n - 1], self.times[n - 2] if n > 1 else 0
            numbers = [torch.full_like(x[0, :1], number) for number in (t, n)]
            renewed = t <= self.renew * self.process.T
            drawn = run(partial(step, renewed), [x, *numbers, *beliefs], renewed)
            x, beliefs = drawn["x"], [drawn["p"] for _ in beliefs]
            if callback is not None:
                callback(Step(n - 1, t, to, x, drawn["p"]))
        return x

    def step(self, x: Tensor, p: Tensor, n: Tensor, renewed: bool) -> Tensor:
        """(B, L, V) the distribution of the next x, n steps before the end, where p is believed.

            sum_i p(i) q(x_{t-1} | x_t, x_0 = i), or renewed  sum_i p(i) q(x_{t-1} | x_0 = i)

        With the true p, x_{t-1} has the marginal that the forward process gives it either way; the
        second way has more chances to take back what has gone wrong.
        """
        if not renewed:
            return self.coarse.reverse(x, p, n)
        assert isinstance(self.coarse, MarkovProcess)
        return self.coarse.renewed(x, p, n - 1)

    def _no_belief(self, x: Tensor) -> Tensor:
        """(B, L, V) what the denoiser is told before its first step."""
        return torch.zeros(*x.shape, self.process.V, device=x.device)

    def _prediction(self, padded: bool, free: Tensor | None) -> Callable[..., Tensor]:
        """p(x_0 | x_t) for any x and t, and the belief before, where it is recalled.

        A timeless denoiser is asked again only for rows that have changed.
        """
        if not self.denoiser.timeless:
            return lambda x, t, *belief: self.predict(x, t, padded, *belief, free=free)
        known: tuple[Tensor, Tensor] | None = None

        def remembered(x: Tensor, t: Tensor) -> Tensor:
            nonlocal known
            if known is None:
                p = self.predict(x, t, padded)
            else:
                before, p = known
                changed = (x != before).any(-1)
                if bool(changed.any()):
                    p = p.index_put((changed,), self.predict(x[changed], t, padded))
            known = x, p
            return p

        return remembered

    def predict(
        self,
        x: Tensor,
        t: Tensor,
        padded: bool,
        belief: Tensor | None = None,
        free: Tensor | None = None,
    ) -> Tensor:
        """p(x_0 | x_t), (B, L, V), shaped by temperature and top-p.

        `free` (B, L) is what is at t, where all else is clean.
        """
        if free is not None and self._tells_share:
            log_p = self._of_few(x, t, padded, belief, free)
        else:
            given = None if free is None else ~free
            log_p = predict(self.network, self.process, x, t, padded, belief, given)
        if self.temperature < 1e-18:  # below, quotients may be too large for a float
            return torch.zeros_like(log_p).scatter(-1, log_p.argmax(-1, keepdim=True), 1)
        p = (log_p / self.temperature).softmax(-1)
        return nucleus(p, self.top_p) if self.top_p < 1 else p

    @property
    def _tells_share(self) -> bool:
        markov = isinstance(self.process, MarkovProcess)
        return self.told == "share" and markov and not self.denoiser.infills

    def _of_few(
        self, x: Tensor, t: Tensor, padded: bool, belief: Tensor | None, free: Tensor
    ) -> Tensor:
        """log p(x_0 | x_t) but for a constant, where a share of the tokens, the free, is at t.

        The denoiser is told s = t * share, when as many would be replaced if all were at s. What a
        token says of its own x_0 as if it were at s gives way to what it says at t:

            p(x_0 | x_s = x_t) q(x_t | x_0) / q(x_s = x_t | x_0)

        A mask says nothing of it at any time.
        """
        s = -(-t * free.sum(-1) // (x != PAD).sum(-1))  # (B,), rounded up
        log_p = predict(self.network, self.process, x, s, padded, belief)
        now, then = (self.process.evidence(x, time) for time in (t, s))
        return log_p if now is None or then is None else log_p + now - then


def nucleus(p: Tensor, mass: float) -> Tensor:
    """p cut to its most probable states that together reach `mass`, and normalised."""
    ordered, states = p.sort(-1, descending=True)
    before = ordered.cumsum(-1) - ordered
    kept = torch.where(before < mass, ordered, 0)
    return torch.zeros_like(p).scatter(-1, states, kept / kept.sum(-1, keepdim=True))


def canvas(lengths: Tensor) -> Tensor:
    """(B, L) an empty sequence for each length: MASK to be drawn, PAD behind."""
    positions = torch.arange(int(lengths.max()), device=lengths.device)
    return torch.where(positions < lengths[:, None], MASK, PAD)
