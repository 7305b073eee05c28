"""The methods: estimators equal what they estimate, and players move nothing but themselves.

Expectations over noise are enumerated: with three valid states and two tokens there are nine
corruptions, so that the gradient that a method takes on average is known to rounding.
"""

import copy
import logging
import math
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from redraft.batches import Batch, Batches, collate
from redraft.config import Config, LeaderConfig, OptimizerConfig
from redraft.denoiser import Denoiser
from redraft.errors import UserError
from redraft.methods import METHODS, entry
from redraft.methods import stackelberg as stackelberg_file
from redraft.methods.leader import kernel_metrics, regularisation, warn_of_collapse
from redraft.methods.method import Player, schedule
from redraft.methods.stackelberg import (
    CREDITS,
    Game,
    RunningVariance,
    batch_credit,
    gradient,
    leave_one_out,
    score_function,
    sequence_credit,
    shifted,
)
from redraft.noise.committed import Draft
from redraft.noise.draws import Sliced
from redraft.noise.process import ForwardProcess
from redraft.noise.schedule import alpha_bar, steps
from redraft.noise.semantic import SemanticProcess
from redraft.noise.uniform import UniformProcess
from redraft.objective import (
    Draw,
    corrupt,
    draw_times,
    exact_bound,
    predict,
    ranges,
    token_losses,
    token_mean,
)
from redraft.tokenizers.base import EOS, PAD

V, T = 5, 3
VALID = range(EOS, V)
STILL = {"lr": 1e-30, "clip": 0.0, "warmup": 0.0, "decay": "constant"}
"""An optimizer that leaves float64 weights where they are, and their gradients as they came."""


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def jolt(module: nn.Module, scale: float) -> None:
    """Away from the symmetric start, where gradients vanish or agree by accident."""
    with torch.no_grad():
        for p in module.parameters():
            p.add_(scale * torch.randn_like(p))


def make_config(method: str, **tables: Any) -> Config:
    values: dict[str, Any] = {
        "method": method,
        "noise": {"T": T, "hidden": 4},
        "denoiser": {"width": 4, "layers": 1, "heads": 1},
        "train": {"batch": 8},
    }
    for name, table in tables.items():
        values[name] = values.get(name, {}) | table
    return Config.from_dict(values)


def pattern(n: int, seed: int) -> list[np.ndarray]:
    """Sequences that count upwards in a circle from anywhere, of lengths 6 and 8."""
    rng = np.random.default_rng(seed)
    ends = [(int(rng.integers(3)), 6 + 2 * int(rng.integers(2))) for _ in range(n)]
    return [EOS + (start + np.arange(length)) % 3 for start, length in ends]


def make_method(
    name: str, seed: int = 0, dtype: torch.dtype = torch.float64, scale: float = 0.5, **tables: Any
) -> Any:
    torch.manual_seed(seed)
    config = make_config(name, **tables)
    denoiser = Denoiser(config.denoiser, V, config.noise.T, max_length=8).to(dtype)
    process = entry(name).process(config, V, 8)
    if dtype == torch.float64:
        process = process.double()
    jolt(denoiser, scale)
    jolt(process, scale)
    held_out = Batches(pattern(24, seed=1), 6, seed=2)
    return entry(name).method(config, denoiser, process, held_out, seeded(seed))


class Position:
    """A small position of the game: denoiser, drafted noise, one batch, and reference draws."""

    def __init__(self, B: int, L: int, estimator: str = "joint", scale: float = 0.5):
        torch.manual_seed(0)
        config = make_config("vsdd")
        self.denoiser = Denoiser(config.denoiser, V, T, max_length=8).double()
        process = entry("vsdd").process(config, V, 8).double()
        assert isinstance(process, SemanticProcess)
        jolt(self.denoiser, 0.5)
        jolt(process.scores, scale)
        self.phi = list(process.scores.parameters())
        self.noise = process.draft(self.denoiser.embeddings)
        self.x0 = torch.randint(EOS, V, (B, L), generator=seeded(1))
        self.times = draw_times(self.x0, ranges(estimator, T), seeded(2))
        self.alpha = steps(alpha_bar("linear", T))
        self.reference = UniformProcess(V, self.alpha, torch.float64)
        self.draws = corrupt(self.reference, self.x0, self.times, seeded(3))

    def game(
        self, noise: ForwardProcess | None = None, judge: ForwardProcess | None = None
    ) -> Game:
        batch = Batch(self.x0, padded=False, weight=1.0)
        noise = self.noise.detached() if noise is None else noise
        return Game(self.denoiser, noise, self.reference, batch, self.draws, judge=judge)

    def probes(self) -> list[tuple[list[Draw], Tensor]]:
        """Every corruption of the batch at its times, with its probability as a function of phi."""
        Q_bar = brute_products(brute_steps(self.noise.M, self.alpha))
        tokens = self.x0.numel()
        found = []
        for states in product(VALID, repeat=tokens * len(self.times)):
            cut = torch.tensor(states).view(len(self.times), *self.x0.shape)
            probe = [Draw(x, t, w) for x, (t, w) in zip(cut, self.times, strict=True)]
            q = torch.stack([Q_bar[d.t[:, None], self.x0, d.xt].prod() for d in probe]).prod()
            found.append((probe, q))
        return found


def brute_steps(M: Tensor, alpha: Tensor) -> Tensor:
    """(T + 1, V, V) the matrices Q_t; the first is unused."""
    eye = torch.eye(V, dtype=M.dtype)
    return torch.stack([eye, *(a * eye + (1 - a) * m for a, m in zip(alpha, M, strict=True))])


def brute_products(Q: Tensor) -> Tensor:
    """(T + 1, V, V) Qbar_0 = I, Qbar_1, ..."""
    bars = [Q[0]]
    for Q_t in Q[1:]:
        bars.append(bars[-1] @ Q_t)
    return torch.stack(bars)


