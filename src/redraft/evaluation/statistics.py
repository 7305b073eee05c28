"""Intervals: where a number would fall, 95 times in 100, if everything were sampled anew.

    means of samples            bootstrap_mean, share, bootstrap_ratio
    of samples in groups        grouped_mean, grouped_share, grouped_ratio
    measures of a whole set     subsample      (uniqueness, novelty, Distinct-n)
    means over all pairs        mean_over_pairs      (diversity)
    costly, biased measures     splits         (FCD)
    two methods                 paired_difference, difference
    several training runs       over_seeds

Only the last one knows how far training runs differ; all others hold for the model at hand.
The same values and the same seed always give the same interval; for means, in any order.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from redraft.errors import UserError

TAILS = (0.025, 0.975)
NORMAL = 1.96
"""The upper tail of a standard normal variable."""
AT_ONCE = 1 << 20
"""Drawn row numbers held in memory at a time: 8 MB."""


class Estimate(NamedTuple):
    """A number and the 95 % interval around it."""

    value: float
    low: float
    high: float

    def to_dict(self) -> dict[str, float]:
        """As it stands in a file of results."""
        return self._asdict()

    def within(self, least: float, most: float) -> "Estimate":
        """The interval without what lies outside a measure's range, such as 0 to 1."""
        return Estimate(self.value, float(max(self.low, least)), float(min(self.high, most)))


# ------------------------------------------------------------------ means of samples


def bootstrap_mean(
    values: ArrayLike, seed: int = 0, resamples: int = 2000, weights: ArrayLike | None = None
) -> Estimate:
    """The mean over samples, with the percentiles of its bootstrap.

    sum_i w_i v_i / sum_i w_i, of n samples drawn with replacement; w = 1 without weights.
    """
    values = _column(values)
    weights = np.ones_like(values) if weights is None else _column(weights)
    _same_length(values, weights)
    return bootstrap_ratio(values * weights, weights, seed, resamples)


def bootstrap_ratio(
    totals: ArrayLike, counts: ArrayLike, seed: int = 0, resamples: int = 2000
) -> Estimate:
    """A ratio of sums over rows, as nats per token are, with the percentiles of its bootstrap.

    sum_i total_i / sum_i count_i: long rows count for more, and rows are drawn whole, since the
    tokens of one row are not independent of each other.
    """
    totals, counts = _column(totals), _column(counts)
    _same_length(totals, counts)
    if counts.min() < 0 or not counts.any():
        raise UserError("counts and weights must be at least 0, and some must be more")
    total, count = _resampled_sums([totals, counts], np.random.default_rng(seed), resamples)
    drawn = count > 0  # rows without any count may be drawn alone: no ratio is defined there
    return _percentiles(totals.sum() / counts.sum(), total[drawn] / count[drawn])


def share(hits: ArrayLike, seed: int = 0, resamples: int = 2000) -> Estimate:
    """The share of samples with a property: their mean, with an interval where all agree, too.

    There every resample agrees as well, and the bootstrap would be certain.
    """
    return _never_certain(bootstrap_mean(hits, seed, resamples), np.size(hits))


def _never_certain(estimate: Estimate, n: int, least: float = 0) -> Estimate:
    """What lies between `least` and 1, and may be otherwise in samples that were not drawn."""
    if estimate.low < estimate.high:
        return estimate
    return _around(estimate.value, _unseen(n)).within(least, 1)


def _unseen(n: int) -> float:
    """The largest p that n samples may miss: (1 - p)^n = 2.5 %, so about 3.7 / n."""
    return 1 - TAILS[0] ** (1 / n)


# ------------------------------------------------------------------ samples in groups


def grouped_mean(
    values: ArrayLike, groups: ArrayLike, seed: int = 0, resamples: int = 2000
) -> Estimate:
    """The mean over samples, where those of one group depend on each other: groups are drawn whole.

    Of differences a_i - b_i, where both come from one input, it is the paired difference.
    """
    values = _column(values)
    return grouped_ratio(values, np.ones_like(values), groups, seed, resamples)


