"""Confusion noise: what the denoiser takes for what, by noise level."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import tiny

from redraft.methods.confusion import Confusion
from redraft.noise.confusion import ConfusionProcess
from redraft.noise.schedule import alpha_bar, steps
from redraft.noise.uniform import UniformProcess
from redraft.tokenizers.base import EOS, MASK, PAD
from redraft.trainer import assemble

sizes, times, seeds = st.integers(5, 8), st.integers(2, 6), st.integers(0, 1000)


def make(V: int, T: int, bins: int = 2, floor: float = 0.2) -> ConfusionProcess:
    return ConfusionProcess(V, steps(alpha_bar("linear", T)), bins, floor).double()


def predictions(B: int, L: int, V: int, rng: np.random.Generator) -> torch.Tensor:
    p = rng.random((B, L, V))
    p[..., :EOS] = 0
    return torch.tensor(p / p.sum(-1, keepdims=True))


@given(V=sizes, T=times, bins=st.integers(1, 7))
def test_before_anything_is_seen_it_is_uniform_noise(V, T, bins):
    process = make(V, T, bins)
    flat = UniformProcess(V, steps(alpha_bar("linear", T)), torch.float64)
    x = torch.arange(V)[None].expand(T, -1)
    t = torch.arange(1, T + 1)
    torch.testing.assert_close(process.rows(x, t), flat.rows(x, t), rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(process.step_columns(x, t), flat.step_columns(x, t))


@given(V=sizes, T=times, bins=st.integers(1, 4), seed=seeds, forget=st.floats(0, 0.95))
def test_confusions_are_means_of_predictions_of_each_token_at_each_level(V, T, bins, seed, forget):
    rng = np.random.default_rng(seed)
    process = make(V, T, bins)
    before = process.confused.clone()
    B, L = 4, 5
    x0 = torch.tensor(rng.choice([PAD, *range(EOS, V)], size=(B, L)))
    t = torch.tensor(rng.integers(1, T + 1, size=B))
    p = predictions(B, L, V, rng)
    process.observe(x0, p, t, forget)
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
            np.testing.assert_allclose(process.confused[level, i], expected, atol=1e-12)


@given(V=sizes, T=times, seed=seeds, floor=st.floats(0.05, 1))
def test_the_kernel_is_what_was_confused_over_a_floor_of_uniform(V, T, seed, floor):
    rng = np.random.default_rng(seed)
    process = make(V, T, bins=1, floor=floor)
    p = predictions(3, V, V, rng)
    process.observe(torch.arange(V).expand(3, -1), p, torch.full((3,), 1), forget=0.0)
    M = process.commit().M
    assert M.shape == (T, V, V)
    for i in range(EOS, V):
        mean = p[:, i].mean(0)
        mean[i] = 0
        expected = (1 - floor) * mean / mean.sum()
        expected[EOS:] += floor / (V - 3)
        expected[i] = 0
        torch.testing.assert_close(M[0, i], expected, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(M.sum(-1), torch.ones(T, V).double(), rtol=1e-6, atol=0)
    for i in (PAD, MASK):
        assert torch.equal(M[:, i], torch.eye(V)[i].double().expand(T, -1))


def test_it_is_held_until_committed_and_survives_saving():
    process = make(6, 4)
    rng = np.random.default_rng(0)
    Q = process.Q.clone()
    seen = (torch.tensor([[2, 3, 4, 5]]), predictions(1, 4, 6, rng), torch.tensor([2]))
    process.observe(*seen, forget=0.5)
    assert torch.equal(process.Q, Q)
    process.commit()
    assert not torch.equal(process.Q, Q)
    Q = process.Q.clone()
    process.observe(*seen, forget=0.5)
    loaded = make(6, 4)
    loaded.load_state_dict(process.state_dict())
    torch.testing.assert_close(loaded.Q, Q)
    torch.testing.assert_close(loaded.confused, process.confused)


@pytest.mark.parametrize("bound", ["joint", "split"])
def test_blocks_commit_first_and_look_last(bound):
    run = assemble(tiny("d3pm-confusion", bound=bound))
    method = run.method
    assert isinstance(method, Confusion)
    for step in range(11):
        Q, C = method.process.Q.clone(), method.process.confused.clone()
        metrics = method.step(run.batches[step], 0.1)
        assert ("leader/entropy_share" in metrics) == (step % 5 == 0)
        if step % 5 != 0 or step == 0:  # at the very start nothing has been seen
            assert torch.equal(Q, method.process.Q)
        else:
            assert not torch.equal(Q, method.process.Q)
        assert torch.equal(C, method.process.confused) != (step % 5 == 4)