def brute_posterior(Q: Tensor, t: int, k: int) -> Tensor:
    """(V, V) q(x_{t-1} = j | x_t = k, x_0 = i) as [i, j], zero where i is no valid state."""
    Q_bar = brute_products(Q)
    rows = [Q_bar[t - 1, i] * Q[t, :, k] / Q_bar[t, i, k] for i in VALID]
    return torch.stack([torch.zeros_like(rows[0])] * EOS + rows)


def brute_kl(q: Tensor, p: Tensor) -> Tensor:
    keep = q.detach() > 0
    return (q[keep] * (q[keep] / p[keep]).log()).sum()


def flat(tensors: Any) -> Tensor:
    return torch.cat([t.flatten() for t in tensors])


def gradients(player: Player) -> Tensor:
    """The gradients at hand of all its parameters, as one vector."""
    return flat([torch.zeros_like(p) if p.grad is None else p.grad for p in player.parameters])


SHAPES = [(2, 1, "joint"), (1, 2, "joint"), (1, 1, "split")]


# The leader's gradient


@pytest.mark.parametrize(("B", "L", "estimator"), SHAPES)
def test_the_leader_climbs_the_expected_reward(B, L, estimator):
    """The mean of its surrogate's gradient over all pairs of probes is -grad E_q[sg(R)] / N."""
    at = Position(B, L, estimator)
    probes = at.probes()
    rewards = batch_credit(at.game(), [probe for probe, _ in probes], gamma=0.1)  # (9, 1)
    value = sum(q * r.squeeze() for (_, q), r in zip(probes, rewards, strict=True))
    assert isinstance(value, Tensor)
    exact = flat(torch.autograd.grad(value, at.phi, retain_graph=True))
    mean = torch.zeros(())
    for (x, q_x), r_x in zip(probes, rewards, strict=True):
        for (y, q_y), r_y in zip(probes, rewards, strict=True):
            baselined = leave_one_out(torch.stack([r_x, r_y]))
            loss = score_function(at.noise, at.x0, [x, y], baselined)
            mean = mean + (q_x * q_y).detach() * loss
    taken = flat(torch.autograd.grad(mean, at.phi))
    assert exact.norm() > 1e-4
    torch.testing.assert_close(taken, -exact / at.x0.numel(), rtol=1e-8, atol=1e-12)


def test_drawn_probes_climb_it_too():
    """The same through `corrupt`, with four probes, within the error of a sample."""
    at = Position(B=2, L=1)
    probes = at.probes()
    rewards = batch_credit(at.game(), [probe for probe, _ in probes], gamma=0.1)
    value = sum(q * r.squeeze() for (_, q), r in zip(probes, rewards, strict=True))
    assert isinstance(value, Tensor)
    exact = flat(torch.autograd.grad(value, at.phi, retain_graph=True))

    def key(probe: list[Draw]) -> tuple[int, ...]:
        return tuple(probe[0].xt.flatten().tolist())

    known = {key(probe): r for (probe, _), r in zip(probes, rewards, strict=True)}
    generator = seeded(5)
    taken = []
    for _ in range(1000):
        drawn = [corrupt(at.noise, at.x0, at.times, generator) for _ in range(4)]
        own = torch.stack([known[key(probe)] for probe in drawn])
        loss = score_function(at.noise, at.x0, drawn, leave_one_out(own))
        taken.append(flat(torch.autograd.grad(loss, at.phi, retain_graph=True)))
    sample = torch.stack(taken)
    error = sample.std(0) / len(sample) ** 0.5
    assert bool(((sample.mean(0) + exact / at.x0.numel()).abs() <= 5 * error + 1e-12).all())


def first_order(game: Game, probes: list[list[Draw]]) -> Tensor:
    """(K,) R = <grad L_ref, grad L^F> / |L_ref|, by plain differentiation."""
    reference = game.reference_loss(game.theta)
    g = gradient(reference, game.theta)
    rewards = []
    for probe in probes:
        loss = token_mean(game.follower_losses(game.theta, probe), game.batch.x0)
        slope = gradient(loss, game.theta)
        rewards.append(torch.stack([(g[name] * slope[name]).sum() for name in g]).sum())
    return torch.stack(rewards) / reference.detach().abs()


def relative_error(found: Tensor, truth: Tensor) -> float:
    return float((found - truth).norm() / truth.norm())


@pytest.mark.parametrize(("B", "L", "estimator"), SHAPES)
def test_sequence_credit_climbs_the_first_order_reward(B, L, estimator):
    at = Position(B, L, estimator)
    probes = at.probes()
    true_rewards = first_order(at.game(), [probe for probe, _ in probes])
    value = (torch.stack([q for _, q in probes]) * true_rewards).sum()
    exact = flat(torch.autograd.grad(value, at.phi, retain_graph=True))
    rewards = sequence_credit(at.game(), [probe for probe, _ in probes], gamma=0.1)  # (9, B)
    assert rewards.shape == (len(probes), B)
    mean = torch.zeros(())
    for (x, q_x), r_x in zip(probes, rewards, strict=True):
        for (y, q_y), r_y in zip(probes, rewards, strict=True):
            baselined = leave_one_out(torch.stack([r_x, r_y]))
            loss = score_function(at.noise, at.x0, [x, y], baselined)
            mean = mean + (q_x * q_y).detach() * loss
    taken = flat(torch.autograd.grad(mean, at.phi))
    assert exact.norm() > 1e-4
    assert relative_error(taken, -exact / at.x0.numel()) < 1e-2  # central differences


def test_a_sequence_is_paid_for_its_own_noise_alone():
    at = Position(B=3, L=2)
    ((t, weight),) = at.times
    one, two = torch.full_like(at.x0, EOS), torch.full_like(at.x0, EOS + 1)
    crossed = one.clone()
    crossed[1] = two[1]
    probes = [[Draw(xt, t, weight)] for xt in (one, two, crossed)]
    first, second, mixed = sequence_credit(at.game(), probes, gamma=0.1)
    torch.testing.assert_close(mixed, torch.stack([first[0], second[1], first[2]]))
    assert not torch.isclose(first[1], second[1])


