"""The restraints of a learned kernel: its entropy floor, its uniform end, a word on collapse."""

import logging
import math
from typing import Any

import pytest
import torch
from games import T, V, flat, jolt, make_config, make_method
from torch import Tensor, nn

from redraft.config import LeaderConfig
from redraft.methods import entry
from redraft.methods.leader import kernel_metrics, regularisation, warn_of_collapse
from redraft.noise.committed import Draft
from redraft.noise.schedule import alpha_bar, steps
from redraft.tokenizers.base import EOS


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
        assert warn_of_collapse(metrics)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "collapsed" in caplog.text
    assert metrics["leader/entropy_mean"] == 0
    assert metrics["leader/largest_transition"] == 1


@pytest.mark.parametrize("name", ["vsdd", "d3pm-reinforce", "d3pm-confusion"])
def test_a_run_tells_it_once(caplog, name):
    method = make_method(name)
    with caplog.at_level(logging.WARNING, "redraft"):
        for share in (0.9, 0.2, 0.1):
            method.notice({"leader/entropy_share": share})
        method.notice({"loss": 1.0})
    (record,) = caplog.records
    assert "20 %" in record.getMessage()


def test_a_healthy_kernel_is_not(caplog):
    noise, _, _ = sharp_noise(0.1)
    with caplog.at_level(logging.WARNING, "redraft"):
        metrics = kernel_metrics(noise)
        assert not warn_of_collapse({name: float(value) for name, value in metrics.items()})
    assert not caplog.records
    assert metrics["leader/entropy_mean"] > 0.9 * math.log(2)
    assert not any(isinstance(m, Tensor) and m.requires_grad for m in metrics.values())
