"""Confusion noise: what the denoiser takes for what, by noise level."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import tiny
from torch import nn

from redraft.methods.confusion import Confusion
from redraft.noise.confusion import Confusions, Sum, confusions_of
from redraft.noise.schedule import alpha_bar, steps
from redraft.noise.semantic import BilinearScores, SemanticProcess
from redraft.noise.uniform import UniformProcess
from redraft.tokenizers.base import EOS, MASK, PAD
from redraft.trainer import assemble

sizes, times, seeds = st.integers(5, 8), st.integers(2, 6), st.integers(0, 1000)


D = 3
EMBEDDINGS = torch.randn(8, D, generator=torch.Generator().manual_seed(0)).double()


def make(
    V: int, T: int, bins: int = 2, floor: float = 0.2, rising: bool = False, symmetric: bool = False
) -> tuple[SemanticProcess, Confusions]:
    confusions = Confusions(T, V, bins, floor, rising, symmetric)
    return SemanticProcess(confusions, V, D, steps(alpha_bar("linear", T))).double(), confusions


def predictions(B: int, L: int, V: int, rng: np.random.Generator) -> torch.Tensor:
    p = rng.random((B, L, V))
    p[..., :EOS] = 0
    return torch.tensor(p / p.sum(-1, keepdims=True))


@given(V=sizes, T=times, bins=st.integers(1, 7), rising=st.booleans(), symmetric=st.booleans())
def test_before_anything_is_seen_it_is_uniform_noise(V, T, bins, rising, symmetric):
    process, _ = make(V, T, bins, rising=rising, symmetric=symmetric)
    flat = UniformProcess(V, steps(alpha_bar("linear", T)), torch.float64)
    x = torch.arange(V)[None].expand(T, -1)
    t = torch.arange(1, T + 1)
    torch.testing.assert_close(process.rows(x, t), flat.rows(x, t), rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(process.step_columns(x, t), flat.step_columns(x, t))


@given(V=sizes, T=times, bins=st.integers(1, 4), seed=seeds, forget=st.floats(0, 0.95))
def test_confusions_are_means_of_predictions_of_each_token_at_each_level(V, T, bins, seed, forget):
    rng = np.random.default_rng(seed)
    _, confusions = make(V, T, bins)
    B, L = 4, 5
    for _ in range(2):
        before = confusions.counts.clone()
        x0 = torch.tensor(rng.choice([PAD, *range(EOS, V)], size=(B, L)))
        t = torch.tensor(rng.integers(1, T + 1, size=B))
        p = predictions(B, L, V, rng)
        confusions.observe(x0, p, t, forget)
        for level in range(bins):
            for i in range(V):
                of = [
                    p[b, l].numpy()
                    for b in range(B)
                    for l in range(L)
                    if (t[b] - 1) * bins // T == level and x0[b, l] == i
                ]
                expected = before[level, i].numpy()
                if of and i >= EOS:
                    mean = np.mean(of, axis=0)
                    mean[i] = 0  # a token is never replaced by itself
                    expected = forget * expected + (1 - forget) * mean
                np.testing.assert_allclose(confusions.counts[level, i], expected, atol=1e-12)


@given(V=sizes, T=times, seed=seeds, floor=st.floats(0.05, 1), rising=st.booleans())
def test_the_kernel_is_what_was_confused_over_a_floor_of_uniform(V, T, seed, floor, rising):
    """However little was seen of it so far."""
    rng = np.random.default_rng(seed)
    process, confusions = make(V, T, 1, floor, rising)
    p = predictions(3, V, V, rng)
    confusions.observe(torch.arange(V).expand(3, -1), p, torch.full((3,), 1), forget=0.99)
    M = process.draft(EMBEDDINGS[:V]).M
    assert M.shape == (T, V, V)
    for t in range(1, T + 1):
        uniform = floor + (1 - floor) * t / T if rising else floor
        for i in range(EOS, V):
            mean = p[:, i].mean(0)
            mean[i] = 0
            expected = (1 - uniform) * mean / mean.sum()
            expected[EOS:] += uniform / (V - 3)
            expected[i] = 0
            torch.testing.assert_close(M[t - 1, i], expected, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(M.sum(-1), torch.ones(T, V).double(), rtol=1e-6, atol=0)
    for i in (PAD, MASK):
        assert torch.equal(M[:, i], torch.eye(V)[i].double().expand(T, -1))


@given(V=sizes, T=times, seed=seeds)
def test_symmetric_confusion_is_the_geometric_mean_of_both_ways(V, T, seed):
    rng = np.random.default_rng(seed)
    floor = 0.1
    process, confusions = make(V, T, 1, floor, symmetric=True)
    unseen = V - 1  # whose row is taken to be uniform
    x0 = torch.tensor([i for i in range(EOS, V) if i != unseen])[None]
    p = predictions(1, x0.shape[1], V, rng)
    confusions.observe(x0, p, torch.tensor([1]), forget=0.0)
    c = np.zeros((V, V))
    for l, i in enumerate(x0[0]):
        c[i] = p[0, l].numpy() * (np.arange(V) != int(i))
        c[i] /= c[i].sum()
    c[unseen, EOS:unseen] = 1 / (V - 3)
    M = process.draft(EMBEDDINGS[:V]).M
    for i in range(EOS, V):
        both = np.array([math.sqrt(c[i, j] * c[j, i]) for j in range(V)])
        expected = (1 - floor) * both / both.sum()
        expected[EOS:] += floor / (V - 3)
        expected[i] = 0
        np.testing.assert_allclose(M[0, i], expected, rtol=1e-5, atol=1e-9)


def test_it_is_held_until_committed_and_survives_saving():
    process, confusions = make(6, 4)
    rng = np.random.default_rng(0)
    Q = process.Q.clone()
    seen = (torch.tensor([[2, 3, 4, 5]]), predictions(1, 4, 6, rng), torch.tensor([2]))
    confusions.observe(*seen, forget=0.5)
    assert torch.equal(process.Q, Q)
    process.commit(EMBEDDINGS[:6])
    assert not torch.equal(process.Q, Q)
    Q = process.Q.clone()
    confusions.observe(*seen, forget=0.5)
    loaded, remembered = make(6, 4)
    loaded.load_state_dict(process.state_dict())
    torch.testing.assert_close(loaded.Q, Q)
    torch.testing.assert_close(remembered.counts, confusions.counts)


@given(V=sizes, T=times, seed=seeds)
def test_a_leader_may_begin_at_confusions_and_turn_them(V, T, seed):
    """M is what is confused times exp(e A e), normalised: at A = 0 confusion noise itself."""
    rng = np.random.default_rng(seed)
    alone, confusions = make(V, T)
    p, t = predictions(4, V, V, rng), torch.tensor(rng.integers(1, T + 1, size=4))
    confusions.observe(torch.arange(V).expand(4, -1), p, t, forget=0.5)
    bilinear = BilinearScores(T, D, hidden=4)
    both = Sum(bilinear, confusions)
    learned = SemanticProcess(both, V, D, steps(alpha_bar("linear", T))).double()
    e = EMBEDDINGS[:V]
    M = alone.draft(e).M
    torch.testing.assert_close(learned.draft(e).M, M)
    with torch.no_grad():
        bilinear.head.bias.copy_(torch.tensor(rng.normal(size=D * D)))
    turned = M * bilinear(nn.functional.normalize(e, dim=-1)).exp()
    turned[:, :EOS] = M[:, :EOS]  # PAD and MASK stay what they are
    torch.testing.assert_close(learned.draft(e).M, turned / turned.sum(-1, keepdim=True))
    learned.commit(e)
    torch.testing.assert_close(learned.committed_kernel(), learned.draft(e).M)
    assert confusions_of(learned) is confusions


@pytest.mark.parametrize("bound", ["joint", "split"])
def test_blocks_commit_first_and_look_last(bound):
    run = assemble(tiny("d3pm-confusion", bound=bound))
    method = run.method
    assert isinstance(method, Confusion) and method.confusions is not None
    for step in range(11):
        Q, C = method.process.Q.clone(), method.confusions.counts.clone()
        metrics = method.step(run.batches[step], 0.1)
        assert ("leader/entropy_share" in metrics) == (step % 5 == 0)
        if step % 5 != 0 or step == 0:  # at the very start nothing has been seen
            assert torch.equal(Q, method.process.Q)
        else:
            assert not torch.equal(Q, method.process.Q)
        assert torch.equal(C, method.confusions.counts) != (step % 5 == 4)


@pytest.mark.parametrize("method", ["vsdd", "d3pm-reinforce"])
def test_a_leader_that_begins_there_goes_on_looking(method):
    config = tiny(method)
    run = assemble(
        dataclasses.replace(config, noise=dataclasses.replace(config.noise, start="confusion"))
    )
    assert run.method.confusions is not None
    for step in range(6):
        before = run.method.confusions.counts.clone()
        run.method.step(run.batches[step], 0.1)
        assert torch.equal(before, run.method.confusions.counts) != (step % 5 == 4)
