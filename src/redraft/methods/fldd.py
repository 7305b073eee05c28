"""FLDD (Bartosh et al. 2026): marginals of a whole-sequence network, learned with the denoiser.

    warm-up:    zbar ~ Concrete(u_t);  KL(zbar's coupled posterior || v(zbar, t))
    afterwards: z ~ u_t;  (1/N) sum_b [ S_b + sg(S_b) sum_l log u_t(z_t | x_0) ]

v is what the denoiser predicts of z_{t-1} itself. The relaxation's temperature falls from 1 to 1e-3
in the warm-up, so that one form passes into the other.
"""

import torch
from torch import Tensor

from redraft.batches import Batch
from redraft.denoiser import Denoiser, compiled
from redraft.methods.method import Method, Metrics, Player, told
from redraft.noise.coupled import CoupledProcess, couple, linger, relax, token_log_prob
from redraft.noise.draws import categorical
from redraft.noise.process import categorical_kl, indicator
from redraft.objective import draw_times, predict, token_mean
from redraft.tokenizers.base import PAD


class FLDD(Method):
    process: CoupledProcess
    leader: Player
    phase: bool = True
    """Whether draws are relaxed."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.leader = Player(self.process, self.config.leader.optimizer)
        if self.config.train.compile and isinstance(self.process.network, Denoiser):
            self.process.network = compiled(self.process.network)
        self.relaxation = torch.ones((), device=self.denoiser.embeddings.device)  # of this step

    @property
    def players(self) -> list[Player]:
        return [self.player, self.leader]

    def step(self, batch: Batch, progress: float) -> Metrics:
        temperature = self.temperature(progress)
        self.phase = temperature is not None
        self.relaxation.fill_(temperature or 0)
        metrics = self.descend(batch, progress)
        return metrics | {"leader/temperature": temperature or 0.0}

    def objective(self, batch: Batch) -> tuple[Tensor, Tensor]:
        given = self.given(batch.x0)
        counted = batch.x0 != PAD if given is None else (batch.x0 != PAD) & ~given
        S = score = torch.zeros((), device=batch.x0.device)
        for t, weight in draw_times(batch.x0, self.spans, self.random):
            kl, log_u = self.term(batch, t, self.relaxation if self.phase else None, given)
            S = S + weight * kl.where(counted, 0).sum(-1)  # (B,)
            score = score + log_u.where(counted, 0).sum(-1)
        surrogate = token_mean(S + S.detach() * score, batch.x0, batch.tokens)
        return surrogate * batch.weight, token_mean(S, batch.x0, batch.tokens)

    def temperature(self, progress: float) -> float | None:
        """Of the relaxation, falling geometrically; None when the warm-up is over."""
        options = self.config.fldd
        if progress >= options.warmup:
            return None
        start, end = options.temperature
        return start * (end / start) ** (progress / options.warmup)

    def term(
        self,
        batch: Batch,
        t: Tensor,
        temperature: Tensor | None,
        given: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """(B, L) the KL of one step, and the log-probability that carries its score."""
        x0 = batch.x0
        with self.autocast():
            u_s, u_t = self.process.marginal(x0, t - 1), self.process.marginal(x0, t)
            if temperature is None:
                zt = categorical(u_t.detach(), self.random)
                z, log_u = indicator(zt, self.process.V), token_log_prob(u_t, zt)
            else:
                zt = z = relax(u_t, temperature, self.random)
                log_u = torch.zeros_like(t)[:, None].expand_as(x0)
            if given is not None:
                zt = held(zt, x0, given)
            belief = None
            if self.config.denoiser.recall:
                p = self.first_sight(self.process, zt, t, batch.padded, given)
                belief = told(p, len(zt))
            log_p = predict(self.predictor, self.process, zt, t, batch.padded, belief, given)
        return categorical_kl(couple(u_s, u_t, z), linger(z, log_p.exp(), t)), log_u


def held(z: Tensor, x0: Tensor, given: Tensor) -> Tensor:
    """z, relaxed or not, but x_0 where that is given."""
    if z.is_floating_point():
        x0, given = indicator(x0, z.shape[-1]).to(z.dtype), given[..., None]
    return torch.where(given, x0, z)
