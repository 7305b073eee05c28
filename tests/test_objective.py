"""Laws of the bound and of the denoiser that it trains, against enumeration of whole chains.

A model of 3 valid states, 3 steps and sequences of 1 or 2 tokens is small enough to sum over
everything that may happen: `Model` does so with plain arrays and loops, from the definitions.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import chisquare
from torch import Tensor, nn

from redraft.config import DenoiserConfig
from redraft.denoiser import Denoiser
from redraft.noise.absorbing import AbsorbingProcess
from redraft.noise.coupled import CoupledProcess
from redraft.noise.draws import Sliced
from redraft.noise.markov import SubstitutionProcess
from redraft.noise.process import ForwardProcess
from redraft.noise.schedule import alpha_bar, steps
from redraft.noise.semantic import BilinearScores, SemanticProcess
from redraft.noise.uniform import UniformProcess
from redraft.objective import (
    Draw,
    corrupt,
    draw_times,
    exact_bound,
    parts_given,
    predict,
    ranges,
    stratified,
    token_losses,
    token_mean,
)
from redraft.tokenizers.base import MASK, PAD

V, T, D = 5, 3, 4
VALID = range(MASK + 1, V)
CPU = torch.device("cpu")
seeds = st.integers(0, 10_000)
kinds = pytest.mark.parametrize("kind", ["uniform", "semantic", "absorbing", "coupled"])
lengths = pytest.mark.parametrize("L", [1, 2])

Sequence = tuple[int, ...]


class Table:
    """A denoiser whose answer is known: each position's logits, by t and the whole sequence."""

    def __init__(self, L: int, seed: int):
        rng = np.random.default_rng(seed)
        self.logits = rng.normal(size=(T + 1, V**L, L, V))
        self.logits[..., : MASK + 1] = -np.inf

    def __call__(self, x: Tensor, t: Tensor, *_: Any) -> Tensor:
        code = sum(x[:, l] * V**l for l in range(x.shape[1]))
        return torch.tensor(self.logits)[t, code]

    def by_hand(self, x: Sequence, t: int) -> np.ndarray:
        """(L, V) probabilities."""
        weights = np.exp(self.logits[t, sum(state * V**l for l, state in enumerate(x))])
        return weights / weights.sum(-1, keepdims=True)


