"""Intervals: known answers, laws of order and seed, and the coverage that 95 % promises."""

import json
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redraft.errors import UserError
from redraft.evaluation import statistics
from redraft.evaluation.statistics import (
    Estimate,
    bootstrap_mean,
    bootstrap_ratio,
    difference,
    mean_over_pairs,
    over_seeds,
    paired_difference,
    share,
    splits,
    subsample,
)

numbers = st.floats(-1e6, 1e6)
rows = st.lists(numbers, min_size=1, max_size=40)
pairs = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=40)
kinds = st.lists(st.integers(0, 20), min_size=1, max_size=40)
seeds = st.integers(0, 5)


def uniqueness(items) -> float:
    return len(set(items)) / len(items)


def holds(estimate: Estimate) -> bool:
    return estimate.low <= estimate.value <= estimate.high


def covered(truth: float, draw: Callable[[int], Estimate], repeats: int = 300) -> float:
    """How often the interval of a fresh sample holds the truth; its own error is about 1.3 %."""
    estimates = [draw(i) for i in range(repeats)]
    return float(np.mean([e.low <= truth <= e.high for e in estimates]))


# ------------------------------------------------------------------ laws


@given(rows, seeds, st.randoms(use_true_random=False))
def test_a_mean_is_the_mean_inside_its_interval_in_any_order(values, seed, rng):
    estimate = bootstrap_mean(values, seed, resamples=50)
    assert estimate.value == pytest.approx(np.mean(values))
    assert holds(estimate)
    assert min(values) - 1e-6 <= estimate.low and estimate.high <= max(values) + 1e-6
    shuffled = bootstrap_mean(rng.sample(values, len(values)), seed, resamples=50)
    assert shuffled == pytest.approx(tuple(estimate))


@given(pairs, seeds, st.randoms(use_true_random=False))
def test_paired_differences_keep_their_pairs(rows, seed, rng):
    a, b = zip(*rows, strict=True)
    estimate = paired_difference(a, b, seed, resamples=50)
    assert estimate.value == pytest.approx(np.mean(a) - np.mean(b), abs=1e-6)
    assert holds(estimate)
    a, b = zip(*rng.sample(rows, len(rows)), strict=True)
    assert paired_difference(a, b, seed, resamples=50) == pytest.approx(tuple(estimate))


@given(kinds, seeds)
def test_a_measure_of_a_set_is_that_of_the_whole_set_inside_its_interval(items, seed):
    estimate = subsample(uniqueness, items, seed, resamples=20)
    assert estimate.value == uniqueness(items)
    assert holds(estimate) and estimate.low >= 0 and estimate.high <= 1


@given(st.lists(st.booleans(), min_size=1, max_size=40), seeds)
def test_a_share_is_never_certain(hits, seed):
    estimate = share(hits, seed)
    assert estimate.value == pytest.approx(np.mean(hits))
    assert holds(estimate) and 0 <= estimate.low < estimate.high <= 1


@pytest.mark.parametrize(
    "interval",
    [
        lambda x, seed: bootstrap_mean(x, seed),
        lambda x, seed: bootstrap_ratio(x, x**2, seed),
        lambda x, seed: difference(x, x[::2], seed),
        lambda x, seed: paired_difference(x, x**2, seed),
        lambda x, seed: subsample(uniqueness, x.round(1), seed),
        lambda x, seed: splits(np.mean, x, 5, seed),
    ],
    ids=["mean", "ratio", "difference", "paired", "subsample", "splits"],
)
def test_the_seed_is_the_only_randomness(interval):
    x = np.random.default_rng(0).exponential(size=100)
    assert interval(x, 1) == interval(x, 1)
    assert interval(x, 1).value == interval(x, 2).value
    assert interval(x, 1) != interval(x, 2)


def test_many_samples_go_through_memory_in_parts(monkeypatch):
    x = np.random.default_rng(0).normal(size=100)
    at_once = bootstrap_mean(x)
    monkeypatch.setattr(statistics, "AT_ONCE", 1000)
    assert bootstrap_mean(x) == pytest.approx(tuple(at_once))


# ------------------------------------------------------------------ known answers


def test_an_estimate_is_written_as_three_plain_numbers():
    written = json.dumps(bootstrap_mean(np.arange(4, dtype=np.float32)).to_dict())
    assert list(json.loads(written)) == ["value", "low", "high"]
    assert Estimate(0.5, -1, 2).within(0, 1) == (0.5, 0.0, 1.0)


