"""VSDD: the noise leads, the denoiser follows (Algorithm 1 of the paper).

    for each block of N steps:
        commit Q_phi, Qbar_phi, built on the denoiser's current embeddings
        N times: theta <- theta - eta grad L^F(theta; Q_phi held fixed)              the follower
        on a held-out batch x_0, with Q_phi rebuilt on the current embeddings:       the leader
            draw t, and x_t from the reference process; L_ref(theta)
            for k = 1..K:
                x^(k) ~ q_phi(x_t | x_0) at the same t
                R_k = (L_ref(theta) - L_ref(theta - gamma grad L^F(theta; x^(k)))) / (gamma |L_ref|)
            R~_k = clip((R_k - mean of the other R) / running deviation, c)
            phi <- phi + eta grad [ (1/K) sum_k R~_k log q_phi(x^(k)|x_0) - lambda_T KL(Qbar_T||U) ]

`credit = "sequence"` gives every sequence of a probe its own reward: to first order R_k is the sum
over sequences of directional derivatives of their losses along g = grad L_ref, all of which come
from two forward passes at theta +- eps g.

L_ref holds theta's reverse step against the reference's. In the paper that step is q_phi's own, so
that the leader also moves the measure by which it is paid; `judge = "reference"` takes the
reference's, which is the same for all phi.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor
from torch.func import functional_call

from redraft.batches import Batch
from redraft.denoiser import Denoiser
from redraft.distributed import sum_all, total, world
from redraft.fusion import fusing
from redraft.methods.leader import kernel_metrics, log_prob, regularisation
from redraft.methods.method import Method, Metrics, Player, State
from redraft.noise.process import ForwardProcess, categorical_kl
from redraft.noise.schedule import alpha_bar, steps
from redraft.noise.semantic import SemanticProcess
from redraft.noise.uniform import UniformProcess
from redraft.objective import (
    Draw,
    Predictor,
    corrupt,
    draw_times,
    predict,
    token_count,
    token_losses,
    token_mean,
)
from redraft.precision import Compensated, tf32
from redraft.tokenizers.base import PAD

Parameters = Mapping[str, Tensor]


class Stackelberg(Method):
    process: SemanticProcess
    leader: Player

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.options = self.config.leader
        self.leader = Player(self.process.scores, self.options.optimizer)
        alpha = steps(alpha_bar(self.config.noise.schedule, self.process.T))
        self.reference = UniformProcess(self.process.V, alpha).to(self.process.Q.device)
        self.variance = RunningVariance(self.options.variance_decay, self.reference.valid.device)
        self.moves = 0

    def step(self, batch: Batch, progress: float) -> Metrics:
        if self.steps_done % self.options.block == 0:
            self.process.commit(self.denoiser.embeddings)
        metrics = self.descend(batch, progress)
        if self.steps_done % self.options.block == 0 and not self.rests(progress):
            (part,) = self.parts(self.held_out[self.moves])
            metrics |= self.lead(part, progress)
        self.note_confusions()
        return metrics

    def state(self) -> State:
        game = {"moves": torch.tensor(self.moves), **self.variance.state()}
        return super().state() | {"game": game}

    def restore(self, state: State) -> None:
        super().restore(state)
        self.moves = int(state["game"]["moves"])
        self.variance.restore(state["game"])

    def leader_moved(self, state: State) -> bool:
        return int(state["game"]["moves"]) > 0

    def rests(self, progress: float) -> bool:
        return not self.options.rest_first <= progress < 1 - self.options.rest_last

    def lead(self, batch: Batch, progress: float) -> Metrics:
        """The leader's move on a held-out batch."""
        self.leader.aim(progress)
        with fusing(self.fuses):
            metrics = self.run(self.play, batch, "leader")
        self.moves += 1
        return dict(metrics)

    def slope(self, noise: ForwardProcess, batch: Batch, probe: list[Draw]) -> Parameters:
        """grad L^F at the denoiser's own weights, in the arithmetic of training."""
        with tf32(self.rough):
            losses = self.losses(noise, batch, probe)
            loss = token_mean(losses, batch.x0, batch.tokens)
            return gradient(loss, dict(self.denoiser.named_parameters()))

    def play(self, batch: Batch) -> dict[str, Tensor]:
        """What of that move happens on the device."""
        noise = self.process.draft(self.denoiser.embeddings)  # differentiable, in phi alone
        times = draw_times(batch.x0, self.spans, self.random)
        draw = partial(corrupt, x0=batch.x0, times=times, generator=self.random)
        fixed = noise.detached()
        game = Game(
            *(self.denoiser, fixed, self.reference, batch, draw(self.reference), self.slope),
            auxiliary=self.config.train.auxiliary,
            judge={"own": fixed, "reference": self.reference}[self.options.judge],
        )
        probes = [draw(noise) for _ in range(self.options.probes)]
        rewards = CREDITS[self.options.credit](game, probes, self.options.gamma)  # (K, 1 or B)
        limit = self.options.clip_reward
        normalised = leave_one_out(rewards) / self.variance.deviation(rewards)
        normalised = normalised.clamp(-limit, limit)
        loss = score_function(noise, batch.x0, probes, normalised, batch.tokens)
        loss = loss + regularisation(noise, self.options) / batch.parts
        self.leader.forget_gradients()
        loss.backward()
        norm = self.leader.move()
        whole = rewards.sum(-1) if rewards.shape[1] == 1 else total(rewards.sum(-1))
        return kernel_metrics(noise) | {
            "leader/reward": whole.mean(),
            "leader/reward_spread": whole.std(),
            "leader/reference_loss": game.before,
            "leader/gradient_norm": norm,
        }


