"""What all methods share: learning rates, learning itself, and what the denoiser rehearses."""

import copy
import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from games import T, V, gradients, make_method, pattern, same, seeded
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from redraft.batches import Batches, collate
from redraft.config import OptimizerConfig
from redraft.errors import UserError
from redraft.methods import METHODS, entry
from redraft.methods.method import Player, schedule
from redraft.noise.draws import Sliced
from redraft.noise.process import ForwardProcess
from redraft.objective import Draw, exact_bound, predict
from redraft.tokenizers.base import PAD

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


# What is given, to a denoiser that infills


@pytest.mark.parametrize("name", list(METHODS))
@pytest.mark.parametrize("drafts", [False, True])
def test_what_is_given_is_clean_and_costs_nothing(name, drafts):
    method = make_method(name, denoiser={"infills": True}, train={"drafts": drafts})
    batch = replace(method.held_out[0], x0=method.held_out[0].x0.repeat(4, 1))
    poses = method.pose(method.process, batch.x0)
    for draw in method.rehearsed(method.process, batch, poses):
        assert draw.given is not None and draw.given.any() and not draw.given.all()
        assert torch.equal(draw.xt[draw.given], batch.x0[draw.given])
        losses = method.losses(method.process, batch, [draw])
        assert not losses[draw.given].any() and (losses[~draw.given] > 0).any()


@pytest.mark.parametrize("name", list(METHODS))
def test_where_all_is_given_nothing_is_learned(name, monkeypatch):
    """No token of it has a loss, or a likelihood that pays the noise."""
    method = make_method(name, denoiser={"infills": True}, leader={"terminal": 0.0})
    batch = method.held_out[0]
    monkeypatch.setattr(method, "given", lambda x0: torch.ones_like(x0, dtype=torch.bool))
    surrogate, loss = method.objective(batch)
    assert not surrogate.any() and not loss.any()
    surrogate.backward()
    assert not any(gradients(player).any() for player in method.players)


# What the denoiser rehearses


AS_MET: dict[str, Any] = {
    "denoiser": {"recall": True, "infills": True, "evidence": True},
    "train": {"drafts": True},
}


def first_sight(method: Any, draw: Draw) -> Tensor:
    log_p = predict(method.denoiser, method.process, draw.xt, draw.t, given=draw.given)
    return log_p.exp().detach()


@pytest.mark.parametrize("drafts", [False, True])
def test_every_other_row_is_told_what_it_was_believed_to_be(drafts):
    tables: dict[str, Any] = AS_MET | {"train": {"drafts": drafts}}
    method = make_method("d3pm-uniform", **tables)
    batch = method.held_out[0]
    (noised,) = method.pose(method.process, batch.x0)
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
    (noised,) = method.pose(method.process, batch.x0)
    assert noised.given is not None
    state = method.generator.get_state()
    (whole,) = method.rehearsed(method.process, batch, [noised])
    for part, rows in enumerate((slice(0, 2), slice(2, 4))):
        method.generator.set_state(state)
        method.random = Sliced(method.generator, part, 2)
        given = noised.given[rows]
        own = Draw(noised.xt[rows], noised.t[rows], noised.weight, given=given)
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

    def heard(
        process: ForwardProcess, xt: Tensor, t: Tensor, padded: bool, given: Tensor | None
    ) -> Tensor:
        given = None if given is None else given[::2]
        with torch.no_grad():
            return predict(twin, process, xt[::2], t[::2], padded, given=given).exp()

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