def grouped_share(
    hits: ArrayLike, groups: ArrayLike, seed: int = 0, resamples: int = 2000, least: float = 0
) -> Estimate:
    """The share of samples with a property, with an interval where all groups agree, too.

    Or, with -1 as the least, the paired difference of two.
    """
    estimate = grouped_mean(hits, groups, seed, resamples)
    return _never_certain(estimate, len(np.unique(groups)), least)


def grouped_ratio(
    totals: ArrayLike, counts: ArrayLike, groups: ArrayLike, seed: int = 0, resamples: int = 2000
) -> Estimate:
    """A ratio of sums over rows, in groups that are drawn whole."""
    totals, counts = _column(totals), _column(counts)
    _, group = np.unique(np.asarray(groups), return_inverse=True)
    _same_length(totals, counts)
    _same_length(totals, group)
    totals, counts = (np.bincount(group, column) for column in (totals, counts))
    return bootstrap_ratio(totals, counts, seed, resamples)


# ------------------------------------------------------------------ differences of means


def paired_difference(
    a: ArrayLike,
    b: ArrayLike,
    seed: int = 0,
    resamples: int = 2000,
    weights: ArrayLike | None = None,
) -> Estimate:
    """Mean of a less mean of b, where a_i and b_i come from one input: a bootstrap over pairs.

    What makes an input hard for both goes out of the difference. With the tokens of each input
    as weights, and a and b per token, this is the difference of two ratios of sums.
    """
    a, b = _column(a), _column(b)
    _same_length(a, b)
    found = bootstrap_mean(a - b, seed, resamples, weights)
    return _never_certain(found, len(a), least=-1) if _are_shares(a, b) else found


def difference(a: ArrayLike, b: ArrayLike, seed: int = 0, resamples: int = 2000) -> Estimate:
    """Mean of a less mean of b, where nothing links the two samples: each has its own bootstrap."""
    a, b = _column(a), _column(b)
    rng = np.random.default_rng(seed)
    drawn = [_resampled_sums([x], rng, resamples)[0] / len(x) for x in (a, b)]
    found = _percentiles(a.mean() - b.mean(), drawn[0] - drawn[1])
    return _never_certain(found, min(len(a), len(b)), least=-1) if _are_shares(a, b) else found


def _are_shares(*columns: np.ndarray) -> bool:
    """Whether these are of properties that a sample has, has not, or has in part."""
    return all(column.min() >= 0 and column.max() <= 1 for column in columns)


# ------------------------------------------------------------------ measures of whole sets


def subsample(
    set_measure: Callable[[Any], float],
    items: Sequence[Any] | np.ndarray,
    seed: int = 0,
    resamples: int = 500,
    kept: float = 0.9,
) -> Estimate:
    """A share that belongs to a set and not to its items, with an interval from parts of the set.

    A bootstrap repeats items, and a set that repeats items is not unique: so m = kept * n of the
    n items are drawn *without* replacement. The mean of such a part has the variance
    S^2 (1/m - 1/n), that of n fresh items S^2 / n, hence

        value +- 1.96 sqrt(m / (n - m)) sd(measure of a part),

    around the value of the whole, since small sets are more unique than large ones. What is
    covered is the measure's mean over fresh sets of n items.

    Why not half-samples, whose root is 1: parts must resemble the whole. Uniqueness near 1 is no
    mean but a count of rare pairs, and a share f of the items keeps f^2 of them; that calls for
    1 / (1 - f^2) in place of f / (1 - f), 4/3 in place of 1 at one half, where the interval would
    cover 90 %. At nine tenths it errs on the wide side, by a third for rare pairs, by half where
    most items repeat, hardly for means: close to the whole this is a jackknife, whose variance is
    on average never too small (Efron and Stein).

    Where no part differs from another, the margin is what n items may have missed.
    """
    n = len(items)
    if n == 0:
        raise UserError("at least one item is needed to measure a set, got none")
    m = min(max(round(kept * n), 1), n - 1)
    rng = np.random.default_rng(seed)
    draws = (rng.permutation(n)[:m] for _ in range(resamples if n > 1 else 0))
    measured = [set_measure(_take(items, chosen)) for chosen in draws]
    differ = len(set(measured)) > 1
    margin = NORMAL * np.sqrt(m / (n - m)) * np.std(measured) if differ else _unseen(n)
    return _around(set_measure(items), margin).within(0, 1)