def test_weights_count_like_repetitions():
    assert bootstrap_mean([1.0, 4.0], weights=[2, 1]).value == pytest.approx(2)
    assert bootstrap_ratio([2.0, 4.0], [2, 1]).value == pytest.approx(2)


def test_a_resample_of_rows_without_counts_is_left_out():
    estimate = bootstrap_ratio([0.0, 3.0], [0, 1])
    assert estimate == (3, 3, 3)


def test_pairing_takes_out_what_the_inputs_share():
    rng = np.random.default_rng(0)
    hardness = rng.normal(size=200)
    a, b = hardness + 0.1, hardness + 0.02 * rng.normal(size=200)
    paired, apart = paired_difference(a, b), difference(a, b)
    assert paired.low > 0 > apart.low
    assert paired.value == pytest.approx(apart.value)


def test_weighted_pairs_are_a_difference_of_ratios():
    """Nats per token of two models on the same stories."""
    tokens = np.array([3.0, 5.0, 2.0])
    a, b = np.array([6.0, 5.0, 8.0]), np.array([3.0, 5.0, 5.0])
    expected = (a.sum() - b.sum()) / tokens.sum()
    assert paired_difference(a / tokens, b / tokens, weights=tokens).value == pytest.approx(
        expected
    )


def test_three_seeds_by_hand():
    """Mean 2, deviation 1, t_2 = 4.3027."""
    assert over_seeds([1.0, 2.0, 3.0]) == pytest.approx((2, 2 - 2.4841, 2 + 2.4841), abs=1e-4)


def test_means_over_pairs_by_leaving_out_one():
    """The closed form against n means over the pairs that are left."""
    rng = np.random.default_rng(0)
    T = rng.random((7, 7))
    T = (T + T.T) / 2
    upper = np.triu_indices(7, 1)

    def without(i):
        rest = np.delete(np.delete(T, i, 0), i, 1)
        return rest[np.triu_indices(6, 1)].mean()

    left = np.array([without(i) for i in range(7)])
    error = np.sqrt(6 / 7 * ((left - left.mean()) ** 2).sum())
    estimate = mean_over_pairs((T.sum(1) - T.diagonal()) / 6)
    assert estimate.value == pytest.approx(T[upper].mean())
    assert estimate.high - estimate.value == pytest.approx(2.446912 * error)  # t of 6


def test_one_pair_has_no_spread():
    assert mean_over_pairs([0.3, 0.3]) == (0.3, -np.inf, np.inf)


def test_splits_take_every_item_once():
    seen = []
    estimate = splits(lambda part: seen.append(part) or float(np.mean(part)), np.arange(10), 5, 0)
    *parts, whole = seen
    assert sorted(np.concatenate(parts)) == list(range(10)) == list(whole)
    assert estimate.value == 4.5 and holds(estimate)


def test_items_may_be_a_list_of_anything():
    stories = [["a", "b"], ["a"], ["c", "c", "d"]]
    estimate = subsample(lambda xs: uniqueness([word for x in xs for word in x]), stories)
    assert estimate.value == pytest.approx(4 / 6)


def test_subsamples_are_drawn_without_replacement():
    sizes = set()
    subsample(lambda xs: sizes.add((len(xs), len(set(xs)))) or 1.0, range(50), resamples=20)
    assert sizes == {(45, 45), (50, 50)}


def test_where_all_agree_the_interval_is_what_may_have_been_missed():
    """An event as likely as the margin would stay unseen in 2.5 % of such samples."""
    for estimate in (share([True] * 100), subsample(uniqueness, range(100))):
        assert estimate.value == estimate.high == 1
        assert estimate.low**100 == pytest.approx(0.025)
    assert share([False] * 100) == pytest.approx((0, 0, 1 - 0.025**0.01))


