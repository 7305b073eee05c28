"""Muon: every direction of a matrix moves as far, and all else is Adam's."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from redraft.config import DenoiserConfig, OptimizerConfig
from redraft.denoiser import Denoiser, inner_matrices
from redraft.methods.method import Player
from redraft.optimizers import Muon, optimizers, orthogonal

sides, seeds = st.integers(1, 12), st.integers(0, 1000)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.tensor(np.random.default_rng(seed).standard_normal(shape))


@given(n=st.integers(1, 3), rows=sides, columns=sides, seed=seeds, scale=st.floats(-6, 6))
def test_directions_stay_and_their_sizes_become_one(n, rows, columns, seed, scale):
    """Singular vectors are kept; values within a factor of 20 of the largest come near 1."""
    G = drawn(n, rows, columns, seed=seed)
    U, S, Vh = torch.linalg.svd(G, full_matrices=False)
    S = S.clamp_min(S[:, :1] / 20)
    G = 10**scale * U @ torch.diag_embed(S) @ Vh
    inside = U.mT @ orthogonal(G) @ Vh.mT  # diagonal, if the vectors are kept
    sizes = inside.diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(inside, torch.diag_embed(sizes), atol=1e-9, rtol=0)
    assert 0.8 < sizes.min() <= sizes.max() < 1.2


def by_svd(W: Tensor, g: Tensor, m: Tensor, lr: float, momentum: float) -> tuple[Tensor, Tensor]:
    m = momentum * m + (1 - momentum) * g
    U, _, Vh = torch.linalg.svd((1 - momentum) * g + momentum * m, full_matrices=False)
    return W - lr * 0.2 * max(W.shape) ** 0.5 * U @ Vh, m


@given(rows=st.integers(2, 8), columns=st.integers(2, 8), seed=seeds)
def test_steps_follow_the_equation(rows, columns, seed):
    W = nn.Parameter(drawn(rows, columns, seed=seed))
    muon = Muon([W], lr=0.1, momentum=0.7)
    expected, m = W.detach().clone(), torch.zeros(rows, columns).double()
    parts = 3 if rows == 3 * columns else 1
    for step in range(3):
        W.grad = drawn(rows, columns, seed=seed + step + 1)
        pieces = (x.chunk(parts) for x in (expected, W.grad, m))
        moved = [by_svd(w, g, of, 0.1, 0.7) for w, g, of in zip(*pieces, strict=True)]
        expected, m = (torch.cat(x) for x in zip(*moved, strict=True))
        muon.step()
        size = 0.1 * 0.2 * (max(rows // parts, columns) * min(rows // parts, columns)) ** 0.5
        off = (W.detach() - expected).norm() / parts**0.5
        assert off < 0.35 * size  # as near as the polynomials come
        expected = W.detach().clone()  # go on from where it is
    torch.testing.assert_close(muon.state[W]["exp_avg"], m)


def test_weights_decay_beside_the_step():
    W = nn.Parameter(torch.ones(2, 2).double())
    W.grad = torch.zeros(2, 2).double()
    Muon([W], lr=0.1, weight_decay=0.5).step()
    torch.testing.assert_close(W.detach(), torch.full((2, 2), 0.95).double())


@pytest.mark.parametrize("kind", ["adam", "muon"])
def test_matrices_decay_and_gains_and_biases_do_not(kind):
    denoiser = Denoiser(DenoiserConfig(width=8, layers=2, heads=2), V=7, T=4, max_length=5)
    config = OptimizerConfig(kind=kind, lr=0.1, weight_decay=0.5)
    before = [p.detach().clone() for p in denoiser.parameters()]
    for p in denoiser.parameters():
        p.grad = torch.zeros_like(p)
    for own in optimizers(denoiser.parameters(), inner_matrices(denoiser), config):
        own.step()
    for old, p in zip(before, denoiser.parameters(), strict=True):
        torch.testing.assert_close(p.detach(), old * (0.95 if p.ndim == 2 else 1))


@pytest.mark.parametrize("kind", ["adam", "muon"])
def test_matrices_inside_layers_are_muons_and_all_else_is_adams(kind):
    shape = DenoiserConfig(width=8, layers=2, heads=2)
    denoiser = Denoiser(shape, V=7, T=4, max_length=5)
    inner = inner_matrices(denoiser)
    assert len(inner) == 2 * 4
    found = optimizers(denoiser.parameters(), inner, OptimizerConfig(kind=kind))
    held = [p for own in found for group in own.param_groups for p in group["params"]]
    assert sorted(map(id, held)) == sorted(map(id, denoiser.parameters()))
    if kind == "adam":
        assert len(found) == 1
        return
    _, muon = found
    assert [id(p) for p in muon.param_groups[0]["params"]] == [id(p) for p in inner]
    embeddings = {id(denoiser.embed.weight), id(denoiser.head.weight)}
    assert embeddings.isdisjoint(map(id, inner))


def test_both_follow_the_schedule():
    denoiser = Denoiser(DenoiserConfig(width=8, layers=1, heads=2), V=7, T=4, max_length=5)
    config = OptimizerConfig(kind="muon", lr=0.5, warmup=0.0, decay="linear")
    player = Player(denoiser, config)
    player.aim(0.75)
    rates = [[group["lr"] for group in own.param_groups] for own in player.optimizers]
    assert rates == [pytest.approx([0.125, 0.125]), pytest.approx([0.125])]