class Model:
    """A process, a denoiser, and what they are by hand."""

    def __init__(self, kind: str, L: int, seed: int):
        self.kind, self.L = kind, L
        self.denoiser = Table(L, seed)
        self.marginals = Table(L, seed + 1)  # the network of coupled noise
        bar = alpha_bar("linear", T)
        self.process: ForwardProcess
        M = (1 - np.eye(V)) / (V - 3)
        kernels = [M] * T
        if kind == "uniform":
            self.process = UniformProcess(V, steps(bar), torch.float64)
        elif kind == "absorbing":
            self.process = AbsorbingProcess(V, bar, torch.float64)
        elif kind == "coupled":
            self.process = CoupledProcess(self.marginals, V, T)
        else:
            self.process, kernels = semantic(seed, bar)
        self.Q = [self.step(kernels[t - 1], bar[t].item() / bar[t - 1].item()) for t in (1, 2, 3)]
        self.Q_bar = [np.eye(V)]
        for Q in self.Q:
            self.Q_bar.append(self.Q_bar[-1] @ Q)

    def step(self, M: np.ndarray, alpha: float) -> np.ndarray:
        Q = np.eye(V)
        for i in VALID:
            Q[i] = alpha * np.eye(V)[i]
            if self.kind == "absorbing":
                Q[i, MASK] = 1 - alpha
            else:
                Q[i, MASK + 1 :] += (1 - alpha) * M[i, MASK + 1 :]
        return Q

    def states(self) -> list[Sequence]:
        """Every x_t there may be."""
        tokens = [MASK, *VALID] if self.kind == "absorbing" else VALID
        return list(itertools.product(tokens, repeat=self.L))

    def forward(self, x0: Sequence, t: int) -> np.ndarray:
        """q(x_t | x_0) of each token, (L, V)."""
        if self.kind != "coupled":
            return np.stack([self.Q_bar[t][i] for i in x0])
        r = t / T
        flat = np.array([0, 0, 1, 1, 1]) / 3
        clean = np.eye(V)[list(x0)]
        f = self.marginals.by_hand(x0, t)
        return (1 - r) ** 2 * clean + 2 * r * (1 - r) * f + r**2 * flat

    def posterior(self, x0: Sequence, xt: Sequence, t: int) -> np.ndarray:
        """q(x_{t-1} | x_t, x_0) of each token, (L, V)."""
        if self.kind == "coupled":
            rows = []
            for u_s, u_t, k in zip(self.forward(x0, t - 1), self.forward(x0, t), xt, strict=True):
                stay = min(u_s[k], u_t[k]) / u_t[k]
                gain = np.maximum(u_s - u_t, 0)
                rows.append(stay * np.eye(V)[k] + (1 - stay) * gain / gain.sum())
            return np.stack(rows)
        return np.stack([self.bayes(i, k, t) for i, k in zip(x0, xt, strict=True)])

    def bayes(self, i: int, k: int, t: int) -> np.ndarray:
        return self.Q_bar[t - 1][i] * self.Q[t - 1][:, k] / self.Q_bar[t][i, k]

    def reverse(self, xt: Sequence, t: int) -> np.ndarray:
        """p(x_{t-1} | x_t) of each token, (L, V)."""
        p = self.denoiser.by_hand(xt, t)
        if self.kind == "coupled":
            kept = ((t - 1) / t) ** 2
            return kept * np.eye(V)[list(xt)] + (1 - kept) * p
        rows = []
        for k, row in zip(xt, p, strict=True):
            if self.kind == "absorbing" and k != MASK:
                rows.append(np.eye(V)[k])  # carried over
            else:
                rows.append(sum(row[i] * self.bayes(i, k, t) for i in VALID))
        return np.stack(rows)

    def prior(self) -> np.ndarray:
        return np.eye(V)[MASK] if self.kind == "absorbing" else np.array([0, 0, 1, 1, 1]) / 3

    def corruptions(self, x0: Sequence, t: int) -> Iterator[tuple[Sequence, float]]:
        """Every x_t with its probability."""
        q = self.forward(x0, t)
        for xt in self.states():
            chance = math.prod(q[l, k] for l, k in enumerate(xt))
            if chance > 0:
                yield xt, chance

    def step_terms(self, x0: Sequence, t: int) -> np.ndarray:
        """(L,) the expected divergence of step t."""
        total = np.zeros(self.L)
        for xt, chance in self.corruptions(x0, t):
            total += chance * kl(self.posterior(x0, xt, t), self.reverse(xt, t))
        return total

    def bound(self, x0: Sequence) -> float:
        prior = kl(self.forward(x0, T), np.stack([self.prior()] * self.L))
        return float(sum(self.step_terms(x0, t).sum() for t in range(1, T + 1)) + prior.sum())

    def likelihood(self, held: dict[int, int] | None = None) -> dict[Sequence, float]:
        """p(x_0) of every sequence, by the reverse chain over all states.

        Where states are held, at some positions, it is p(the rest | these).
        """
        held = held or {}

        def fixed(p: np.ndarray) -> np.ndarray:
            return np.stack([np.eye(V)[held[l]] if l in held else row for l, row in enumerate(p)])

        start = fixed(np.stack([self.prior()] * self.L))
        chance: dict[Sequence, float] = {
            x: math.prod(start[l, k] for l, k in enumerate(x)) for x in self.states()
        }
        for t in range(T, 0, -1):
            before = dict.fromkeys(chance, 0.0)
            for xt, mass in chance.items():
                p = fixed(self.reverse(xt, t))
                for xs in before:
                    before[xs] += mass * math.prod(p[l, j] for l, j in enumerate(xs))
            chance = before
        return chance


def semantic(seed: int, bar: Tensor) -> tuple[SemanticProcess, list[np.ndarray]]:
    """A learned kernel with weights as training would leave them, and its matrices M by hand."""
    generator = torch.Generator().manual_seed(seed)
    scores = BilinearScores(T, D, hidden=6)
    with torch.no_grad():
        for weight in scores.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator))
    process = SemanticProcess(scores, V, D, steps(bar)).double()
    embeddings = torch.randn(V, D, generator=generator, dtype=torch.float64)
    process.commit(embeddings)
    e = embeddings / embeddings.square().sum(-1, keepdim=True).sqrt()
    kernels = []
    for s in scores(e).detach().numpy():
        M = np.exp(s) * (1 - np.eye(V))
        M[:, : MASK + 1] = 0
        kernels.append(M / M.sum(-1, keepdims=True))
    return process, kernels


def kl(q: np.ndarray, p: np.ndarray) -> np.ndarray:
    """(L,) divergences of rows, 0 log 0 = 0."""
    rows = zip(q, p, strict=True)
    return np.array(
        [sum(a * math.log(a / b) for a, b in zip(*row, strict=True) if a > 0) for row in rows]
    )


def clean(L: int) -> list[Sequence]:
    return list(itertools.product(VALID, repeat=L))[:: 2 * L - 1]  # all 3, or 3 of the 9