def test_sequence_credit_varies_less_than_batch_credit():
    at = Position(B=8, L=2)
    generator = seeded(5)
    taken: dict[str, list[Tensor]] = {name: [] for name in CREDITS}
    for _ in range(60):
        probes = [corrupt(at.noise, at.x0, at.times, generator) for _ in range(4)]
        for name, credit in CREDITS.items():
            rewards = leave_one_out(credit(at.game(), probes, 1e-2))
            loss = score_function(at.noise, at.x0, probes, rewards)
            taken[name].append(flat(torch.autograd.grad(loss, at.phi, retain_graph=True)))
    variance = {name: torch.stack(found).var(0).sum() for name, found in taken.items()}
    ratio = float(variance["sequence"] / variance["batch"])
    assert ratio < 0.5, f"about 1/B = 0.125 of the variance was expected, got {ratio:.3f}"


@pytest.mark.parametrize("estimator", ["joint", "split"])
def test_sequence_credits_add_up_to_the_batch_reward_of_a_small_step(estimator):
    at = Position(B=4, L=2, estimator=estimator)
    probes = [corrupt(at.noise, at.x0, at.times, seeded(k)) for k in range(3)]
    limit = first_order(at.game(), probes)
    rewards = {g: batch_credit(at.game(), probes, g).squeeze(-1) for g in (1e-2, 1e-3, 1e-4)}
    errors = [relative_error(reward, limit) for reward in rewards.values()]
    for coarse, fine in pairwise(errors):  # ten times smaller for a ten times smaller step
        assert 5 < coarse / fine < 20
    total = sequence_credit(at.game(), probes, gamma=1.0).sum(-1)
    assert relative_error(total, limit) < 5e-3
    assert relative_error(total, rewards[1e-4]) < 5e-3


@pytest.mark.parametrize("credit", CREDITS)
def test_credits_survive_float32(credit):
    """Both are differences of nearly equal losses, and training knows float32 alone."""
    at = Position(B=4, L=2)
    probes = [corrupt(at.noise, at.x0, at.times, seeded(k)) for k in range(3)]
    precise = CREDITS[credit](at.game(), probes, 1e-2)
    rough = Game(
        copy.deepcopy(at.denoiser).float(),
        at.noise.detached().float(),
        UniformProcess(V, at.alpha),
        at.game().batch,
        at.draws,
    )
    found = CREDITS[credit](rough, probes, 1e-2)
    assert found.dtype == torch.float32
    assert relative_error(found.double(), precise) < 1e-2


# Reference loss and virtual steps


@pytest.mark.parametrize("estimator", ["joint", "split"])
def test_without_preferences_the_reference_loss_is_the_followers_loss(estimator):
    """A = 0 is the uniform process: on the same draws both losses are the same number."""
    at = Position(B=4, L=2, estimator=estimator, scale=0.0)
    for p in at.phi[-2:]:  # the head of A_t starts at zero
        assert not p.any()
    game = at.game()
    follower = token_mean(game.follower_losses(game.theta, at.draws), at.x0)
    torch.testing.assert_close(game.before, follower, rtol=1e-12, atol=0)
    exactly = at.game(at.reference)
    follower = token_mean(exactly.follower_losses(exactly.theta, at.draws), at.x0)
    torch.testing.assert_close(exactly.before, follower, rtol=1e-14, atol=0)


@pytest.mark.parametrize("judge", ["own", "reference"])
def test_the_reference_loss_holds_the_model_against_uniform_noise(judge):
    """T KL(q_ref(x_{t-1}|x_t,x_0) || sum_i p_theta(i) q(x_{t-1}|x_t,i)), by brute force.

    q is q_phi, or, to a judge that is not moved by phi, q_ref.
    """
    at = Position(B=4, L=2)
    uniform = (1 - torch.eye(V).double()) / (len(VALID) - 1)
    uniform[:EOS] = uniform[:, :EOS] = 0
    truth = brute_steps(uniform.expand(T, -1, -1), at.alpha)
    model = brute_steps(at.noise.M.detach(), at.alpha) if judge == "own" else truth
    game = at.game(judge=None if judge == "own" else at.reference)
    total = 0.0
    ((t, weight),) = at.times
    p = at.denoiser(at.draws[0].xt, t).softmax(-1).detach()
    for b, l in product(range(4), range(2)):
        s, i, k = int(t[b]), int(at.x0[b, l]), int(at.draws[0].xt[b, l])
        q = brute_posterior(truth, s, k)[i]
        total += weight * float(brute_kl(q, p[b, l] @ brute_posterior(model, s, k)))
    assert weight == T
    assert float(game.before.detach()) == pytest.approx(total / 8, rel=1e-9)


def test_a_virtual_step_changes_the_output_and_not_theta():
    at = Position(B=4, L=2)
    theta = copy.deepcopy(at.denoiser.state_dict())
    game, probe = at.game(), corrupt(at.noise, at.x0, at.times, seeded())
    loss = token_mean(game.follower_losses(game.theta, probe), at.x0)
    response = shifted(game.theta, gradient(loss, game.theta), -0.01)
    after = token_mean(game.follower_losses(response, probe), at.x0)
    assert after < loss  # a step of descent
    assert game.reference_loss(response) != game.before
    assert game.reference_loss(game.theta) == game.before
    assert same(theta, at.denoiser.state_dict())
    assert all(torch.equal(p, theta[name]) for name, p in game.theta.items())


@pytest.mark.parametrize("credit", CREDITS)
def test_the_same_game_gives_the_same_credit_again(credit):
    """Common random numbers: nothing is drawn, so that only the probes tell rewards apart."""
    at = Position(B=2, L=2)
    game, probe = at.game(), corrupt(at.noise, at.x0, at.times, seeded())
    first = CREDITS[credit](game, [probe, probe], 0.1)
    assert torch.equal(first[0], first[1])
    assert torch.equal(CREDITS[credit](game, [probe, probe], 0.1), first)


