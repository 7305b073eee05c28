"""Draws: as frequent as their weights say, and never a state of weight zero."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from processes import lengths, make, predictions, seeds, sizes
from scipy.stats import chisquare

from redraft.noise import draws
from redraft.noise.draws import categorical, uniform


@given(V=st.integers(2, 9), seed=seeds)
def test_a_state_of_weight_zero_is_never_drawn(V, seed):
    rng = np.random.default_rng(seed)
    weights = rng.random((50, 20, V)) * (rng.random((50, 20, V)) < 0.5)
    weights[..., rng.integers(V)] += 0.1
    drawn = categorical(torch.tensor(weights), torch.Generator().manual_seed(seed))
    assert (np.take_along_axis(weights, drawn.numpy()[..., None], -1) > 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_draws_have_the_frequencies_of_their_weights(dtype, generator):
    weights = np.array([0.0, 3.0, 0.5, 0.0, 1.5, 7.0, 0.0])  # need not sum to one
    N = 20_000
    drawn = categorical(torch.tensor(weights, dtype=dtype).expand(N, 7), generator)
    counts = np.bincount(drawn, minlength=7)
    likely = weights > 0
    assert (counts[~likely] == 0).all()
    expected = weights[likely] / weights.sum() * N
    assert chisquare(counts[likely], expected).pvalue > 1e-4


@pytest.mark.parametrize(
    "weights",
    [
        [0, 0, 1, 1e-9, 1e-12, 0],
        [1e-9, 0, 0.5, 1e-9, 0.5, 1e-9],
        [0.3, 0.3, 1e-9, 0.4],
        [0, 0, 7, 1e-9, 0, 0],
    ],
)
def test_the_tail_is_drawn_by_exact_inversion(weights, monkeypatch):
    """A number u in [0, 1) means the state whose share of the total, laid end to end, holds u."""
    probs = torch.tensor(weights, dtype=torch.float32)
    shares = probs.double().numpy() / math.fsum(probs.tolist())
    edges = np.concatenate([[0], np.cumsum(shares)])
    likely = [state for state, weight in enumerate(weights) if weight > 0]
    numbers = [(edges[state] + edges[state + 1]) / 2 for state in likely]
    numbers += [0.0, 1 - 2.0**-53]
    monkeypatch.setattr(draws, "uniform", lambda *args: torch.tensor(numbers, dtype=torch.float64))
    drawn = categorical(probs.expand(len(numbers), -1))
    assert drawn.tolist() == [*likely, likely[0], likely[-1]]


@given(B=st.integers(1, 5), L=lengths, V=sizes, seed=seeds)
def test_a_row_with_its_own_generator_does_not_depend_on_the_others(B, L, V, seed):
    def own(b: int) -> torch.Generator:
        return torch.Generator().manual_seed(seed + b)

    p = predictions(B, L, V, seed)
    numbers = uniform((B, L), p.device, [own(b) for b in range(B)])
    assert numbers.dtype == torch.float64 and numbers.shape == (B, L)
    together = categorical(p, [own(b) for b in range(B)])
    process, _ = make("learned", V, 3, seed)
    x0, t = together, torch.full((B,), 2)
    noised = process.corrupt(x0, t, [own(b) for b in range(B)])
    for b in range(B):
        assert torch.equal(numbers[b : b + 1], uniform((1, L), p.device, own(b)))
        assert torch.equal(together[b : b + 1], categorical(p[b : b + 1], own(b)))
        alone = process.corrupt(x0[b : b + 1], t[b : b + 1], own(b))
        assert torch.equal(noised[b : b + 1], alone)