# Estimators.


@kinds
@lengths
def test_the_joint_estimator_is_the_bound_in_expectation(kind, L):
    model = Model(kind, L, seed=L)
    for x0 in clean(L):
        outcomes = [
            (t, xt, chance / T) for t in range(1, T + 1) for xt, chance in model.corruptions(x0, t)
        ]
        t = torch.tensor([t for t, _, _ in outcomes])
        xt = torch.tensor([xt for _, xt, _ in outcomes])
        chances = torch.tensor([chance for _, _, chance in outcomes], dtype=torch.float64)
        x0s = torch.tensor([x0]).expand_as(xt)
        losses = token_losses(model.denoiser, model.process, x0s, [Draw(xt, t, T)])
        assert losses.dtype == torch.float64
        expected = sum(model.step_terms(x0, t) for t in range(1, T + 1))
        assert_allclose(chances.sum(), 1)
        assert_allclose(chances @ losses, expected, rtol=1e-9)


@kinds
@lengths
def test_the_split_estimator_is_the_bound_in_expectation(kind, L):
    model = Model(kind, L, seed=10 + L)
    for x0 in clean(L):
        outcomes = [
            (t, xt, x1, chance * first / (T - 1))
            for t in range(2, T + 1)
            for xt, chance in model.corruptions(x0, t)
            for x1, first in model.corruptions(x0, 1)
        ]
        t = torch.tensor([t for t, *_ in outcomes])
        xt, x1 = (torch.tensor([outcome[n] for outcome in outcomes]) for n in (1, 2))
        chances = torch.tensor([chance for *_, chance in outcomes], dtype=torch.float64)
        x0s = torch.tensor([x0]).expand_as(xt)
        draws = [Draw(xt, t, T - 1), Draw(x1, torch.ones_like(t), 1)]
        losses = token_losses(model.denoiser, model.process, x0s, draws)
        expected = sum(model.step_terms(x0, t) for t in range(1, T + 1))
        assert_allclose(chances.sum(), 1)
        assert_allclose(chances @ losses, expected, rtol=1e-9)


@pytest.mark.parametrize("estimator", ["joint", "split"])
@kinds
def test_estimates_from_drawn_times_average_to_the_bound(kind, estimator, generator):
    model = Model(kind, 2, seed=4)
    x0 = torch.tensor([[2, 4]]).expand(4000, 2)
    times = draw_times(x0, ranges(estimator, T), generator)
    draws = corrupt(model.process, x0, times, generator)
    losses = token_losses(model.denoiser, model.process, x0, draws).sum(-1)
    expected = sum(model.step_terms((2, 4), t).sum() for t in range(1, T + 1))
    assert abs(losses.mean() - expected) < 4 * losses.std() / len(losses) ** 0.5


@kinds
def test_the_exact_bound_averages_to_the_bound(kind, generator):
    model = Model(kind, 2, seed=3)
    x0 = torch.tensor([[2, 3]]).expand(4000, 2)
    bounds = exact_bound(model.denoiser, model.process, x0, generator)
    assert bounds.shape == (4000,) and bounds.dtype == torch.float64
    error = 4 * bounds.std() / len(bounds) ** 0.5
    assert abs(bounds.mean() - model.bound((2, 3))) < error
    assert error < 0.2


@kinds
def test_the_exact_bound_does_not_depend_on_how_sequences_are_batched(kind):
    model = Model(kind, 2, seed=3)
    x0 = torch.tensor(clean(2))

    def generators() -> list[torch.Generator]:
        return [torch.Generator().manual_seed(b) for b in range(len(x0))]

    together = exact_bound(model.denoiser, model.process, x0, generators())
    alone = [
        exact_bound(model.denoiser, model.process, x0[b : b + 1], [own])
        for b, own in enumerate(generators())
    ]
    assert_allclose(together, torch.cat(alone), rtol=1e-12)


@kinds
@lengths
@pytest.mark.parametrize("seed", [0, 1])
def test_the_bound_is_above_the_negative_log_likelihood(kind, L, seed):
    model = Model(kind, L, seed)
    likelihood = model.likelihood()
    assert_allclose(sum(likelihood.values()), 1)
    for x0 in clean(L):
        gap = model.bound(x0) + math.log(likelihood[x0])
        assert gap > 0
        assert gap > 1e-3 or kind == "absorbing"  # a single mask has but one way back