def test_nor_are_two_shares_certainly_apart():
    """Differences of measures that are no shares have no range to widen in."""
    some, none = np.ones(100), np.zeros(100)
    margin = 1 - 0.025**0.01
    for found in (paired_difference(some, some), difference(none, none)):
        assert found == pytest.approx((0, -margin, margin))
    assert paired_difference(some / 4, none) == pytest.approx((0.25, 0.25 - margin, 0.25 + margin))
    for found in (paired_difference(some, none), difference(some, none)):
        assert found == pytest.approx((1, 1 - margin, 1))
    assert statistics.grouped_share(none - some, range(100), least=-1) == pytest.approx(
        (-1, -1, margin - 1)
    )
    assert paired_difference(some + 2, some) == (2, 2, 2)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: bootstrap_mean([]), "at least one number"),
        (lambda: bootstrap_mean([[1.0]]), "(1, 1)"),
        (lambda: bootstrap_mean([1.0, float("nan")]), "NaN"),
        (lambda: bootstrap_ratio([1.0], [0.0]), "some must be more"),
        (lambda: bootstrap_ratio([1.0, 2.0], [1.0]), "2 and 1"),
        (lambda: paired_difference([1.0], [1.0, 2.0]), "1 and 2"),
        (lambda: subsample(uniqueness, []), "got none"),
        (lambda: mean_over_pairs([1.0]), "two samples"),
        (lambda: splits(np.mean, [1.0, 2.0], k=3), "got 3"),
        (lambda: over_seeds([1.0]), "at least two"),
    ],
)
def test_what_has_no_interval_is_said_in_one_sentence(call, says):
    with pytest.raises(UserError) as caught:
        call()
    assert says in str(caught.value) and "\n" not in str(caught.value)


# ------------------------------------------------------------------ coverage


def test_coverage_of_means_and_shares():
    rng = np.random.default_rng(0)
    assert 0.91 <= covered(0.3, lambda i: share(rng.random(150) < 0.3, i, 300)) <= 0.98
    assert 0.91 <= covered(1, lambda i: bootstrap_mean(rng.exponential(size=150), i, 300)) <= 0.98
    assert covered(0.995, lambda i: share(rng.random(150) < 0.995, i, 300)) >= 0.93


def test_coverage_of_ratios_whose_rows_differ_in_length():
    """Nats per token fall with the length here: the mean of the rows' own ratios is another."""
    rng = np.random.default_rng(1)

    def draw(i: int) -> Estimate:
        tokens = rng.integers(5, 60, 150)
        return bootstrap_ratio(10 + tokens + 3 * rng.normal(size=150), tokens, i, 300)

    lengths = np.arange(5, 60)
    assert 0.91 <= covered((10 + lengths).mean() / lengths.mean(), draw) <= 0.98


def test_coverage_of_differences():
    rng = np.random.default_rng(2)

    def apart(i: int) -> Estimate:
        return difference(rng.normal(1, 1, 100), rng.normal(0, 3, 150), i, 300)

    def paired(i: int) -> Estimate:
        shared = rng.normal(0, 5, 100)
        return paired_difference(shared + rng.normal(1, 1, 100), shared, i, 300)

    assert 0.91 <= covered(1, apart) <= 0.98
    assert 0.91 <= covered(1, paired) <= 0.98


def test_coverage_of_three_seeds_and_of_splits():
    rng = np.random.default_rng(3)
    assert 0.92 <= covered(0, lambda i: over_seeds(rng.normal(size=3)), 1000) <= 0.98
    assert 0.91 <= covered(0, lambda i: splits(np.mean, rng.normal(size=60), 5, i)) <= 0.98


def distinct(K: int, n: int) -> float:
    """Mean uniqueness of n draws from K kinds that are equally likely."""
    return K / n * (1 - (1 - 1 / K) ** n)


@pytest.mark.parametrize("K", [200 * 300, 20 * 300, 300])
def test_coverage_of_uniqueness(K):
    """From a pair now and then to every third draw a repetition: 95 % or more."""
    rng = np.random.default_rng(K)

    def draw(i: int) -> Estimate:
        return subsample(uniqueness, rng.integers(K, size=300).tolist(), i, 100)

    assert covered(distinct(K, 300), draw, 200) >= 0.93


def test_coverage_of_a_set_measure_that_is_a_mean():
    """Novelty of items that hardly repeat: the factor of means is right, not just wide enough."""
    rng = np.random.default_rng(4)

    def novelty(xs: np.ndarray) -> float:
        return float((np.unique(xs) % 10 > 2).mean())

    def draw(i: int) -> Estimate:
        return subsample(novelty, rng.integers(10**7, size=300), i, 100)

    assert 0.92 <= covered(0.7, draw) <= 0.98


def test_half_samples_are_too_narrow_for_rare_repetitions():
    """Why nine tenths are kept: the spread of uniqueness over fresh sets, and its two estimates."""
    rng = np.random.default_rng(5)
    sets = [rng.integers(10_000, size=400) for _ in range(150)]
    true = np.std([uniqueness(x.tolist()) for x in sets])

    def spread(kept: float) -> float:
        estimates = [subsample(uniqueness, x.tolist(), 0, 100, kept) for x in sets]
        return float(np.mean([e.value - e.low for e in estimates])) / statistics.NORMAL

    assert spread(0.5) < 0.95 * true
    assert true < spread(0.9) < 1.6 * true
