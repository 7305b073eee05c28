"""What is measured of playlists: hand-made cases, and laws."""

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redraft.data.playlist_files import AUDIO
from redraft.evaluation import playlists, statistics
from redraft.evaluation.playlists import CORRUPTIONS, hit, ndcg, predictors

FIRST, SECOND, THIRD = 1.0, 1 / math.log2(3), 0.5
ALL = FIRST + SECOND + THIRD
triplets = st.lists(st.integers(0, 5), min_size=3, max_size=3)

# ------------------------------------------------------------------ next tracks


@pytest.mark.parametrize(
    ("guesses", "truths", "once", "as_often"),
    [
        ("abc", "abc", ALL, ALL),
        ("cab", "abc", ALL, ALL),
        ("axb", "abc", FIRST + THIRD, FIRST + THIRD),
        ("xyz", "abc", 0, 0),
        ("bbx", "abc", FIRST, FIRST + SECOND),
        ("aaa", "aab", FIRST + SECOND, ALL),
        ("xaa", "aaa", SECOND + THIRD, SECOND + THIRD),
    ],
)
def test_ndcg_by_hand(guesses, truths, once, as_often):
    assert ndcg(guesses, truths) == pytest.approx(once / ALL)
    assert ndcg(guesses, truths, once=False) == pytest.approx(as_often / ALL)
    assert hit(guesses, truths) == (once > 0)


@given(triplets, triplets)
def test_a_hit_is_where_ndcg_is_above_nothing(guesses, truths):
    found = ndcg(guesses, truths)
    assert 0 <= found <= ndcg(guesses, truths, once=False) <= 1 + 1e-12
    assert (found > 0) == hit(guesses, truths)
    assert ndcg(guesses, guesses) == pytest.approx(1)
    assert ndcg(guesses, truths[::-1]) == found


def test_votes_are_counted_over_all_places_once_a_draw():
    assert playlists.voted([(1, 2, 3), (4, 2, 5), (2, 5, 6)]) == [2, 5, 1]
    assert playlists.voted([(7, 7, 7), (8, 9, 7), (8, 9, 9)]) == [7, 8, 9]


items = st.lists(st.integers(0, 7), min_size=4, max_size=9)


@given(st.lists(items, min_size=2, max_size=6), st.lists(items, min_size=1, max_size=3))
def test_simple_ways_by_brute_force(sequences, prefixes):
    n, windows = 8, [set(own) for own in sequences]
    played = [np.array(own) for own in sequences]
    ways = predictors(played, played, n)
    counts = Counter(item for own in sequences for item in own)
    popular = sorted(range(n), key=lambda item: -counts[item])[:3]
    share = [{w for w, own in enumerate(windows) if item in own} for item in range(n)]

    def cosine(i: int, j: int) -> float:
        sizes = len(share[i]) * len(share[j])
        return len(share[i] & share[j]) / math.sqrt(sizes) if sizes and i != j else 0.0

    for prefix in prefixes:
        told = {name: way(np.array([prefix]))[0] for name, way in ways.items()}
        assert all(len(own) == len(set(own)) == 3 for own in told.values())
        assert told["popularity"] == popular
        most = Counter(prefix).most_common()[0][1]
        latest = next(item for item in prefix[::-1] if prefix.count(item) == most)
        assert told["frequent"][0] == latest
        pairs = Counter(b for own in sequences for a, b in pairwise(own) if a == prefix[-1])
        first = told["markov"][0]
        assert pairs[first] == max(pairs.values()) if pairs else first == popular[0]
        scores = [sum(cosine(i, j) for i in set(prefix)) for j in range(n)]
        near = [scores[j] for j in told["neighbours"]]
        assert near == pytest.approx(sorted(scores, reverse=True)[:3], abs=1e-5)
        if not any(scores):
            assert told["neighbours"] == popular


@given(st.lists(items, min_size=2, max_size=6), items)
def test_what_may_not_come_again_is_not_told(sequences, prefix):
    played = [np.array(own) for own in sequences]
    for way in predictors(played, played, 8, again=False).values():
        (told,) = way(np.array([prefix]))
        assert len(told) == len(set(told)) == min(3, 8 - len(set(prefix)))
        assert set(told).isdisjoint(prefix)


# ------------------------------------------------------------------ how it sounds


