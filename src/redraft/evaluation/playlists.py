"""Playlists: how well is told what comes next, and what becomes of those that were corrupted.

    ndcg@3           sum_i r_i / log2(i + 1) over that of three right ones, i = 1, 2, 3
    ndcg@3_any       the same, where a truth counts as often as it is told, as in the paper
    hitrate@3        whether any of three guesses is among the three tracks that truly came
    smoothness       mean cosine of the audio features of tracks in a row, where both are known
    styles           how many different tags the tracks of a playlist have
    repair_rate      share of corrupted tokens that are others now: any change counts
    exact_recovery   whether the track that stood there came back

A track is what its codes say: right is whose codes are right. Beside the models stand simple ways
to tell what comes next; where they have less than three guesses, the most played follow. Many
tracks may share their codes, so that codes are told far more often than the very track is.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from itertools import chain, combinations, islice, pairwise
from typing import Any, NamedTuple

import numpy as np

from redraft.data.playlist_files import AUDIO

NEXT = 3
"""Tracks that are to be told."""
DISCOUNTS = [1 / math.log2(i + 2) for i in range(NEXT)]

# ------------------------------------------------------------------ next tracks


def ndcg(guesses: Sequence[Hashable], truths: Sequence[Hashable], once: bool = True) -> float:
    """How many of three guesses are right, the first of them counting most.

    Each truth counts once, so that nothing is won by saying it twice; else as often as it is said.

    >>> ndcg("abc", "cba"), round(ndcg("axx", "abc"), 3), round(ndcg("xxa", "abc"), 3)
    (1.0, 0.469, 0.235)
    >>> round(ndcg("aaa", "abc"), 3), ndcg("aaa", "abc", once=False)
    (0.469, 1.0)
    """
    left, found = Counter(truths), 0.0
    for guess, discount in zip(guesses, DISCOUNTS, strict=False):
        if left[guess] > 0:
            found += discount
            left[guess] -= once
    return found / sum(DISCOUNTS)


def hit(guesses: Sequence[Hashable], truths: Sequence[Hashable]) -> float:
    """Whether any guess is right.

    >>> hit("xxa", "abc"), hit("xyz", "abc")
    (1.0, 0.0)
    """
    return float(not set(truths).isdisjoint(guesses[:NEXT]))


def voted(
    draws: Sequence[Sequence[Any]], before: Sequence[Any] = (), weight: float = 0
) -> list[Any]:
    """Three guesses from many draws: what most of them have, and of those what came first.

    What was played `before`, the latest first, shares `weight` times as many votes as there are
    draws; what has no vote is not told.

    >>> voted(["abc", "bcc", "bxy"])
    ['b', 'c', 'a']
    >>> voted(["abc", "bcc", "bxy"], before="aayx", weight=1)
    ['b', 'a', 'c']
    >>> voted(["b"], before="a")
    ['b']
    """
    votes = defaultdict[Any, float](float)
    for item in chain.from_iterable(map(dict.fromkeys, draws)):
        votes[item] += 1
    for item in reversed(before):
        votes[item] += weight * len(draws) / len(before)
    told = [item for item, count in votes.items() if count > 0]
    return sorted(told, key=votes.__getitem__, reverse=True)[:NEXT]


def agreement(draws: Sequence[Sequence[Hashable]]) -> float:
    """How often one draw hits another; NaN where there is but one.

    >>> agreement(["abc", "axy", "uvw"]) == 1 / 3
    True
    """
    pairs = [hit(*pair) for pair in combinations(draws, 2)]
    return float(np.mean(pairs)) if pairs else math.nan


Predictor = Callable[[np.ndarray], list[list[int]]]
"""Three items that may follow each of some prefixes, (n, L)."""


def predictors(
    sequences: Sequence[np.ndarray], windows: Sequence[np.ndarray], n: int, again: bool = True
) -> dict[str, Predictor]:
    """Simple ways to tell what comes next, learned from sequences of the items 0 to n - 1.

    popularity   what is played most
    frequent     what the prefix has most often; of those, the latest
    markov       what most often comes after the last one
    neighbours   what is in the same windows as the items of the prefix, by cosine

    Unless items may come `again`, none of the prefix is told.
    """
    plays = np.bincount(np.concatenate(sequences), minlength=n)
    popular = np.argsort(-plays, kind="stable").tolist()
    followers = after(sequences)

    def each(own: Callable[[list[int]], Counter[int]]) -> Predictor:
        return lambda prefixes: [
            likeliest(own(prefix), popular, set() if again else set(prefix))
            for prefix in prefixes.tolist()
        ]

    return {
        "popularity": each(lambda prefix: Counter()),
        "frequent": each(lambda prefix: Counter(reversed(prefix))),
        "markov": each(lambda prefix: followers.get(prefix[-1], Counter())),
        "neighbours": each(neighbours(windows, plays)),
    }


def likeliest(own: Counter[int], popular: Sequence[int], taken: set[int]) -> list[int]:
    """The three most counted, or else popular ones, that are not taken.

    >>> likeliest(Counter({7: 2, 4: 1}), popular=[4, 5, 6], taken={5})
    [7, 4, 6]
    """
    ranked = chain((item for item, _ in own.most_common()), popular)
    new = (item for item in ranked if item not in taken)
    return [*dict.fromkeys(islice(new, 2 * NEXT))][:NEXT]  # none comes more than twice


def after(sequences: Sequence[np.ndarray]) -> dict[int, Counter[int]]:
    """How often each item is followed by which."""
    found: dict[int, Counter[int]] = defaultdict(Counter)
    for played in sequences:
        for item, following in pairwise(played.tolist()):
            found[item][following] += 1
    return dict(found)


def neighbours(
    windows: Sequence[np.ndarray], plays: np.ndarray
) -> Callable[[list[int]], Counter[int]]:
    """score(j) = sum over i of the prefix of cos(i, j), i != j, of the windows that they are in.

    All with any of it; of equal scores those played more come first.
    """
    W = present(windows, len(plays))
    sizes = np.asarray(W.sum(1)).ravel()
    W = W.multiply(1 / np.sqrt(np.maximum(sizes, 1))[:, None]).tocsr()  # rows of length 1

    def alike(prefix: list[int]) -> Counter[int]:
        own = np.unique(prefix)
        scores = W @ np.asarray(W[own].sum(0)).ravel()  # (n,)
        scores[own] -= sizes[own] > 0  # cos(i, i) = 1
        scores = scores.round(5)
        found = np.flatnonzero(scores > 0)
        best = found[np.lexsort((-plays[found], -scores[found]))]
        return Counter(dict(zip(best.tolist(), scores[best].tolist(), strict=True)))

    return alike


def present(windows: Sequence[np.ndarray], n: int) -> Any:
    """(n, windows) sparse: 1 where an item is in a window."""
    from scipy.sparse import csr_matrix

    place = np.repeat(np.arange(len(windows)), [len(window) for window in windows])
    items = np.concatenate(list(windows))
    found = csr_matrix((np.ones(len(items)), (items, place)), (n, len(windows)))
    found.data[:] = 1  # however often
    return found


# ------------------------------------------------------------------ how a playlist sounds


def transitions(audio: np.ndarray) -> np.ndarray:
    """(L - 1,) cosines of rows (L, 13) that follow each other; NaN where one is not known."""
    return cosines(audio[:-1], audio[1:])


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Of rows, in float64; NaN where one is not known, or nothing but 0."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    sizes = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    return (a * b).sum(-1) / np.where(sizes > 0, sizes, np.nan)


def smoothness(audio: np.ndarray) -> float:
    """Over all that is known; NaN where no two tracks in a row are."""
    return mean_known(transitions(audio))


def smoothness_at(audio: np.ndarray, place: int) -> float:
    """Of the one or two transitions into and out of a place."""
    return mean_known(transitions(audio)[max(place - 1, 0) : place + 1])


def mean_known(values: np.ndarray) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else math.nan


# ------------------------------------------------------------------ corruptions


class Corruption(NamedTuple):
    """A way to hurt a playlist: the track of one place comes to stand at another."""

    places: Callable[[np.ndarray, np.random.Generator], tuple[int, int] | None]
    """Where it hurts, and whence the track comes, by audio features (L, 13); or None."""
    swaps: bool = False
    """Whether the track that stood there goes to where the other came from; it is not repaired."""

    def apply(self, items: Sequence[Any], place: int, source: int) -> list[Any]:
        found = list(items)
        found[place] = items[source]
        if self.swaps:
            found[source] = items[place]
        return found


def duplicated(audio: np.ndarray, rng: np.random.Generator) -> tuple[int, int]:
    """Any track comes twice."""
    source, place = rng.permutation(len(audio))[:2].tolist()
    return place, source


def disrupted(audio: np.ndarray, rng: np.random.Generator) -> tuple[int, int] | None:
    """After the smoothest transition stands what sounds least like the track before it."""
    known = transitions(audio)
    if np.isnan(known).all():
        return None
    i = int(np.nanargmax(known))
    alike = cosines(audio, audio[i])
    alike[[i, i + 1]] = np.nan
    return None if np.isnan(alike).all() else (i + 1, int(np.nanargmin(alike)))


def misplaced(audio: np.ndarray, rng: np.random.Generator) -> tuple[int, int] | None:
    """The track with the most energy opens the playlist; the one with the least, if it did so."""
    energy = audio[:, AUDIO.index("energy")]
    if np.isnan(energy).all():
        return None
    source = int(np.nanargmax(energy)) or int(np.nanargmin(energy))
    return (0, source) if source else None


CORRUPTIONS = {
    "duplication": Corruption(duplicated),
    "transition": Corruption(disrupted),
    "energy": Corruption(misplaced, swaps=True),
}


def repair_rate(drawn: Sequence[Hashable], corrupted: Sequence[Hashable]) -> float:
    """Share of a track's tokens that are no longer the corrupted ones.

    >>> repair_rate((1, 2, 3), (1, 5, 6)) == 2 / 3
    True
    """
    return float(np.mean([new != old for new, old in zip(drawn, corrupted, strict=True)]))
