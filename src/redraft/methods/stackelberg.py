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
"""

from collections.abc import Callable
from functools import cached_property, partial

import torch
from torch import Tensor
from torch.func import functional_call

from redraft.batches import Batch
from redraft.denoiser import Denoiser
from redraft.distributed import sum_all, total, world
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
    token_losses,
    token_mean,
)
from redraft.tokenizers.base import PAD

Parameters = dict[str, Tensor]


class Stackelberg(Method):
    process: SemanticProcess
    leader: Player

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.options = self.config.leader
        self.leader = Player(self.process.scores.parameters(), self.options.optimizer)
        alpha = steps(alpha_bar(self.config.noise.schedule, self.process.T))
        self.reference = UniformProcess(self.process.V, alpha).to(self.process.Q.device)
        self.variance = RunningVariance(self.options.variance_decay)
        self.moves = 0

    def step(self, batch: Batch, progress: float) -> Metrics:
        if self.steps_done % self.options.block == 0:
            self.process.commit(self.denoiser.embeddings)
        metrics = self.descend(batch, [self.player], progress)
        if self.steps_done % self.options.block == 0 and not self.rests(progress):
            (part,) = self.parts(self.held_out[self.moves])
            metrics |= self.lead(part, progress)
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
        noise = self.process.draft(self.denoiser.embeddings)  # differentiable, in phi alone
        times = draw_times(batch.x0, self.spans, self.random)
        draw = partial(corrupt, x0=batch.x0, times=times, generator=self.random)
        game = Game(self.denoiser, noise.detached(), self.reference, batch, draw(self.reference))
        probes = [draw(noise) for _ in range(self.options.probes)]
        rewards = CREDITS[self.options.credit](game, probes, self.options.gamma)  # (K, 1 or B)
        limit = self.options.clip_reward
        normalised = leave_one_out(rewards) / self.variance.deviation(rewards)
        normalised = normalised.clamp(-limit, limit)
        loss = score_function(noise, batch.x0, probes, normalised, batch.tokens)
        loss = loss + regularisation(noise, self.options) / batch.parts
        self.leader.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = self.leader.move(progress)
        self.moves += 1
        whole = rewards.sum(-1) if rewards.shape[1] == 1 else total(rewards.sum(-1))
        return kernel_metrics(noise) | {
            "leader/reward": whole.mean(),
            "leader/reward_spread": whole.std(),
            "leader/reference_loss": game.before,
            "leader/gradient_norm": norm,
        }


class Game:
    """One position of the game: how good any theta is under the reference noise, on fixed draws.

    The same t, noise and float32 arithmetic before and after a virtual step (common random
    numbers), since the differences are tiny. The denoiser's own weights are never written to.
    """

    def __init__(
        self,
        denoiser: Denoiser,
        noise: ForwardProcess,
        reference: ForwardProcess,
        batch: Batch,
        draws: list[Draw],
    ):
        self.denoiser, self.noise, self.reference = denoiser, noise, reference
        self.batch, self.draws = batch, draws
        self.theta = {n: p.detach().requires_grad_() for n, p in denoiser.named_parameters()}

    def predictor(self, theta: Parameters) -> Predictor:
        """The denoiser with theta for its weights."""
        return lambda *inputs: functional_call(self.denoiser, theta, inputs)

    def reference_loss(self, theta: Parameters) -> Tensor:
        """L_ref: KL from the reference's posterior to the reverse step that q_phi gives theta.

        The share of it that lies in this process's part of the batch.
        """
        x0, loss = self.batch.x0, torch.zeros((), device=self.batch.x0.device)
        for draw in self.draws:
            log_p = predict(self.predictor(theta), draw.xt, draw.t, self.batch.padded)
            truth = self.reference.posterior(draw.xt, x0, draw.t)
            model = self.noise.reverse(draw.xt, log_p.exp(), draw.t)
            loss = loss + draw.weight * categorical_kl(truth, model)
        return token_mean(torch.where(x0 == PAD, 0, loss), x0, self.batch.tokens)

    def follower_losses(self, theta: Parameters, probe: list[Draw]) -> Tensor:
        """(B, L) L^F on a probe, the noise held fixed."""
        return token_losses(
            self.predictor(theta), self.noise, self.batch.x0, probe, self.batch.padded
        )

    @cached_property
    @torch.no_grad()
    def before(self) -> Tensor:
        """L_ref at the denoiser's own weights, over all processes."""
        return total(self.reference_loss(self.theta))


def gradient(loss: Tensor, theta: Parameters) -> Parameters:
    """The gradient of a loss whose shares are held by all processes."""
    shares = torch.autograd.grad(loss, list(theta.values()))
    return dict(zip(theta, sum_all(shares), strict=True))


def shifted(theta: Parameters, direction: Parameters, by: float | Tensor) -> Parameters:
    """theta + by * direction, as new tensors."""
    return {name: p.detach() + by * direction[name] for name, p in theta.items()}


def batch_credit(game: Game, probes: list[list[Draw]], gamma: float) -> Tensor:
    """(K, 1) the paper's rewards: relative improvement of L_ref after one virtual step."""
    before = game.before
    rewards = []
    for probe in probes:
        losses = game.follower_losses(game.theta, probe)
        loss = token_mean(losses, game.batch.x0, game.batch.tokens)
        response = shifted(game.theta, gradient(loss, game.theta), -gamma)
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
    tokens = game.batch.tokens or (game.batch.x0 != PAD).sum()
    rewards = []
    for probe in probes:
        change = game.follower_losses(ahead, probe) - game.follower_losses(behind, probe)  # (B, L)
        rewards.append(change.sum(-1) / (2 * eps * tokens * game.before.abs()))
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
    tokens: int | None = None,
) -> Tensor:
    """-(1/K) sum_k R_k log q_phi(x^(k) | x_0) per token, for rewards (K, 1) or (K, B)."""
    log_q = torch.stack([log_prob(noise, x0, probe) for probe in probes])  # (K, B)
    return -token_mean(rewards.detach() * log_q, x0, tokens) / len(probes)


class RunningVariance:
    """Variance of rewards between probes, exponentially forgotten, bias-corrected."""

    def __init__(self, decay: float):
        self.decay = decay
        self.total = self.weight = torch.zeros(())

    def deviation(self, rewards: Tensor, eps: float = 1e-12) -> Tensor:
        """The deviation in earlier blocks (in this one, at the first), which is then updated."""
        now = total(rewards.var(0).mean()) / world().size
        known = self.total / self.weight if self.weight > 0 else now
        self.total = self.decay * self.total.to(now.device) + (1 - self.decay) * now
        self.weight = self.decay * self.weight + (1 - self.decay)
        return (known + eps).sqrt()

    def state(self) -> dict[str, Tensor]:
        return {"variance_total": self.total, "variance_weight": self.weight}

    def restore(self, state: dict[str, Tensor]) -> None:
        self.total, self.weight = state["variance_total"], state["variance_weight"]
