"""Coupled marginals, FLDD's process: no matrices, but marginals and how neighbours are joined."""

import math

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from processes import (
    Table,
    close,
    lengths,
    marginals,
    predictions,
    seeds,
    sizes,
    times,
    valid_states,
)
from scipy.stats import chisquare
from torch import Tensor

from redraft.noise import coupled
from redraft.noise.coupled import CoupledProcess, couple, relax, token_log_prob
from redraft.tokenizers.base import MASK, PAD


def marginal_by_hand(process: CoupledProcess, x0: Tensor, t: int) -> np.ndarray:
    V, r = process.V, t / process.T
    logits = process.network(x0, torch.full_like(x0[:, 0], t)).numpy()
    u = np.zeros((*x0.shape, V))
    for b, l in np.ndindex(*x0.shape):
        f = np.exp(logits[b, l])
        u[b, l] = 2 * r * (1 - r) * f / f.sum()
        u[b, l, valid_states(V)] += r**2 / (V - 2)
        u[b, l, x0[b, l]] += (1 - r) ** 2
    return u


def couple_by_hand(u_s: np.ndarray, u_t: np.ndarray, k: int) -> np.ndarray:
    stay = min(u_s[k], u_t[k]) / u_t[k]
    gain = np.array([max(0.0, a - b) for a, b in zip(u_s, u_t, strict=True)])
    moved = gain / gain.sum() if gain.sum() > 0 else gain
    return stay * np.eye(len(u_s))[k] + (1 - stay) * moved


@given(V=sizes, L=lengths, T=times, seed=seeds)
def test_coupled_marginals(V, L, T, seed):
    process = marginals(V, T, seed)
    x0 = torch.tensor(np.random.default_rng(seed).integers(MASK + 1, V, size=(3, L)))
    for t in range(T + 1):
        u = process.marginal(x0, torch.full((3,), t))
        close(u, marginal_by_hand(process, x0, t))
        close(u.sum(-1), 1)
    start, end = (process.marginal(x0, torch.full((3,), t)) for t in (0, T))
    assert torch.equal(start, torch.eye(V, dtype=torch.float64)[x0])
    close(end[..., MASK + 1 :], 1 / (V - 2))
    assert not end[..., : MASK + 1].any()
    assert not process.prior_kl(x0).any()


@given(V=sizes, L=lengths, T=times, seed=seeds)
def test_the_coupling_joins_its_marginals_and_stays_as_often_as_can_be(V, L, T, seed):
    process = marginals(V, T, seed)
    rng = np.random.default_rng(seed)
    x0 = torch.tensor(rng.integers(MASK + 1, V, size=(1, L)))
    for t in range(1, T + 1):
        at = torch.tensor([t])
        u_s, u_t = process.marginal(x0, at - 1), process.marginal(x0, at)
        joint = np.zeros((L, V, V))  # of z_t = k and z_s = j
        for k in valid_states(V):
            zt = torch.full((1, L), k)
            posterior = process.posterior(zt, x0, at)
            expected = [couple_by_hand(u_s[0, l].numpy(), u_t[0, l].numpy(), k) for l in range(L)]
            close(posterior[0], expected, atol=1e-11)
            assert (posterior >= 0).all()
            close(posterior.sum(-1), 1)
            onehot = torch.eye(V, dtype=torch.float64)[zt]
            assert torch.equal(couple(u_s, u_t, onehot), posterior)
            joint[:, k] = u_t[0, :, k, None] * posterior[0]
        close(joint.sum(1), u_s[0])
        staying = np.einsum("lkk->l", joint)
        close(staying, torch.minimum(u_s, u_t)[0].sum(-1))


@given(V=sizes, seed=seeds)
def test_the_relaxed_coupling_is_linear_in_z(V, seed):
    u_s, u_t, z = (predictions(2, 3, V, seed + n) for n in range(3))
    mixed = couple(u_s, u_t, z).numpy()
    close(mixed.sum(-1), 1)
    for b, l in np.ndindex(2, 3):
        s, t = u_s[b, l].numpy(), u_t[b, l].numpy()
        expected = sum(z[b, l, k].item() * couple_by_hand(s, t, k) for k in valid_states(V))
        close(mixed[b, l], expected)


