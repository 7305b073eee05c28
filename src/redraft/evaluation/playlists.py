"""Playlists: how well is told what comes next, and what becomes of those that were corrupted.

    ndcg@3           sum_i r_i / log2(i + 1) over that of three right ones, i = 1, 2, 3
    ndcg@3_any       the same, where a truth counts as often as it is told, as in the paper
    hitrate@3        whether any of three guesses is among the three tracks that truly came
    smoothness       mean cosine of the audio features of tracks in a row, where both are known
    styles           how many different tags the tracks of a playlist have
    repair_rate      share of corrupted tokens that are others now: any change counts
    exact_recovery   whether the track that stood there came back

A track is what its codes say: right is whose codes are right. Beside the models stand simple ways
to tell what comes next; where they have less than three guesses, the most played follow.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
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


def voted(draws: Sequence[Sequence[Any]]) -> list[Any]:
    """Three guesses from many draws: what most of them have, and of those what came first.

    >>> voted(["abc", "bcc", "bxy"])
    ['b', 'c', 'a']
    """
    votes = Counter(item for draw in draws for item in dict.fromkeys(draw))
    return [item for item, _ in votes.most_common(NEXT)]


Predictor = Callable[[np.ndarray], np.ndarray]
"""Three items that may follow each of some prefixes, (n, L) to (n, 3)."""


def predictors(
    sequences: Sequence[np.ndarray], windows: Sequence[np.ndarray], n: int
) -> dict[str, Predictor]:
    """Simple ways to tell what comes next, learned from sequences of the items 0 to n - 1.

    popularity   what is played most
    frequent     what the prefix has most often; of those, the latest
    markov       what most often comes after the last one
    neighbours   what is in the same windows as the items of the prefix, by cosine
    """
    counts = np.bincount(np.concatenate(sequences), minlength=n)
    popular = np.argsort(-counts, kind="stable")[:NEXT].tolist()
    followers = after(sequences)
    similar = neighbours(windows, counts)

    def each(own: Callable[[list[int]], Counter[int]]) -> Predictor:
        return lambda prefixes: np.array(
            [filled(own(prefix), popular) for prefix in prefixes.tolist()]
        )

    return {
        "popularity": each(lambda prefix: Counter()),
        "frequent": each(lambda prefix: Counter(reversed(prefix))),
        "markov": each(lambda prefix: followers.get(prefix[-1], Counter())),
        "neighbours": similar,
    }


def filled(own: Counter[int], popular: Sequence[int]) -> list[int]:
    """The three most counted, or else popular ones."""
    found = [item for item, _ in own.most_common(NEXT)]
    return [*dict.fromkeys([*found, *popular])][:NEXT]


def after(sequences: Sequence[np.ndarray]) -> dict[int, Counter[int]]:
    """How often each item is followed by which."""
    found: dict[int, Counter[int]] = defaultdict(Counter)
    for played in sequences:
        for item, following in pairwise(played.tolist()):
            found[item][following] += 1
    return dict(found)


def neighbours(windows: Sequence[np.ndarray], plays: np.ndarray) -> Predictor:
    """score(j) = sum over i of the prefix of cos(i, j), i != j, of the windows that they are in.

    Of equal scores those played more come first.
    """
    n = len(plays)
    W = present(windows, n)
    sizes = np.asarray(W.sum(0)).ravel()
    W = W.multiply(1 / np.sqrt(np.maximum(sizes, 1))).tocsr()  # (windows, n), columns of length 1

    def predict(prefixes: np.ndarray) -> np.ndarray:
        X = present(prefixes, n)
        scores = (X @ W.T @ W).toarray()
        scores -= X.multiply(sizes > 0).toarray()  # cos(i, i) = 1
        return np.lexsort((np.broadcast_to(-plays, scores.shape), -scores.round(5)))[:, :NEXT]

    return predict


def present(rows: Sequence[np.ndarray] | np.ndarray, n: int) -> Any:
    """(rows, n) sparse: 1 where a row has an item."""
    from scipy.sparse import csr_matrix

    place = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    items = np.concatenate(list(rows))
    found = csr_matrix((np.ones(len(items), np.float32), (place, items)), (len(rows), n))
    found.data[:] = 1
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
