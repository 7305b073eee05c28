"""Semantic IDs: tracks whose embeddings are alike share tokens.

lsh     locality-sensitive hashing: `levels * bits` random hyperplanes through the mean of the
        embeddings; the side of each plane is one bit, and `bits` of them make the code of a level
kmeans  the nearest of 2^bits centres; the next level tells in the same way what is left
ranked  the same but for the last level: how many of the tracks with the same codes so far are
        played more, so that hardly any two share all codes

A track is then `levels` tokens, and a playlist has no ending. Tracks come from the most played on,
so that the first of those that share their codes is what the codes most likely mean.
"""

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from redraft.errors import UserError, unknown
from redraft.tokenizers.base import SPECIALS, Tokenizer, UnknownToken, content, shorten

MOST_BITS = 16
"""Of one level; the codes of all levels fit into one integer of 62 bits."""

Codes = tuple[int | None, ...]
"""One track's codes by level; None where a token is no code of its level, as a mask is not."""


class Collisions(NamedTuple):
    """How many tracks share their codes with others."""

    tracks: int
    triplets: int
    mean: float
    largest: int

    def __str__(self) -> str:
        return (
            f"{self.tracks:,} tracks have {self.triplets:,} distinct triplets: "
            f"{self.mean:.2f} tracks each, {self.largest:,} at most"
        )


class SemanticIdTokenizer(Tokenizer):
    """Lists of track indices to tokens, and tokens to triplets of codes."""

    name = "semantic-id"
    ending = ()

    def __init__(self, codes: np.ndarray, bits: int = 7, shared: bool = True):
        self.codes = np.asarray(codes, np.int64)  # (n_tracks, levels)
        if self.codes.ndim != 2 or not self.codes.size:
            raise UserError(f"codes must be a matrix (tracks, levels), got {self.codes.shape}")
        self.width = self.codes.shape[1]
        self.bits, self.shared = bits, shared
        _check_size(self.width, bits)
        if self.codes.min() < 0 or self.codes.max() >= 2**bits:
            raise UserError(f"codes of {bits} bits must be from 0 to {2**bits - 1}")
        levels = np.arange(self.width)
        self._first = len(SPECIALS) + levels * (0 if shared else 2**bits)  # (levels,)
        self._tracks: dict[Codes, list[int]] = defaultdict(list)
        for track, triplet in enumerate(self.codes.tolist()):
            self._tracks[tuple(triplet)].append(track)
        if shared:
            super().__init__(str(code) for code in range(2**bits))
        else:
            super().__init__(f"{level}:{code}" for level in levels for code in range(2**bits))

    @classmethod
    def fit(
        cls,
        embeddings: np.ndarray,
        levels: int = 3,
        bits: int = 7,
        shared: bool = True,
        seed: int = 0,
        kind: str = "lsh",
    ) -> Self:
        """Codes for the rows of `embeddings`, (n_tracks, d)."""
        if kind not in CODES:
            raise unknown("kind of codes", kind, CODES)
        embeddings = np.asarray(embeddings, np.float64)
        if embeddings.ndim != 2 or not embeddings.size or not np.isfinite(embeddings).all():
            raise UserError(
                f"embeddings must be finite numbers (tracks, dimensions), got {embeddings.shape}"
            )
        _check_size(levels, bits)
        return cls(CODES[kind](embeddings, levels, bits, seed), bits, shared)

    def parse(self, text: str) -> list[int]:
        """Track indices, separated by white space."""
        try:
            return [int(word) for word in text.split()]
        except ValueError:
            raise UserError(
                f"a playlist is a row of track indices, got {shorten(text.strip())}"
            ) from None

    def ids(self, item: Sequence[int]) -> list[int]:
        for track in item:
            if not 0 <= track < len(self.codes):
                raise UnknownToken(
                    f"track {track} in {shorten(list(item))} is none of the known tracks, "
                    f"0 to {len(self.codes) - 1}"
                )
        return (self.codes[np.asarray(item, np.int64)] + self._first).ravel().tolist()

    def decode(self, ids: Iterable[int]) -> list[Codes]:
        known = content(ids)
        known = np.array(known[: len(known) - len(known) % self.width], np.int64)
        codes = known.reshape(-1, self.width) - self._first
        return [
            tuple(code if 0 <= code < 2**self.bits else None for code in triplet)
            for triplet in codes.tolist()
        ]

    def tracks(self, triplet: Codes) -> list[int]:
        """The tracks with these codes in their order, possibly none."""
        return list(self._tracks.get(tuple(triplet), ()))

    def meant(self) -> np.ndarray:
        """(n_tracks,) what each track becomes by way of its codes: the first that has them."""
        firsts = {triplet: tracks[0] for triplet, tracks in self._tracks.items()}
        return np.array([firsts[tuple(triplet)] for triplet in self.codes.tolist()])

    def collisions(self) -> Collisions:
        sizes = [len(tracks) for tracks in self._tracks.values()]
        return Collisions(sum(sizes), len(sizes), float(np.mean(sizes)), max(sizes))

    def to_dict(self) -> dict[str, Any]:
        settings = {"levels": self.width, "bits": self.bits, "shared": self.shared}
        return {**settings, "codes": packed(self.codes, self.bits).tolist()}

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Self:
        bits, together = stored["bits"], np.array(stored["codes"], np.int64)
        codes = together[:, None] >> bits * np.arange(stored["levels"]) & (2**bits - 1)
        return cls(codes, bits, stored["shared"])


