"""The game: the leader climbs the reward it should, and players move nothing but themselves."""

import copy
import math
from itertools import pairwise, product
from typing import Any

import pytest
import torch
from games import (
    STILL,
    VALID,
    Position,
    T,
    V,
    brute_kl,
    brute_posterior,
    brute_steps,
    flat,
    make_method,
    pattern,
    same,
    seeded,
)
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from redraft.batches import Batch, Batches
from redraft.methods import stackelberg as stackelberg_file
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
from redraft.noise.uniform import UniformProcess
from redraft.objective import Draw, corrupt, token_mean
from redraft.tokenizers.base import EOS

SHAPES = [(2, 1, "joint"), (1, 2, "joint"), (1, 1, "split")]


# The leader's gradient


def taken_on_average(at: Position, probes: list[tuple[list[Draw], Tensor]], rewards: Tensor):
    """The gradient of the leader's surrogate, over all pairs of probes as likely as they are."""
    mean = torch.zeros(())
    for (x, q_x), r_x in zip(probes, rewards, strict=True):
        for (y, q_y), r_y in zip(probes, rewards, strict=True):
            baselined = leave_one_out(torch.stack([r_x, r_y]))
            loss = score_function(at.noise, at.x0, [x, y], baselined)
            mean = mean + (q_x * q_y).detach() * loss
    return flat(torch.autograd.grad(mean, at.phi))


@pytest.mark.parametrize(("B", "L", "estimator"), SHAPES)
def test_the_leader_climbs_the_expected_reward(B, L, estimator):
    """The mean of its surrogate's gradient over all pairs of probes is -grad E_q[sg(R)] / N."""
    at = Position(B, L, estimator)
    probes = at.probes()
    rewards = batch_credit(at.game(), [probe for probe, _ in probes], gamma=0.1)  # (9, 1)
    value = sum(q * r.squeeze() for (_, q), r in zip(probes, rewards, strict=True))
    assert isinstance(value, Tensor)
    exact = flat(torch.autograd.grad(value, at.phi, retain_graph=True))
    taken = taken_on_average(at, probes, rewards)
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
    taken = taken_on_average(at, probes, rewards)
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


# Baselines and variance


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