def bound_of_the_rest(model: Model, x0: tuple[int, int], place: int) -> float:
    """Given one of two tokens, in expectation over all corruptions."""
    given_part = torch.arange(2) == place
    bound = model.process.prior_kl(torch.tensor([x0])).detach()[0, 1 - place].item()
    for t in range(1, T + 1):
        outcomes = list(model.corruptions(x0, t))
        xt, x0s = torch.tensor([xt for xt, _ in outcomes]), torch.tensor([x0] * len(outcomes))
        draw = Draw(xt, torch.full((len(xt),), t), 1).giving(x0s, given_part.expand_as(xt))
        losses = token_losses(model.denoiser, model.process, x0s, [draw]).detach()
        assert (losses[:, place] == 0).all() and (draw.xt[:, place] == x0[place]).all()
        bound += float(torch.tensor([chance for _, chance in outcomes]).double() @ losses.sum(-1))
    return bound


@kinds
@pytest.mark.parametrize("place", [0, 1])
@given(seed=seeds)
def test_where_a_part_is_given_the_bound_is_on_the_rest(kind, place, seed):
    """Above -log p of what infilling draws there."""
    model = Model(kind, 2, seed)
    x0 = clean(2)[seed % 3]
    likelihood = model.likelihood({place: x0[place]})
    assert_allclose(sum(likelihood.values()), 1)
    assert bound_of_the_rest(model, x0, place) > -math.log(likelihood[x0]) - 1e-9


@kinds
@pytest.mark.parametrize("place", [0, 1])
def test_the_exact_bound_on_the_rest_averages_to_it(kind, place, generator):
    model = Model(kind, 2, seed=3)
    x0 = torch.tensor([[2, 3]]).expand(4000, 2)
    given_part = (torch.arange(2) == place).expand_as(x0)
    bounds = exact_bound(model.denoiser, model.process, x0, generator, given_part)
    error = 4 * bounds.std() / len(bounds) ** 0.5
    assert abs(bounds.mean() - bound_of_the_rest(model, (2, 3), place)) < error < 0.2


def test_a_single_mask_makes_the_bound_tight():
    """L=1, and a denoiser that gives the same answer at every t: all paths agree."""
    model = Model("absorbing", 1, seed=0)
    model.denoiser.logits[:] = model.denoiser.logits[1]
    likelihood = model.likelihood()
    for x0 in clean(1):
        assert_allclose(model.bound(x0), -math.log(likelihood[x0]))


@given(seed=seeds)
def test_masked_tokens_weigh_T_over_t(seed):
    """MDLM with the linear schedule: T / t * -log p(x_0) where x_t is MASK, and 0 elsewhere."""
    model = Model("absorbing", 2, seed)
    rng = np.random.default_rng(seed)
    x0 = torch.tensor(rng.integers(MASK + 1, V, size=(8, 2)))
    t = torch.tensor(rng.integers(1, T + 1, size=8))
    xt = torch.where(torch.tensor(rng.random((8, 2)) < 0.5), MASK, x0)
    losses = token_losses(model.denoiser, model.process, x0, [Draw(xt, t, T)])
    for b, l in np.ndindex(8, 2):
        p = model.denoiser.by_hand(tuple(xt[b].tolist()), int(t[b]))
        expected = T / int(t[b]) * -math.log(p[l, x0[b, l]]) if xt[b, l] == MASK else 0
        assert_allclose(losses[b, l], expected, rtol=1e-9)


@kinds
def test_the_first_term_is_the_negative_log_prediction(kind):
    model = Model(kind, 1, seed=2)
    for (x0,), (x1,) in itertools.product(clean(1), model.states()):
        if model.forward((x0,), 1)[0, x1] == 0:
            continue
        one = torch.ones(1, dtype=torch.long)
        x = torch.tensor([[x0]])
        loss = token_losses(model.denoiser, model.process, x, [Draw(torch.tensor([[x1]]), one, 1)])
        carried = kind == "absorbing" and x1 != MASK
        expected = 0 if carried else -math.log(model.denoiser.by_hand((x1,), 1)[0, x0])
        assert_allclose(loss, [[expected]], rtol=1e-9)


# Times.


