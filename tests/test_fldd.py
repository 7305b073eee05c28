"""FLDD: its gradient, averaged over all noise, and the relaxed draws that it warms up with."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from games import (
    STILL,
    T,
    V,
    brute_kl,
    every_draw,
    every_state,
    flat,
    gradients,
    make_method,
    seeded,
)
from torch import Tensor, nn

from redraft.batches import Batch
from redraft.tokenizers.base import EOS, PAD

# The gradient of the expected bound


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


# The warm-up


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