def _check_size(levels: int, bits: int) -> None:
    if not (1 <= bits <= MOST_BITS and 1 <= levels <= 62 // bits):
        raise UserError(
            f"semantic IDs have 1 to {MOST_BITS} bits a level and at most 62 in all, "
            f"got {levels} levels of {bits} bits"
        )


# ------------------------------------------------------------------ codes


def hashed(embeddings: np.ndarray, levels: int, bits: int, seed: int) -> np.ndarray:
    """(n_tracks, levels) sides of random hyperplanes."""
    planes = np.random.default_rng(seed).normal(size=(embeddings.shape[1], levels * bits))
    sides = (embeddings - embeddings.mean(0)) @ planes > 0  # (n_tracks, levels * bits)
    return sides.reshape(-1, levels, bits) @ (1 << np.arange(bits))


def clustered(embeddings: np.ndarray, levels: int, bits: int, seed: int) -> np.ndarray:
    """(n_tracks, levels) centres of k-means, each level's of what the one before left over.

    The centres are those of the most played tracks, which come first: those are told apart best.
    """
    from scipy.cluster.vq import vq

    rng, rest, codes = np.random.default_rng(seed), embeddings, []
    for _ in range(levels):
        centres = k_means(rest[: SAMPLE * 2**bits], 2**bits, rng)
        codes.append(vq(rest, centres)[0])
        rest = rest - centres[codes[-1]]
    return np.array(codes, np.int64).reshape(levels, len(embeddings)).T


SAMPLE, ROUNDS = 256, 25
"""Rows for each centre that k-means looks at, and how often."""


def k_means(rows: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """(k, d) centres by Lloyd's rounds, from rows by chance; one that loses all rows stays."""
    from scipy.cluster.vq import kmeans2

    start = rows[rng.choice(len(rows), k, replace=len(rows) < k)]
    with warnings.catch_warnings(action="ignore"):  # of those that lose all rows
        return kmeans2(rows, start, ROUNDS, minit="matrix")[0]


def ranked(embeddings: np.ndarray, levels: int, bits: int, seed: int) -> np.ndarray:
    """(n_tracks, levels) centres of k-means, and the place among the tracks that share them.

    Places beyond the last code are all the last.
    """
    codes = clustered(embeddings, levels - 1, bits, seed)
    _, cell, sizes = np.unique(packed(codes, bits), return_inverse=True, return_counts=True)
    places = np.empty(len(codes), np.int64)
    places[np.argsort(cell, kind="stable")] = np.concatenate([np.arange(n) for n in sizes])
    return np.column_stack([codes, places.clip(max=2**bits - 1)])


def packed(codes: np.ndarray, bits: int) -> np.ndarray:
    """(n_tracks,) all codes of a track in one number."""
    return (codes << bits * np.arange(codes.shape[1])).sum(1)


CODES: dict[str, Callable[[np.ndarray, int, int, int], np.ndarray]] = {
    "lsh": hashed,
    "kmeans": clustered,
    "ranked": ranked,
}