@given(B=st.integers(1, 40), high=st.integers(2, 12), low=st.integers(1, 2), seed=seeds)
def test_times_are_stratified(B, high, low, seed):
    t = stratified(B, (low, high), CPU, torch.Generator().manual_seed(seed))
    n = high - low + 1
    assert t.shape == (B,) and t.dtype == torch.long
    assert t.min() >= low and t.max() <= high
    counts = torch.bincount(t - low, minlength=n)
    assert counts.min() >= B // n - 1 and counts.max() <= -(-B // n) + 1
    if B % n == 0:
        assert (counts == B // n).all()


@pytest.mark.parametrize("span", [(1, 5), (2, 5)])
@pytest.mark.parametrize("B", [1, 3, 10])
def test_every_row_sees_every_time_equally_often(span, B, generator):
    low, high = span
    drawn = torch.stack([stratified(B, span, CPU, generator) for _ in range(3000)])
    for slot in {0, B - 1}:
        counts = torch.bincount(drawn[:, slot] - low, minlength=high - low + 1)
        assert chisquare(counts).pvalue > 1e-4


@given(B=st.integers(1, 20), T=st.integers(2, 12), seed=seeds)
def test_ranges_of_the_two_estimators(B, T, seed):
    x0 = torch.full((B, 1), MASK + 1)
    generator = torch.Generator().manual_seed(seed)
    ((t, weight),) = draw_times(x0, ranges("joint", T), generator)
    assert weight == T and t.min() >= 1 and t.max() <= T
    (t, weight), (first, one) = draw_times(x0, ranges("split", T), generator)
    assert weight == T - 1 and t.min() >= 2 and t.max() <= T
    assert one == 1 and (first == 1).all()


# PAD.


POSITIONS: dict[str, dict[str, Any]] = {
    "rotary": {},
    "learned": {"positions": "learned"},
    "neighbours": {"neighbours": 2},
}
"""Ways to know where a token is, and what options they take."""


def tiny(positions: str = "rotary", max_length: int = 12, **options: Any) -> Denoiser:
    """A small denoiser in float64, with weights far enough from zero for everything to matter."""
    config = DenoiserConfig(width=8, layers=2, heads=2, **POSITIONS[positions], **options)
    torch.manual_seed(0)
    denoiser = Denoiser(config, V, T, max_length).double()
    with torch.no_grad():
        for weight in denoiser.parameters():
            weight.add_(0.4 * torch.randn_like(weight))
    return denoiser


def sequences(B: int, L: int, seed: int = 0) -> Tensor:
    return torch.tensor(np.random.default_rng(seed).integers(MASK + 1, V, size=(B, L)))


positions = pytest.mark.parametrize("positions", POSITIONS)


def test_the_mean_is_over_tokens_that_are_not_pad():
    x0 = torch.tensor([[2, 3, PAD], [4, PAD, PAD]])
    losses = torch.tensor([[1.0, 2.0, 0.0], [6.0, 0.0, 0.0]])
    assert token_mean(losses, x0) == 3


@kinds
def test_losses_are_zero_at_pad(kind):
    model = Model(kind, 2, seed=6)
    x0 = torch.tensor([[2, PAD], [3, PAD], [4, 2]])
    t = torch.tensor([1, 2, 3])
    for seed in range(5):
        xt = model.process.corrupt(x0, t, torch.Generator().manual_seed(seed))
        losses = token_losses(model.denoiser, model.process, x0, [Draw(xt, t, T)])
        assert losses.isfinite().all()
        assert (losses[:2, 1] == 0).all()


@pytest.mark.parametrize("kind", ["uniform", "semantic", "absorbing"])
@given(L=st.integers(1, 5), seed=seeds, weight=st.floats(0.1, 3))
def test_the_auxiliary_loss_speaks_of_every_token_that_is_not_known(kind, L, seed, weight):
    process, denoiser = Model(kind, 1, seed=0).process, tiny("rotary")
    x0 = nn.functional.pad(sequences(3, L, seed), (0, 1), value=PAD)
    t = torch.tensor(np.random.default_rng(seed).integers(1, T + 1, size=3))
    draw = Draw(process.corrupt(x0, t, torch.Generator().manual_seed(seed)), t, T)
    with torch.no_grad():
        plain = token_losses(denoiser, process, x0, [draw])
        more = token_losses(denoiser, process, x0, [draw], auxiliary=weight) - plain
        p = denoiser(draw.xt, t).softmax(-1)
    for b in range(3):
        for l in range(L + 1):
            known = x0[b, l] == PAD or (kind == "absorbing" and draw.xt[b, l] == x0[b, l])
            expected = 0.0 if known else -weight * math.log(p[b, l, x0[b, l]])
            assert more[b, l].item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("kind", ["uniform", "semantic", "absorbing"])
@positions
@given(L=st.integers(1, 5), pads=st.integers(1, 5), seed=seeds)
def test_columns_of_pad_change_nothing(kind, positions, L, pads, seed):
    process = Model(kind, 1, seed=0).process
    denoiser = tiny(positions)
    x0 = sequences(4, L, seed)
    t = torch.tensor(np.random.default_rng(seed).integers(1, T + 1, size=4))
    xt = process.corrupt(x0, t, torch.Generator().manual_seed(seed))
    wide_x0, wide_xt = (nn.functional.pad(x, (0, pads), value=PAD) for x in (x0, xt))
    with torch.no_grad():
        logits, wide_logits = denoiser(xt, t), denoiser(wide_xt, t)
        assert_allclose(wide_logits[:, :L], logits, rtol=1e-9)
        losses = token_losses(denoiser, process, x0, [Draw(xt, t, T)])
        wide_losses = token_losses(denoiser, process, wide_x0, [Draw(wide_xt, t, T)])
        unmasked = token_losses(denoiser, process, x0, [Draw(xt, t, T)], padded=False)
    assert_allclose(wide_losses[:, :L], losses, rtol=1e-9, atol=1e-12)
    assert not wide_losses[:, L:].any()
    assert_allclose(unmasked, losses, rtol=1e-9, atol=1e-12)
    assert_allclose(token_mean(wide_losses, wide_x0), token_mean(losses, x0), rtol=1e-9)


@pytest.mark.parametrize("kind", ["uniform", "semantic", "absorbing"])
def test_what_is_behind_pad_gives_no_gradient(kind):
    process = Model(kind, 1, seed=0).process
    x0 = sequences(3, 4)
    t = torch.tensor([1, 2, 3])
    xt = process.corrupt(x0, t, torch.Generator().manual_seed(1))
    gradients = []
    for pads in (0, 3):
        denoiser = tiny()
        wide_x0, wide_xt = (nn.functional.pad(x, (0, pads), value=PAD) for x in (x0, xt))
        losses = token_losses(denoiser, process, wide_x0, [Draw(wide_xt, t, T)])
        token_mean(losses, wide_x0).backward()
        gradients.append([weight.grad for weight in denoiser.parameters()])
    for narrow, wide in zip(*gradients, strict=True):
        assert narrow is not None and wide is not None
        assert_allclose(wide, narrow, rtol=1e-7, atol=1e-10)


# The denoiser.


@positions
@pytest.mark.parametrize("time", [True, False])
def test_specials_are_never_predicted(positions, time):
    process = UniformProcess(V, steps(alpha_bar("linear", T)))
    logits = tiny(positions, time=time)(sequences(2, 4), torch.tensor([1, 3]))
    assert logits.shape == (2, 4, V)
    assert (logits[..., [PAD, MASK]] == -torch.inf).all()
    assert logits[..., MASK + 1 :].isfinite().all()
    log_p = predict(tiny(positions, time=time), process, sequences(2, 4), torch.tensor([1, 3]))
    assert_allclose(log_p.exp().sum(-1).detach(), 1)


def blank(**options: bool) -> Denoiser:
    """A denoiser to which all tokens are alike."""
    config = replace(DenoiserConfig(width=8, layers=1, heads=2), **options)
    denoiser = Denoiser(config, V, T, 4).double()
    nn.init.zeros_(denoiser.head.weight)
    return denoiser


@pytest.mark.parametrize("kind", ["uniform", "semantic"])
@given(seed=seeds)
def test_with_evidence_the_network_speaks_of_the_context_alone(kind, seed):
    """Let it say how frequent tokens are: then Bayes' rule gives p(x_0 | x_t), without learning."""
    process, denoiser = Model(kind, 1, seed).process, blank(evidence=True)
    assert isinstance(process, SubstitutionProcess)
    prior = np.random.default_rng(seed).dirichlet(np.ones(len(VALID)))
    with torch.no_grad():
        denoiser.head.bias[VALID.start :] = torch.tensor(prior).log()
    for t, k in itertools.product(range(1, T + 1), VALID):
        q = process.rows(torch.tensor([[*VALID]]), torch.tensor([t]))[0, :, k]
        found = predict(denoiser, process, torch.tensor([[k]]), torch.tensor([t])).exp()
        assert_allclose(
            found[0, 0, VALID.start :].detach(), prior * q.numpy() / (prior @ q.numpy())
        )


@kinds
def test_evidence_is_asked_for_by_those_who_want_it(kind):
    """Masks and coupled noise have none to give, and a denoiser of its own mind takes none."""
    process, x = Model(kind, 2, 0).process, sequences(3, 2)
    x, t = torch.where(x % 2 == 0, MASK, x) if kind == "absorbing" else x, torch.tensor([1, 2, 3])
    bare, told = blank(), blank(evidence=True)
    told.load_state_dict(bare.state_dict())
    assert torch.equal(bare(x, t, True, None, process.evidence), bare(x, t))
    silent = torch.equal(told(x, t, True, None, process.evidence), bare(x, t))
    assert silent == (kind in ("absorbing", "coupled"))


def test_what_is_given_is_at_time_0():
    """All of it: as at t = 0. None of it: as at t. To a denoiser that does not infill: nothing."""
    x, t, none = sequences(3, 5), torch.tensor([1, 2, 3]), torch.zeros(3, 5, dtype=torch.bool)
    denoiser, deaf = blank(infills=True), blank()
    for own in (denoiser, deaf):
        nn.init.normal_(own.head.weight)
    deaf.load_state_dict(denoiser.state_dict())
    torch.testing.assert_close(denoiser(x, t, given=none), denoiser(x, t))
    torch.testing.assert_close(denoiser(x, t, given=~none), denoiser(x, torch.zeros_like(t)))
    assert torch.equal(deaf(x, t, given=~none), deaf(x, t))
    one = none.clone()
    one[:, 2] = True
    assert not torch.allclose(denoiser(x, t, given=one)[:, 0], denoiser(x, t)[:, 0])


def test_what_is_believed_of_the_given_is_not_recalled():
    x, t = sequences(2, 4), torch.tensor([1, 3])
    denoiser = blank(infills=True, recall=True)
    assert denoiser.recall is not None
    for layer in (denoiser.head, denoiser.recall):
        nn.init.normal_(layer.weight)
    part = torch.arange(4).expand(2, 4) < 2
    belief = torch.rand(2, 4, V, dtype=torch.float64)
    other = torch.where(part[..., None], torch.rand_like(belief), belief)
    found = (denoiser(x, t, belief=own, given=part) for own in (belief, other))
    torch.testing.assert_close(*found)


# What is given.


@given(B=st.integers(1, 6), L=st.integers(1, 40), seed=seeds)
def test_what_is_given_is_the_same_in_parts(B, L, seed):
    x0 = torch.full((4 * B, L), MASK + 1)
    whole = parts_given(x0, torch.Generator().manual_seed(seed))
    assert whole.shape == x0.shape and whole.dtype == torch.bool
    for n in range(4):
        own = Sliced(torch.Generator().manual_seed(seed), n, 4)
        assert torch.equal(parts_given(x0[:B], own), whole[n * B : (n + 1) * B])


def test_half_of_the_sequences_have_a_part_that_is_given_and_what_is_hidden_is_anywhere():
    n, L = 40_000, 30
    found = parts_given(torch.full((n, L), MASK + 1), torch.Generator().manual_seed(0))
    some = found.any(-1)
    assert 0.3 < some.double().mean() < 0.5  # of the other half, all or nothing may be hidden
    assert not found.all(-1).any()
    infilled = ~found[some]  # what is to be drawn
    by_place = infilled.double().mean(0)
    assert by_place.max() - by_place.min() < 0.02
    single, end = torch.zeros(L, dtype=torch.bool), torch.arange(L) >= L - 5
    single[11] = True
    for wanted in (single, end, ~single, ~end):
        assert (infilled == wanted).all(-1).any()
    runs = (infilled[:, 1:] & ~infilled[:, :-1]).sum(-1)  # but for one that is a beginning
    assert set(range(9)) <= set(runs.tolist())


def test_no_belief_is_a_belief_of_zero():
    denoiser, x, t = blank(recall=True), sequences(2, 3), torch.tensor([1, 3])
    nn.init.normal_(denoiser.head.weight)
    some = torch.rand(2, 3, V, dtype=torch.float64)
    assert torch.equal(denoiser(x, t), denoiser(x, t, belief=some))  # it has not learned to listen
    assert denoiser.recall is not None
    nn.init.normal_(denoiser.recall.weight)
    assert torch.equal(denoiser(x, t), denoiser(x, t, belief=torch.zeros_like(some)))
    assert not torch.allclose(denoiser(x, t), denoiser(x, t, belief=some))


@positions
def test_attention_needs_no_mask_without_pad(positions):
    denoiser, x, t = tiny(positions), sequences(3, 5), torch.tensor([1, 2, 3])
    with torch.no_grad():
        assert_allclose(denoiser(x, t, padded=False), denoiser(x, t), rtol=1e-9)


@positions
def test_a_relaxed_onehot_is_its_token(positions):
    denoiser, t = tiny(positions), torch.tensor([1, 2, 3])
    x = sequences(3, 5)
    x[0, 3:] = PAD
    x[1, 2] = MASK
    with torch.no_grad():
        relaxed = denoiser(torch.eye(V, dtype=torch.float64)[x], t)
        assert_allclose(relaxed, denoiser(x, t), rtol=1e-9)


@positions
def test_the_order_of_tokens_matters(positions):
    denoiser, t = tiny(positions), torch.tensor([2])
    x = torch.tensor([[2, 3, 4, 3]])
    order = torch.tensor([2, 0, 3, 1])
    with torch.no_grad():
        moved = denoiser(x[:, order], t)[..., MASK + 1 :]
        assert not torch.allclose(moved, denoiser(x, t)[:, order][..., MASK + 1 :], atol=1e-3)


@pytest.mark.parametrize("positions", ["rotary", "neighbours"])
def test_rotary_positions_are_relative(positions):
    """What is seen depends on distances alone: noise in front, hidden as PAD, shifts nothing."""
    denoiser, t = tiny(positions), torch.tensor([2])
    x = torch.tensor([[2, 3, 4, 3]])
    shifted = nn.functional.pad(x, (3, 0), value=PAD)
    with torch.no_grad():
        assert_allclose(denoiser(shifted, t)[:, 3:], denoiser(x, t), rtol=1e-5)


@pytest.mark.parametrize("period", [2, 3])
def test_a_token_knows_its_place_in_its_item(period):
    """The same tokens so many places on: the same answers where whole items lie between."""
    denoiser, t = tiny(period=period), torch.tensor([2])
    x = torch.tensor([[2, 3, 4, 3]])
    with torch.no_grad():
        for by in range(1, 2 * period + 1):
            shifted = nn.functional.pad(x, (by, 0), value=PAD)
            same = torch.allclose(denoiser(shifted, t)[:, by:], denoiser(x, t), rtol=1e-5)
            assert same == (by % period == 0)


@given(reach=st.integers(0, 4), L=st.integers(1, 9), seed=seeds)
def test_before_all_attention_a_token_is_told_of_its_neighbours_alone(reach, L, seed):
    denoiser, x, t = tiny(neighbours=reach), sequences(1, L, seed), torch.tensor([2])
    denoiser.blocks = nn.ModuleList()  # what else carries anything from place to place
    with torch.no_grad():
        before = denoiser(x, t)[0, :, MASK + 1 :]
        for l in range(L):
            changed = x.clone()
            changed[0, l] = MASK
            moved = (denoiser(changed, t)[0, :, MASK + 1 :] - before).abs().amax(-1) > 1e-9
            assert moved.tolist() == [abs(l - other) <= reach for other in range(L)]


@positions
def test_sequences_of_a_batch_do_not_see_each_other(positions):
    denoiser, x, t = tiny(positions), sequences(3, 5), torch.tensor([1, 2, 3])
    with torch.no_grad():
        alone = torch.cat([denoiser(x[b : b + 1], t[b : b + 1]) for b in range(3)])
        assert_allclose(denoiser(x, t), alone, rtol=1e-9)


def test_every_token_sees_every_other():
    denoiser, t = tiny(), torch.tensor([2])
    x = torch.tensor([[2, 3, 4, 3]])
    with torch.no_grad():
        before = denoiser(x, t)[0, :, MASK + 1 :]
        for l in range(4):
            changed = x.clone()
            changed[0, l] = MASK
            difference = (denoiser(changed, t)[0, :, MASK + 1 :] - before).abs().amax(-1)
            assert (difference > 1e-4).all()


def test_only_a_denoiser_with_a_clock_hears_the_time():
    x = sequences(1, 4)
    early, late = torch.tensor([1]), torch.tensor([3])
    with torch.no_grad():
        deaf, hearing = tiny(time=False), tiny(time=True)
        assert torch.equal(deaf(x, early), deaf(x, late))
        difference = (hearing(x, early) - hearing(x, late))[..., MASK + 1 :]
        assert (difference.abs() > 1e-3).any()


@positions
@pytest.mark.parametrize("time", [True, False])
def test_the_gradient_reaches_every_weight(positions, time):
    denoiser = tiny(positions, time=time)
    x0, t = sequences(3, 5), torch.tensor([1, 2, 3])
    process = Model("uniform", 1, seed=0).process
    xt = process.corrupt(x0, t, torch.Generator().manual_seed(0))
    token_losses(denoiser, process, x0, [Draw(xt, t, T)]).sum().backward()
    for name, weight in denoiser.named_parameters():
        assert weight.grad is not None and weight.grad.isfinite().all(), name
        assert weight.grad.any(), name


@positions
def test_a_sequence_of_pad_alone_leaves_numbers_finite(positions):
    denoiser = tiny(positions)
    process = Model("uniform", 1, seed=0).process
    x0 = torch.tensor([[2, 3, 4], [PAD, PAD, PAD]])
    t = torch.tensor([2, 2])
    xt = process.corrupt(x0, t, torch.Generator().manual_seed(0))
    loss = token_mean(token_losses(denoiser, process, x0, [Draw(xt, t, T)]), x0)
    loss.backward()
    assert loss.isfinite()
    for weight in denoiser.parameters():
        assert weight.grad is not None and weight.grad.isfinite().all()