@given(V=sizes, seed=seeds, temperature=st.sampled_from([1e-3, 0.1, 1.0, 10.0]))
def test_relaxed_draws_lie_on_the_simplex(V, seed, temperature):
    u = predictions(4, 3, V, seed)
    z = relax(u, temperature, torch.Generator().manual_seed(seed))
    assert (z >= 0).all() and z.isfinite().all()
    close(z.sum(-1), 1)


def test_cold_relaxed_draws_are_draws(generator):
    V, N = 6, 5000
    u = predictions(1, 1, V, seed=4).expand(N, 1, V)
    z = relax(u, 1e-3, generator)
    assert (z.max(-1).values > 0.99).double().mean() > 0.95
    counts = np.bincount(z.argmax(-1).flatten(), minlength=V)
    assert counts[PAD] == counts[MASK] == 0
    expected = u[0, 0, MASK + 1 :].numpy() * N
    assert chisquare(counts[MASK + 1 :], expected).pvalue > 1e-4


def test_the_largest_number_that_can_be_drawn_relaxes_to_no_state_of_weight_zero(monkeypatch):
    u = torch.tensor([[[0, 0, 0.5, 0.3, 0.2]]])  # float32, as in training
    numbers = torch.tensor([[[1 - 2.0**-53, 0.5, 0.5, 0.5, 0.5]]], dtype=torch.float64)
    monkeypatch.setattr(coupled, "uniform", lambda *args: numbers)
    z = relax(u, 1.0)
    assert z[..., PAD].item() < 1e-6


@given(V=sizes, L=lengths, T=times, seed=seeds)
def test_coupled_draws_have_a_likelihood(V, L, T, seed):
    process = marginals(V, T, seed)
    x0 = torch.tensor(np.random.default_rng(seed).integers(MASK + 1, V, size=(T, L)))
    t = torch.arange(1, T + 1)
    zt = process.corrupt(x0, t, torch.Generator().manual_seed(seed))
    u = process.marginal(x0, t)
    expected = [[math.log(u[b, l, zt[b, l]]) for l in range(L)] for b in range(T)]
    close(process.log_prob(zt, x0, t), expected)
    close(token_log_prob(u, zt), expected)


@given(V=sizes, L=lengths, T=times, seed=seeds)
def test_coupled_tokens_stay_or_go_where_the_denoiser_says(V, L, T, seed):
    process = marginals(V, T, seed)
    zt = torch.tensor(np.random.default_rng(seed).integers(MASK + 1, V, size=(T, L)))
    t, p = torch.arange(1, T + 1), predictions(T, L, V, seed)
    v = process.reverse(zt, p, t)
    for b, l in np.ndindex(T, L):
        kept = (b / (b + 1)) ** 2
        expected = (1 - kept) * p[b, l]
        expected[zt[b, l]] += kept
        close(v[b, l], expected)
    assert torch.equal(v[0], p[0])  # at t = 1 the denoiser alone decides


@given(V=sizes, L=lengths, T=times, seed=seeds)
def test_no_coupled_token_leaves_more_readily_than_the_reverse_step_can(V, L, T, seed):
    """If its network does not look at t: the true v is (s/t)^2 onehot, and what some p adds."""
    table = Table(V, T, seed)
    table.own[:] = table.own[0]
    process = CoupledProcess(table, V, T).double()
    x0 = torch.tensor(np.random.default_rng(seed).integers(MASK + 1, V, size=(T, L)))
    t = torch.arange(1, T + 1)
    for k in valid_states(V):
        zt = torch.full_like(x0, k)
        rest = process.posterior(zt, x0, t) - process.reverse(zt, torch.zeros(T, L, V), t)
        assert rest.min() > -1e-12