@dataclass
class Game:
    """One position of the game: how good any theta is under the reference noise, on fixed draws.

    The same t, noise and float32 arithmetic before and after a virtual step (common random
    numbers), since the differences are tiny. The denoiser's own weights are never written to.
    """

    denoiser: Denoiser
    noise: ForwardProcess
    """q_phi, held fixed."""
    reference: ForwardProcess
    batch: Batch
    draws: list[Draw]
    """Of the reference."""
    slope: Callable[[ForwardProcess, Batch, list[Draw]], Parameters] | None = None
    """The gradient of L^F at theta, where training computes it in another way."""
    auxiliary: float = 0.0
    """Of the follower's loss."""
    judge: ForwardProcess | None = None
    """The process through whose reverse steps L_ref is measured; q_phi by default."""

    def __post_init__(self):
        self.theta = dict(self.denoiser.named_parameters())

    def predictor(self, theta: Parameters) -> Predictor:
        """The denoiser with theta for its weights."""
        return lambda *inputs: functional_call(self.denoiser, dict(theta), inputs)

    def reference_loss(self, theta: Parameters) -> Tensor:
        """L_ref: KL from the reference's posterior to the reverse step that the judge gives theta.

        The share of it that lies in this process's part of the batch.
        """
        x0, judge = self.batch.x0, self.judge or self.noise
        loss = torch.zeros((), device=x0.device)
        for draw, truth in zip(self.draws, self.truths, strict=True):
            with Compensated() if x0.is_cuda else nullcontext():
                denoiser, padded = self.predictor(theta), self.batch.padded
                log_p = predict(denoiser, self.reference, draw.xt, draw.t, padded)
                model = judge.reverse(draw.xt, log_p.exp(), draw.t)
            loss = loss + draw.weight * categorical_kl(truth, model)
        return token_mean(torch.where(x0 == PAD, 0, loss), x0, self.batch.tokens)

    @cached_property
    def truths(self) -> list[Tensor]:
        """The reference's posteriors, which no theta changes."""
        return [self.reference.posterior(d.xt, self.batch.x0, d.t) for d in self.draws]

    def follower_losses(self, theta: Parameters, probe: list[Draw]) -> Tensor:
        """(B, L) L^F on a probe, the noise held fixed, in full precision at any theta."""
        x0, padded = self.batch.x0, self.batch.padded
        return token_losses(self.predictor(theta), self.noise, x0, probe, padded, self.auxiliary)

    def response(self, probe: list[Draw], gamma: float) -> Parameters:
        """theta after one step of size gamma down the gradient of L^F on a probe."""
        if self.slope is not None:
            return shifted(self.theta, self.slope(self.noise, self.batch, probe), -gamma)
        losses = self.follower_losses(self.theta, probe)
        loss = token_mean(losses, self.batch.x0, self.batch.tokens)
        return shifted(self.theta, gradient(loss, self.theta), -gamma)

    @cached_property
    @torch.no_grad()
    def before(self) -> Tensor:
        """L_ref at the denoiser's own weights, over all processes."""
        return total(self.reference_loss(self.theta))