def mean_over_pairs(row_means: ArrayLike) -> Estimate:
    """A mean over all pairs of different samples, from each sample's mean h_i over the others.

    The pairs share samples, so the n samples are left out in turn (jackknife): with theta the
    mean of h, theta without i is (n theta - 2 h_i) / (n - 2), and therefore

        theta +- t_{n-1} * 2 / (n - 2) * sqrt((n - 1)/n * sum_i (h_i - theta)^2).

    A bootstrap will not do, as it pairs samples with their own copies. Two samples make one pair,
    whose spread nobody knows: its interval is everything.
    """
    h = _column(row_means)
    n, theta = len(h), h.mean()
    if n < 2:
        raise UserError("a mean over pairs needs at least two samples, got one")
    if n == 2:
        return Estimate(float(theta), -np.inf, np.inf)
    error = 2 / (n - 2) * np.sqrt((n - 1) / n * ((h - theta) ** 2).sum())
    return _around(theta, stdtrit(n - 1, TAILS[1]) * error)


def splits(
    measure: Callable[[Any], float],
    items: Sequence[Any] | np.ndarray,
    k: int = 5,
    seed: int = 0,
) -> Estimate:
    """A measure on all items, with an interval from k disjoint parts of them.

    value +- t_{k-1} sd(measure of a part) / sqrt(k), as if the value were the mean of the parts.
    Where small sets measure higher, as with FCD, that mean is too high, but the spread holds.
    """
    if not 2 <= k <= len(items):
        raise UserError(f"splits must be from 2 to the number of items, {len(items)}, got {k}")
    parts = np.array_split(np.random.default_rng(seed).permutation(len(items)), k)
    measured = np.array([measure(_take(items, part)) for part in parts])
    return _around(measure(items), _student_margin(measured))


# ------------------------------------------------------------------ training seeds


def over_seeds(values: ArrayLike) -> Estimate:
    """The mean over training seeds: mean +- t_{n-1} sd / sqrt(n), Student's interval.

    The only one that includes how runs differ; with three seeds t is 4.3.
    """
    values = _column(values)
    if len(values) < 2:
        raise UserError("an interval over training seeds needs at least two, got one")
    return _around(values.mean(), _student_margin(values))


# ------------------------------------------------------------------ what they share


def _resampled_sums(
    columns: list[np.ndarray], rng: np.random.Generator, resamples: int
) -> np.ndarray:
    """Sums of each column over n rows drawn with replacement, (columns, resamples)."""
    n = len(columns[0])
    order = np.lexsort(columns)  # so that a permutation of the rows changes nothing
    columns = [column[order] for column in columns]
    sums = np.empty((len(columns), resamples))
    step = max(1, AT_ONCE // n)
    for start in range(0, resamples, step):
        rows = rng.integers(n, size=(min(step, resamples - start), n))
        for column, total in zip(columns, sums, strict=True):
            total[start : start + step] = column[rows].sum(1)
    return sums


def _percentiles(value: float, resampled: np.ndarray) -> Estimate:
    # Rounding alone may put the value of constant samples beside that of their resamples.
    low, high = np.quantile(resampled, TAILS)
    return Estimate(float(value), float(min(low, value)), float(max(high, value)))


def _student_margin(values: np.ndarray) -> float:
    n = len(values)
    return float(stdtrit(n - 1, TAILS[1]) * values.std(ddof=1) / np.sqrt(n))


def _around(value: float, margin: float) -> Estimate:
    return Estimate(float(value), float(value - margin), float(value + margin))


def _take(items: Sequence[Any] | np.ndarray, chosen: np.ndarray) -> Sequence[Any] | np.ndarray:
    return items[chosen] if isinstance(items, np.ndarray) else [items[i] for i in chosen.tolist()]


def _column(values: ArrayLike) -> np.ndarray:
    column = np.asarray(values, np.float64)
    if column.ndim != 1 or not column.size:
        raise UserError(f"a row of at least one number is needed, got shape {column.shape}")
    if not np.isfinite(column).all():
        raise UserError("numbers must be finite to have an interval, got NaN or infinity")
    return column


def _same_length(a: np.ndarray, b: np.ndarray) -> None:
    if len(a) != len(b):
        raise UserError(f"as many numbers on both sides are needed, got {len(a)} and {len(b)}")