def snapshot(method: Any) -> Any:
    """All that belongs to the follower, copied."""
    return copy.deepcopy((method.denoiser.state_dict(), method.player.state()))


def same(a: Any, b: Any) -> bool:
    """Bit-for-bit, through dicts, lists and tuples."""
    if isinstance(a, Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


@pytest.mark.parametrize("credit", CREDITS)
def test_credits_draw_nothing_and_touch_nothing(credit):
    method = make_method("vsdd", leader={"block": 2})
    batches = Batches(pattern(16, seed=0), 8, seed=0)
    method.step(batches[0], 0.1)
    noise = method.process.draft(method.denoiser.embeddings)
    batch = method.held_out[0]
    draws, *probes = (method.draw(noise, batch.x0) for _ in range(4))
    game = Game(method.denoiser, noise.detached(), method.reference, batch, draws)
    before = snapshot(method)
    grads = [p.grad.clone() for p in method.denoiser.parameters()]
    states = method.generator.get_state(), torch.get_rng_state()
    CREDITS[credit](game, probes, 0.1)
    assert same(states, (method.generator.get_state(), torch.get_rng_state()))
    assert same(before, snapshot(method))
    assert same(grads, [p.grad for p in method.denoiser.parameters()])


@pytest.mark.parametrize("judge", ["own", "reference"])
def test_the_leader_judges_the_loss_that_the_follower_descends_on(judge, monkeypatch):
    method = make_method("vsdd", train={"auxiliary": 0.7}, leader={"judge": judge})
    seen = []

    def credit(game: Game, probes: list[list[Draw]], gamma: float) -> Tensor:
        seen.append((game, probes[0]))
        return torch.arange(len(probes), dtype=torch.float64)[:, None]

    monkeypatch.setitem(CREDITS, "batch", credit)
    method.lead(method.held_out[0], 0.5)
    ((game, probe),) = seen
    own = method.losses(game.noise, game.batch, probe)
    torch.testing.assert_close(game.follower_losses(game.theta, probe), own)
    assert game.judge is (method.reference if judge == "reference" else game.noise)


@pytest.mark.parametrize("credit", CREDITS)
@pytest.mark.parametrize("bound", ["joint", "split"])
def test_the_leaders_move_leaves_the_follower_bit_for_bit(credit, bound):
    method = make_method("vsdd", leader={"credit": credit}, train={"bound": bound})
    method.step(Batches(pattern(16, seed=0), 8, seed=0)[0], 0.1)
    before, stacks = snapshot(method), method.process.Q.clone()
    grads = [p.grad.clone() for p in method.denoiser.parameters()]
    phi = flat(method.leader.parameters).detach()
    state = torch.get_rng_state()
    method.lead(method.held_out[0], 0.1)
    assert same(before, snapshot(method))
    assert same(grads, [p.grad for p in method.denoiser.parameters()])
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(stacks, method.process.Q)  # committed at the next block's start
    assert not torch.equal(phi, flat(method.leader.parameters))


def test_the_followers_loss_gives_phi_no_gradient():
    method = make_method("vsdd")
    method.process.commit(method.denoiser.embeddings)
    method.descend(Batches(pattern(16, seed=0), 8, seed=0)[0], 0.1)
    assert all(p.grad is None for p in method.process.scores.parameters())
    assert all(p.grad is not None for p in method.denoiser.parameters())


def test_the_leaders_loss_gives_theta_no_gradient():
    method = make_method("vsdd")
    method.lead(method.held_out[0], 0.1)
    assert all(p.grad is None for p in method.denoiser.parameters())
    assert all(p.grad is not None for p in method.process.scores.parameters())


# The game's order


def test_blocks_commit_first_and_lead_last(monkeypatch):
    """Kernels are rebuilt at block starts only, the leader moves after every N steps of its own."""
    played: list[Batch] = []

    class Watched(Game):
        def __init__(self, denoiser, noise, reference, batch, *others, **options):
            played.append(batch)
            super().__init__(denoiser, noise, reference, batch, *others, **options)

    monkeypatch.setattr(stackelberg_file, "Game", Watched)
    N = 3
    method = make_method("vsdd", leader={"block": N, "probes": 2})
    batches = Batches(pattern(16, seed=0), 8, seed=0)
    for step in range(4 * N):
        Q, embeddings = method.process.Q.clone(), method.denoiser.embeddings.detach().clone()
        phi = flat(method.leader.parameters).detach()
        metrics = method.step(batches[step], step / (4 * N))
        starts, ends = step % N == 0, step % N == N - 1
        if starts:
            drafted = method.process.draft(embeddings)
            torch.testing.assert_close(method.process.Q, drafted.Q.detach())
        assert torch.equal(Q, method.process.Q) != starts
        assert torch.equal(phi, flat(method.leader.parameters)) != ends
        assert not torch.equal(embeddings, method.denoiser.embeddings)
        assert ("leader/reward" in metrics) == ends
    assert method.moves == len(played) == 4
    for move, batch in enumerate(played):
        assert torch.equal(batch.x0, method.held_out[move].x0)


def test_the_leader_plays_on_the_noise_of_the_current_embeddings(monkeypatch):
    games: list[Game] = []

    class Watched(Game):
        def __init__(self, *position, **options):
            games.append(self)
            super().__init__(*position, **options)

    corrupted: list[Any] = []

    def watched_corrupt(process, x0, times, generator):
        corrupted.append((process, times))
        return corrupt(process, x0, times, generator)

    monkeypatch.setattr(stackelberg_file, "Game", Watched)
    monkeypatch.setattr(stackelberg_file, "corrupt", watched_corrupt)
    method = make_method("vsdd", leader={"block": 2, "probes": 2, "optimizer": STILL})
    batches = Batches(pattern(16, seed=0), 8, seed=0)
    for step in range(2):
        method.step(batches[step], 0.1)
    drafted = method.process.draft(method.denoiser.embeddings)
    noise: Any = games[0].noise
    torch.testing.assert_close(noise.Q, drafted.Q.detach())
    assert not torch.equal(noise.Q, method.process.Q)
    assert not noise.Q.requires_grad
    (reference, times), *probes = corrupted
    assert reference is method.reference
    assert len(probes) == 2
    for process, same_times in probes:  # all at the times of the reference's draws
        assert torch.equal(process.Q, noise.Q)
        assert same_times is times


@pytest.mark.parametrize(
    ("first", "last", "moving"),
    [
        (0.0, 0.0, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
        (0.3, 0.0, [3, 4, 5, 6, 7, 8, 9]),
        (0.0, 0.5, [0, 1, 2, 3, 4]),
        (0.2, 0.25, [2, 3, 4, 5, 6, 7]),
        (0.5, 0.5, []),
    ],
)
def test_the_leader_rests_at_first_and_at_last(first, last, moving):
    method = make_method(
        "vsdd", leader={"block": 1, "probes": 2, "rest_first": first, "rest_last": last}
    )
    batches = Batches(pattern(16, seed=0), 4, seed=0)
    moved = [i for i in range(10) if "leader/reward" in method.step(batches[i], i / 10)]
    assert moved == moving
    assert method.moves == len(moving)


@pytest.mark.parametrize("credit", CREDITS)
def test_the_leader_tells_what_to_watch(credit):
    method = make_method("vsdd", leader={"block": 1, "credit": credit})
    metrics = method.step(Batches(pattern(16, seed=0), 8, seed=0)[0], 0.1)
    expected = [
        "reward",
        "reward_spread",
        "reference_loss",
        "entropy_mean",
        "entropy_min",
        "largest_transition",
        "terminal_kl",
        "gradient_norm",
    ]
    assert {"loss", "gradient_norm"} <= metrics.keys()
    for name in expected:
        assert math.isfinite(float(metrics[f"leader/{name}"])), name
    assert 0 < metrics["leader/entropy_min"] <= metrics["leader/entropy_mean"] <= math.log(2)


# D3PM-Reinforce and FLDD: the gradient of the expected bound


def every_draw(bound: str, x0: Tensor) -> list[tuple[list[tuple[Tensor, int]], float]]:
    """All times that an estimator may draw for a batch of one, with their probabilities."""
    spans = ranges(bound, T)
    choices = [range(low, high + 1) for low, high in spans]
    sizes = [high - low + 1 for low, high in spans]
    chance = 1 / math.prod(sizes)
    return [
        ([(torch.tensor([t]), n) for t, n in zip(times, sizes, strict=True)], chance)
        for times in product(*choices)
    ]


def every_state(n: int, L: int) -> list[Tensor]:
    """All n-tuples of corrupted sequences, (n, 1, L) each."""
    return [torch.tensor(s).view(n, 1, L) for s in product(VALID, repeat=n * L)]


@pytest.mark.parametrize("bound", ["joint", "split"])
def test_reinforce_descends_the_expected_bound(bound, monkeypatch):
    """Enumerated over times and noise, at a batch weight other than one."""
    method = make_method(
        "d3pm-reinforce",
        train={"bound": bound},
        optimizer=STILL,
        leader={"terminal": 0.7, "optimizer": STILL},
    )
    x0 = torch.tensor([[3]])
    batch = Batch(x0, padded=False, weight=1.5)
    i = int(x0)
    noise = method.process.draft(method.denoiser.embeddings)
    Q = brute_steps(noise.M, method.process.alpha)
    Q_bar = brute_products(Q)

    value = torch.zeros(())
    for t in range(1, T + 1):
        for k in VALID:
            p = method.denoiser(torch.tensor([[k]]), torch.tensor([t])).softmax(-1)[0, 0]
            posterior = brute_posterior(Q, t, k)
            value = value + Q_bar[t, i, k] * brute_kl(posterior[i], p @ posterior)
    end = Q_bar[T, EOS:, EOS:]
    terminal = (end * (end * len(VALID)).log()).sum(-1).mean()
    both = method.player.parameters + method.leader.parameters
    exact = flat(torch.autograd.grad(1.5 * value + 0.7 * terminal, both))

    mean = torch.zeros_like(exact)
    for times, chance in every_draw(bound, x0):
        for xs in every_state(len(times), L=1):
            draws = [Draw(x, t, n) for x, (t, n) in zip(xs, times, strict=True)]
            q = math.prod(float(Q_bar[d.t, i, d.xt].detach()) for d in draws)
            monkeypatch.setattr(method, "draw", lambda process, x0, draws=draws: draws)
            method.step(batch, 0.5)
            mean += chance * q * flat([gradients(method.player), gradients(method.leader)])
            plain = token_mean(token_losses(method.denoiser, method.process, x0, draws), x0)
            theta = flat(torch.autograd.grad(1.5 * plain, method.player.parameters))
            torch.testing.assert_close(gradients(method.player), theta)
    torch.testing.assert_close(mean, exact, rtol=1e-7, atol=1e-10)


def brute_marginal(method: Any, x0: Tensor, t: int) -> Tensor:
    """u_t(x_0), (L, V)."""
    f = method.process.network(x0, torch.tensor([t])).softmax(-1)[0]
    r = t / T
    clean = nn.functional.one_hot(x0[0], V).double()
    flat_noise = torch.tensor([0, 0, 1, 1, 1]).double() / 3
    return (1 - r) ** 2 * clean + 2 * r * (1 - r) * f + r**2 * flat_noise


def brute_coupling(u_s: Tensor, u_t: Tensor, k: int) -> Tensor:
    """Where maximum coupling takes z_t = k, (V,)."""
    stay = torch.minimum(u_s[k], u_t[k]) / u_t[k]
    gain = (u_s - u_t).clamp_min(0)
    here = nn.functional.one_hot(torch.tensor(k), V)
    return stay * here + (1 - stay) * gain / gain.sum()


@pytest.mark.parametrize("bound", ["joint", "split"])
def test_fldd_descends_the_expected_bound(bound, monkeypatch):
    """After the warm-up, enumerated over times and noise, for both networks at once."""
    L = 2 if bound == "joint" else 1
    method = make_method(
        "fldd", train={"bound": bound}, optimizer=STILL, leader={"optimizer": STILL}
    )
    x0 = torch.tensor([[3, 2][:L]])
    batch = Batch(x0, padded=False, weight=1.5)

    value = torch.zeros(())
    for t in range(1, T + 1):
        u_s, u_t = brute_marginal(method, x0, t - 1), brute_marginal(method, x0, t)
        for (z,) in every_state(1, L):
            p = method.denoiser(z, torch.tensor([t])).softmax(-1)[0]
            kept = ((t - 1) / t) ** 2
            v = kept * torch.eye(V)[z[0]] + (1 - kept) * p
            chance = torch.stack([u_t[l, z[0, l]] for l in range(L)]).prod()
            for l in range(L):
                q = brute_coupling(u_s[l], u_t[l], int(z[0, l]))
                value = value + chance * brute_kl(q, v[l])
    both = method.player.parameters + method.leader.parameters
    exact = flat(torch.autograd.grad(1.5 * value / L, both, allow_unused=True))

    mean = torch.zeros_like(exact)
    for times, chance in every_draw(bound, x0):
        for zs in every_state(len(times), L):
            q = 1.0
            for z, (t, _) in zip(zs, times, strict=True):
                u = brute_marginal(method, x0, int(t)).detach()
                q *= math.prod(float(u[l, z[0, l]]) for l in range(L))
            left = iter(zs)
            monkeypatch.setattr("redraft.methods.fldd.draw_times", lambda *_, times=times: times)
            monkeypatch.setattr("redraft.methods.fldd.categorical", lambda *_, z=left: next(z))
            method.step(batch, 0.9)
            mean += chance * q * flat([gradients(method.player), gradients(method.leader)])
    torch.testing.assert_close(mean, exact, rtol=1e-5, atol=1e-7)


def test_fldd_marginals_are_as_precise_as_their_network():
    method = make_method("fldd")
    x0 = torch.tensor([[3, 2]])
    for t in range(T + 1):
        u = method.process.marginal(x0, torch.tensor([t]))[0]
        torch.testing.assert_close(u, brute_marginal(method, x0, t), rtol=1e-12, atol=1e-12)


def test_the_relaxation_cools_geometrically_and_ends():
    method = make_method("fldd", fldd={"warmup": 0.4})
    assert method.temperature(0.0) == 1.0
    assert method.temperature(0.2) == pytest.approx(1e-3**0.5)
    assert method.temperature(0.4 - 1e-12) == pytest.approx(1e-3)
    assert method.temperature(0.4) is None
    assert method.temperature(0.99) is None
    grid = [method.temperature(p) for p in np.linspace(0, 0.399, 9)]
    ratios = [b / a for a, b in pairwise(grid)]
    assert ratios == pytest.approx([ratios[0]] * 8)
    assert ratios[0] < 1


def test_without_warm_up_nothing_is_relaxed():
    assert make_method("fldd", fldd={"warmup": 0.0}).temperature(0.0) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("progress", [0.0, 0.3 - 1e-12])
@pytest.mark.parametrize("bound", ["joint", "split"])
def test_the_relaxed_loss_is_finite_at_both_ends(progress, dtype, bound):
    method = make_method(
        "fldd", dtype=dtype, train={"bound": bound}, optimizer=STILL, leader={"optimizer": STILL}
    )
    x0 = torch.randint(EOS, V, (4 * T, 6), generator=seeded())
    x0[::2, 4:] = PAD
    metrics = method.step(Batch(x0, padded=True, weight=1.0), progress)
    assert math.isfinite(metrics["loss"])
    for player in (method.player, method.leader):
        assert bool(gradients(player).isfinite().all())
        assert bool(gradients(player).any())


# Baselines, variance, restraints


@given(st.integers(2, 9), st.integers(1, 5), st.integers(0, 10))
def test_leave_one_out_is_the_deviation_from_the_others(K, B, seed):
    rewards = torch.randn(K, B, generator=seeded(seed), dtype=torch.float64)
    left = leave_one_out(rewards)
    for k in range(K):
        others = torch.cat([rewards[:k], rewards[k + 1 :]])
        torch.testing.assert_close(left[k], rewards[k] - others.mean(0))
    torch.testing.assert_close(left.mean(0), torch.zeros(B).double(), rtol=0, atol=1e-12)
    torch.testing.assert_close(left, leave_one_out(rewards + 7.0))


@given(st.integers(1, 8), st.floats(0.0, 0.99), st.integers(2, 4), st.integers(1, 3))
def test_the_running_deviation_is_a_weighted_average_of_earlier_blocks(n, decay, K, B):
    rewards = torch.randn(n + 1, K, B, generator=seeded(n), dtype=torch.float64)
    running = RunningVariance(decay)
    told = [running.deviation(block, eps=0.0) for block in rewards]
    seen = rewards.var(1).mean(-1)  # (n + 1,)
    torch.testing.assert_close(told[0], seen[0].sqrt())
    for now in range(1, n + 1):
        weights = torch.tensor([decay ** (now - 1 - i) for i in range(now)]).double()
        expected = (weights * seen[:now]).sum() / weights.sum()
        torch.testing.assert_close(told[now], expected.sqrt(), rtol=1e-5, atol=0)


def test_equal_rewards_leave_the_leader_no_direction():
    rewards = torch.full((4, 1), 0.3)
    normalised = leave_one_out(rewards) / RunningVariance(0.9).deviation(rewards)
    torch.testing.assert_close(normalised, torch.zeros(4, 1))


def sharp_noise(scale: float) -> tuple[Draft, list[nn.Parameter], Any]:
    torch.manual_seed(1)
    process: Any = entry("vsdd").process(make_config("vsdd"), V, 8).double()
    jolt(process.scores, scale)
    embeddings = torch.randn(V, 4, dtype=torch.float64)
    phi = list(process.scores.parameters())
    return process.draft(embeddings), phi, lambda: process.draft(embeddings)


def test_the_entropy_floor_pushes_entropies_up():
    noise, phi, redraft = sharp_noise(2.0)
    options = LeaderConfig(terminal=0.0, entropy_floor=0.9)
    floor = 0.9 * math.log(2)
    below = noise.row_entropies() < floor
    assert bool(below.any())
    loss = regularisation(noise, options)
    missing = (0.9 - noise.row_entropies() / math.log(2)).clamp_min(0)
    torch.testing.assert_close(loss, options.entropy_weight * missing.mean())
    with torch.no_grad():
        for p, g in zip(phi, torch.autograd.grad(loss, phi), strict=True):
            p.sub_(1e-4 * g)
    assert redraft().row_entropies()[below].mean() > noise.row_entropies()[below].mean()


def test_the_entropy_floor_is_silent_above():
    noise, phi, _ = sharp_noise(0.1)
    options = LeaderConfig(terminal=0.0, entropy_floor=0.5)
    assert bool((noise.row_entropies() > 0.5 * math.log(2)).all())
    loss = regularisation(noise, options)
    assert loss == 0
    assert not flat(torch.autograd.grad(loss, phi)).any()


def test_the_terminal_term_is_weighted_and_zero_for_uniform_ends():
    noise, _, _ = sharp_noise(2.0)
    one, two = (regularisation(noise, LeaderConfig(terminal=w)) for w in (1.0, 2.0))
    assert one > 0
    torch.testing.assert_close(two, 2 * one)
    torch.testing.assert_close(one, noise.terminal_kl())


def test_a_collapsed_kernel_is_told(caplog):
    M = torch.eye(V).double()
    M[EOS:, EOS:] = torch.eye(V - EOS).double().roll(1, 0)  # every token has one successor
    collapsed = Draft(M.expand(T, -1, -1), steps(alpha_bar("linear", T)))
    with caplog.at_level(logging.WARNING, "redraft"):
        metrics = {name: float(value) for name, value in kernel_metrics(collapsed).items()}
        warn_of_collapse(metrics)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "collapsed" in caplog.text
    assert metrics["leader/entropy_mean"] == 0
    assert metrics["leader/largest_transition"] == 1


def test_a_healthy_kernel_is_not(caplog):
    noise, _, _ = sharp_noise(0.1)
    with caplog.at_level(logging.WARNING, "redraft"):
        metrics = kernel_metrics(noise)
        warn_of_collapse({name: float(value) for name, value in metrics.items()})
    assert not caplog.records
    assert metrics["leader/entropy_mean"] > 0.9 * math.log(2)
    assert not any(isinstance(m, Tensor) and m.requires_grad for m in metrics.values())


# Learning rates


@given(st.floats(0.01, 0.9), st.sampled_from(["cosine", "linear", "constant"]))
def test_the_learning_rate_rises_to_its_peak_and_falls(warmup, decay):
    config = OptimizerConfig(warmup=warmup, decay=decay)
    rising = [schedule(config, warmup * f) for f in (0, 0.25, 0.5, 0.75, 1 - 1e-9)]
    assert all(0 < a < b for a, b in pairwise(rising))
    assert rising[2] == pytest.approx(0.5)
    assert schedule(config, warmup) == pytest.approx(1)
    falling = [schedule(config, warmup + (1 - warmup) * f) for f in (0, 0.25, 0.5, 0.75, 1)]
    expected = {
        "constant": [1, 1, 1, 1, 1],
        "linear": [1, 0.75, 0.5, 0.25, 0],
        "cosine": [(1 + math.cos(math.pi * f)) / 2 for f in (0, 0.25, 0.5, 0.75, 1)],
    }[decay]
    assert falling == pytest.approx(expected, abs=1e-9)


def test_a_player_moves_at_the_scheduled_rate_and_clips():
    """Adam's first step is the learning rate in every coordinate, whatever the gradient."""
    weights = nn.Parameter(torch.zeros(4, dtype=torch.float64))
    config = OptimizerConfig(lr=0.1, warmup=0.0, decay="linear", clip=1.0)
    player = Player(nn.ParameterList([weights]), config)
    weights.grad = torch.tensor([3.0, -4.0, 0.0, 12.0]).double()
    player.aim(progress=0.25)
    norm = player.move()
    assert norm == pytest.approx(13.0)
    assert weights.grad.norm() == pytest.approx(1.0)
    torch.testing.assert_close(weights.detach(), -0.075 * weights.grad.sign())


def test_no_clipping_at_zero():
    weights = nn.Parameter(torch.zeros(2))
    weights.grad = torch.tensor([300.0, 400.0])
    player = Player(nn.ParameterList([weights]), OptimizerConfig(clip=0.0))
    assert player.move() == pytest.approx(500.0)
    assert weights.grad.tolist() == [300.0, 400.0]


# Every method learns, the same every time


def learn(name: str, bound: str, seed: int = 0) -> tuple[Any, float, float]:
    """A method after 40 steps, with the exact bound per token before and after."""
    method = make_method(
        name,
        seed,
        dtype=torch.float32,
        scale=0.0,
        noise={"T": 4, "hidden": 8},
        denoiser={"width": 16, "layers": 1, "heads": 2},
        optimizer={"lr": 1e-2},
        train={"bound": bound},
        leader={"block": 10, "probes": 2, "optimizer": {"lr": 1e-3}},
    )
    batches = Batches(pattern(64, seed=0), 16, seed=0)
    x0 = collate(pattern(64, seed=0))

    def measure() -> float:
        bound = exact_bound(method.denoiser, method.process, x0, seeded(9)).sum()
        return float(bound / (x0 != PAD).sum())

    before = measure()
    for step in range(40):
        method.step(batches[step], step / 40)
    return method, before, measure()


@pytest.mark.parametrize("bound", ["joint", "split"])
@pytest.mark.parametrize("name", METHODS)
def test_every_method_learns_and_repeats_itself(name, bound):
    method, before, after = learn(name, bound)
    assert after < 0.95 * before
    again, _, _ = learn(name, bound)
    assert same(method.denoiser.state_dict(), again.denoiser.state_dict())
    assert same(method.process.state_dict(), again.process.state_dict())
    assert torch.equal(method.generator.get_state(), again.generator.get_state())


def test_an_unknown_method_is_told_with_the_nearest():
    with pytest.raises(UserError, match="unknown method 'vsd'; did you mean 'vsdd'"):
        entry("vsd")
    with pytest.raises(UserError, match="Accepted: mdlm, d3pm-uniform"):
        entry("xyz")


# What the denoiser rehearses


AS_MET: dict[str, Any] = {
    "denoiser": {"recall": True, "evidence": True},
    "train": {"drafts": True},
}


def first_sight(method: Any, draw: Draw) -> Tensor:
    return predict(method.denoiser, method.process, draw.xt, draw.t).exp().detach()


@pytest.mark.parametrize("drafts", [False, True])
def test_every_other_row_is_told_what_it_was_believed_to_be(drafts):
    tables: dict[str, Any] = AS_MET | {"train": {"drafts": drafts}}
    method = make_method("d3pm-uniform", **tables)
    batch = method.held_out[0]
    (noised,) = method.draw(method.process, batch.x0)
    (draw,) = method.rehearsed(method.process, batch, [noised])
    assert draw.belief is not None and not draw.belief.requires_grad
    torch.testing.assert_close(draw.belief[::2], first_sight(method, noised)[::2])
    assert not draw.belief[1::2].any()
    assert torch.equal(draw.xt[1::2], noised.xt[1::2])
    assert torch.equal(draw.t[1::2], noised.t[1::2])
    assert torch.equal(draw.xt, noised.xt) or drafts


@pytest.mark.parametrize("name", ["d3pm-uniform", "mdlm", "vsdd"])
def test_drafts_are_one_reverse_step_further(name):
    """By the frequency of what is drawn, many times, from the same noise."""
    method, n = make_method(name, train={"drafts": True}), 20_000
    batch = method.held_out[0]
    (noised,) = method.draw(method.process, batch.x0)
    late = int(noised.t[::2].argmax()) * 2
    xt, t = noised.xt[late : late + 1], noised.t[late : late + 1]
    assert t > 1
    many = Draw(xt.expand(2 * n, -1).clone(), t.expand(2 * n).clone(), noised.weight)
    (draw,) = method.rehearsed(method.process, batch, [many])
    assert (draw.t[::2] == t - 1).all()
    p = predict(method.denoiser, method.process, xt, t).exp()
    expected = method.process.reverse(xt, p, t)[0].detach()
    found = torch.nn.functional.one_hot(draw.xt[::2], V).double().mean(0)
    assert (found - expected).abs().max() < 4 * (0.25 / n) ** 0.5
    assert (found[expected == 0] == 0).all()


def test_at_the_last_step_there_is_no_draft_to_go_on_with():
    method = make_method("d3pm-uniform", train={"drafts": True})
    x0 = method.held_out[0].x0
    draw = Draw(x0, torch.ones(len(x0), dtype=torch.long), T)
    (found,) = method.rehearsed(method.process, method.held_out[0], [draw])
    assert torch.equal(found.xt, draw.xt) and torch.equal(found.t, draw.t)


def test_parts_of_a_batch_rehearse_as_the_whole_does():
    method = make_method("d3pm-uniform", **AS_MET)
    batch = replace(method.held_out[0], x0=method.held_out[0].x0[:4])
    (noised,) = method.draw(method.process, batch.x0)
    state = method.generator.get_state()
    (whole,) = method.rehearsed(method.process, batch, [noised])
    for part, rows in enumerate((slice(0, 2), slice(2, 4))):
        method.generator.set_state(state)
        method.random = Sliced(method.generator, part, 2)
        own = Draw(noised.xt[rows], noised.t[rows], noised.weight)
        (found,) = method.rehearsed(method.process, batch, [own])
        assert torch.equal(found.xt, whole.xt[rows]) and torch.equal(found.t, whole.t[rows])
        torch.testing.assert_close(found.belief, whole.belief[rows])


@pytest.mark.parametrize("name", list(METHODS))
def test_the_gradient_takes_the_rehearsal_as_given(name, monkeypatch):
    """As if another denoiser of the same weights had spoken."""
    method = make_method(name, **AS_MET)
    batch, twin = method.held_out[0], copy.deepcopy(method.denoiser)
    state = method.generator.get_state()
    method.objective(batch)[0].backward()
    found = gradients(method.player)

    def heard(process: ForwardProcess, xt: Tensor, t: Tensor, padded: bool) -> Tensor:
        with torch.no_grad():
            return predict(twin, process, xt[::2], t[::2], padded).exp()

    monkeypatch.setattr(method, "first_sight", heard)
    method.generator.set_state(state)
    method.player.forget_gradients()
    method.objective(batch)[0].backward()
    assert found.abs().max() > 0
    torch.testing.assert_close(found, gradients(method.player))


@pytest.mark.parametrize("credit", ["batch", "sequence"])
def test_the_game_is_played_without_recall(credit):
    """Rewards are those of a denoiser that has none."""
    options: dict[str, Any] = {"leader": {"credit": credit}}
    plain, recalling = (
        make_method("vsdd", **options, denoiser={"recall": recall}) for recall in (False, True)
    )
    recalling.denoiser.load_state_dict(plain.denoiser.state_dict(), strict=False)
    recalling.process.load_state_dict(plain.process.state_dict())
    nn.init.zeros_(recalling.denoiser.recall.weight)
    rewards = []
    for method in (plain, recalling):
        (batch,) = method.parts(method.held_out[0])
        method.generator.manual_seed(0)
        rewards.append(method.lead(batch, 0.0))
    torch.testing.assert_close(*rewards)