def gradient(loss: Tensor, theta: Parameters) -> Parameters:
    """The gradient of a loss whose shares are held by all processes."""
    shares = torch.autograd.grad(loss, list(theta.values()), materialize_grads=True)
    return dict(zip(theta, sum_all(shares), strict=True))


@torch.no_grad()
def shifted(theta: Parameters, direction: Parameters, by: float | Tensor) -> Parameters:
    """theta + by * direction, as new tensors."""
    steps = torch._foreach_mul([direction[name] for name in theta], by)
    return dict(zip(theta, torch._foreach_add(list(theta.values()), steps), strict=True))


def batch_credit(game: Game, probes: list[list[Draw]], gamma: float) -> Tensor:
    """(K, 1) the paper's rewards: relative improvement of L_ref after one virtual step."""
    before = game.before
    rewards = []
    for probe in probes:
        response = game.response(probe, gamma)
        with torch.no_grad():
            after = total(game.reference_loss(response))
            rewards.append((before - after) / (gamma * before.abs()))
    return torch.stack(rewards)[:, None]


@torch.no_grad()
def sequence_credit(game: Game, probes: list[list[Draw]], gamma: float) -> Tensor:
    """(K, B) first-order rewards of every sequence, by central differences along grad L_ref.

    They need no step size: gamma plays no part.
    """
    with torch.enable_grad():
        g = gradient(game.reference_loss(game.theta), game.theta)
    eps = 1e-3 * length(game.theta) / length(g)
    ahead, behind = shifted(game.theta, g, eps), shifted(game.theta, g, -eps)
    rewards = []
    for probe in probes:
        change = game.follower_losses(ahead, probe) - game.follower_losses(behind, probe)  # (B, L)
        share = change.sum(-1) / (2 * eps * game.before.abs())
        rewards.append(share / token_count(game.batch.x0, game.batch.tokens))
    return torch.stack(rewards)


def length(theta: Parameters) -> Tensor:
    return torch.stack([p.detach().norm() for p in theta.values()]).norm()


CREDITS: dict[str, Callable[[Game, list[list[Draw]], float], Tensor]] = {
    "batch": batch_credit,
    "sequence": sequence_credit,
}


def leave_one_out(rewards: Tensor) -> Tensor:
    """Rewards (K, ...) less the mean of the other probes' rewards."""
    others = (rewards.sum(0) - rewards) / (len(rewards) - 1)
    return rewards - others


def score_function(
    noise: ForwardProcess,
    x0: Tensor,
    probes: list[list[Draw]],
    rewards: Tensor,
    tokens: Tensor | int | None = None,
) -> Tensor:
    """-(1/K) sum_k R_k log q_phi(x^(k) | x_0) per token, for rewards (K, 1) or (K, B)."""
    log_q = torch.stack([log_prob(noise, x0, probe) for probe in probes])  # (K, B)
    return -token_mean(rewards.detach() * log_q, x0, tokens) / len(probes)


class RunningVariance:
    """Variance of rewards between probes, exponentially forgotten, bias-corrected."""

    def __init__(self, decay: float, device: torch.device | None = None):
        self.decay = decay
        self.total, self.weight = torch.zeros((), device=device), torch.zeros((), device=device)

    def deviation(self, rewards: Tensor, eps: float = 1e-12) -> Tensor:
        """The deviation in earlier blocks (in this one, at the first), which is then updated."""
        now = total(rewards.var(0).mean()) / world().size
        known = torch.where(self.weight > 0, self.total / self.weight, now)
        self.total.lerp_(now.to(self.total.dtype), 1 - self.decay)
        self.weight.lerp_(torch.ones_like(self.weight), 1 - self.decay)
        return (known + eps).sqrt()

    def state(self) -> dict[str, Tensor]:
        return {"variance_total": self.total, "variance_weight": self.weight}

    def restore(self, state: dict[str, Tensor]) -> None:
        self.total.copy_(state["variance_total"])
        self.weight.copy_(state["variance_weight"])