def sounds(*rows: tuple[float, float]) -> np.ndarray:
    """(L, 13) by danceability and energy."""
    audio = np.zeros((len(rows), len(AUDIO)), np.float32)
    audio[:, :2] = rows
    audio[np.isnan(audio[:, 0])] = np.nan
    return audio


UNKNOWN = (math.nan, math.nan)


def test_smoothness_is_over_what_is_known():
    audio = sounds((1, 0), (1, 0), (0, 1), UNKNOWN, (1, 0))
    assert playlists.smoothness(audio) == pytest.approx(0.5)
    assert playlists.smoothness_at(audio, 0) == pytest.approx(1)
    assert playlists.smoothness_at(audio, 1) == pytest.approx(0.5)
    assert playlists.smoothness_at(audio, 2) == pytest.approx(0)
    assert math.isnan(playlists.smoothness_at(audio, 3))
    assert math.isnan(playlists.smoothness_at(audio, 4))
    assert math.isnan(playlists.smoothness(sounds((1, 0), UNKNOWN, (1, 0))))


# ------------------------------------------------------------------ corruptions

RNG = np.random.default_rng


def test_a_transition_is_disrupted_where_it_is_smoothest():
    """The smoothest are places 2 and 3; unlike place 2 most of all is place 0."""
    audio = sounds((0, 1), (1, 1), (1, 0.1), (1, 0.1), UNKNOWN, (1, 0.5))
    assert CORRUPTIONS["transition"].places(audio, RNG(0)) == (3, 0)
    assert CORRUPTIONS["transition"].apply("abcdef", 3, 0) == list("abcaef")
    assert CORRUPTIONS["transition"].places(sounds((1, 0), UNKNOWN, (1, 0)), RNG(0)) is None
    assert CORRUPTIONS["transition"].places(sounds((1, 0), (1, 0)), RNG(0)) is None


def test_the_most_energy_opens_or_else_the_least():
    energy = CORRUPTIONS["energy"]
    audio = sounds((1, 0.3), UNKNOWN, (1, 0.9), (1, 0.1))
    assert energy.places(audio, RNG(0)) == (0, 2)
    assert energy.apply("abcd", 0, 2) == list("cbad")
    assert energy.places(sounds((1, 0.9), (1, 0.3), UNKNOWN, (1, 0.1)), RNG(0)) == (0, 3)
    assert energy.places(sounds(UNKNOWN, (1, 0.3)), RNG(0)) == (0, 1)
    assert energy.places(sounds((1, 0.3), UNKNOWN), RNG(0)) is None
    assert energy.places(sounds(UNKNOWN, UNKNOWN), RNG(0)) is None


def test_any_track_comes_twice_anywhere():
    places = [CORRUPTIONS["duplication"].places(sounds(*[UNKNOWN] * 4), RNG(i)) for i in range(200)]
    assert set(places) == {(a, b) for a in range(4) for b in range(4) if a != b}
    assert CORRUPTIONS["duplication"].apply("abcd", 3, 1) == list("abcb")


# ------------------------------------------------------------------ groups

grouped = st.lists(st.tuples(st.floats(-9, 9), st.integers(0, 4)), min_size=1, max_size=30)


@given(grouped, st.integers(0, 3))
def test_each_in_a_group_of_its_own_is_in_none(rows, seed):
    values, groups = map(np.array, zip(*rows, strict=True))
    own = statistics.grouped_mean(values, np.arange(len(values)), seed)
    assert own == pytest.approx(statistics.bootstrap_mean(values, seed))
    found = statistics.grouped_mean(values, groups, seed)
    assert found.value == pytest.approx(values.mean())
    assert found.low <= found.value <= found.high


def test_what_depends_on_each_other_is_less_certain():
    """Ten groups of a hundred equal values say what ten values say."""
    values = RNG(0).normal(size=10)
    found = statistics.grouped_mean(np.repeat(values, 100), np.repeat(np.arange(10), 100))
    assert found == pytest.approx(statistics.bootstrap_mean(values))
    alone = statistics.bootstrap_mean(np.repeat(values, 100))
    assert found.high - found.low > 5 * (alone.high - alone.low)


def test_a_share_is_never_certain():
    found = statistics.grouped_share(np.zeros(100), np.repeat(np.arange(5), 20))
    assert found == statistics.share(np.zeros(5))
    assert found.high > 0.5
