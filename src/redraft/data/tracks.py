"""Tracks: where they lie among each other, and what is known of them.

Tracks that are played near each other lie near each other: rows of a truncated singular value
decomposition of positive pointwise mutual information,

    log(p(a, b) / (p(a) q(b))), where that is above 0, and q(b) is in proportion to p(b)^0.75.

Near means ten tracks away at most. Over a whole window neighbours have as many tags in common, but
all that a playlist holds becomes one place, and twice as many tracks share a triplet of codes.

Letters: N tracks, D dimensions, M different triplets of codes.
"""

import gzip
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from safetensors.numpy import load as parse_arrays
from safetensors.numpy import save as format_arrays

from redraft.data.playlist_files import AUDIO, Track
from redraft.errors import UserError

WIDTH = 80
REACH = 10
"""How many tracks away one that is played together with another may be."""
FAINT = 1e-8
"""Rows that are shorter, for the longest, are but rounding: such tracks are played with none of
those that the dimensions tell apart."""
LARGE = 1e18
"""Embeddings have smaller numbers, whose squares are finite in float32."""
SMOOTHING = 0.75
"""Power of the second track's frequency; below 1, rare tracks are not made too much of."""


# ------------------------------------------------------------------ embeddings


def embed(sequences: Sequence[np.ndarray], n: int, reach: int = REACH) -> np.ndarray:
    """(N, D) rows of length 1 for those of the tracks 0 to n - 1 whose place the sequences tell;
    other rows are not numbers."""
    from scipy.sparse.linalg import svds

    counts = together(sequences, n, reach)
    information = positive_information(counts) if counts.nnz else counts
    if not information.nnz:
        raise UserError(
            "no two different tracks are played together more often than by chance, so that none "
            "can be placed; --embeddings takes places from a file"
        )
    if n > 2 * WIDTH:
        found: Any = svds(information, WIDTH, v0=np.full(n, n**-0.5))
    else:
        found = np.linalg.svd(information.toarray())
    left, values, _ = found
    left, values = left[:, :WIDTH], values[:WIDTH]
    rows = left * np.sqrt(values) * np.sign((left**3).sum(0))  # else signs are left to chance
    lengths = np.linalg.norm(rows, axis=1)
    alone = np.diff(information.indptr) == 0
    rows = unit(rows)
    rows[alone | (lengths < lengths.max() * FAINT)] = np.nan
    return rows.astype(np.float32)


def together(sequences: Sequence[np.ndarray], n: int, reach: int) -> Any:
    """(N, N) How often two tracks are near each other; the nearer, the more it counts."""
    from scipy.sparse import csr_matrix

    counts = csr_matrix((n, n), dtype=np.float32)
    for distance in range(1, reach + 1):
        pairs = [(s[:-distance], s[distance:]) for s in sequences if len(s) > distance]
        if not pairs:
            break
        first, second = (np.concatenate(side) for side in zip(*pairs, strict=True))
        other = first != second
        weights = np.full(other.sum(), 1 - distance / (reach + 1), np.float32)
        counts += csr_matrix((weights, (first[other], second[other])), (n, n))
    return counts + counts.T


def positive_information(counts: Any) -> Any:
    from scipy.sparse import csr_matrix

    counts = counts.tocoo()
    total = np.asarray(counts.sum(1), np.float64).ravel()
    smooth = total**SMOOTHING
    chance = total[counts.row] * (smooth / smooth.sum())[counts.col]
    information = np.log(counts.data / chance)
    above = information > 0
    rows, columns = counts.row[above], counts.col[above]
    return csr_matrix((information[above], (rows, columns)), counts.shape)


def unit(rows: np.ndarray) -> np.ndarray:
    """Rows of length 1; where there is nothing, nothing."""
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def read_embeddings(path: str, n: int) -> np.ndarray:
    """An .npy file with a row for each of n tracks, which is all NaN where a track has none."""
    try:
        rows = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        reason = getattr(error, "strerror", None) or "it is no .npy file of numbers"
        raise UserError(f"{path} cannot be read: {reason}") from None
    if getattr(rows, "ndim", 0) != 2 or rows.dtype.kind not in "fiu" or len(rows) != n:
        got = f"{rows.dtype} {rows.shape}" if isinstance(rows, np.ndarray) else "an archive"
        raise UserError(f"{path} must have a row of numbers for each of {n:,} tracks, got {got}")
    missing = np.isnan(rows).all(1, keepdims=True)
    if missing.all():
        raise UserError(f"{path} must hold finite numbers, got none in any row")
    for row, column in np.argwhere(~(missing | (np.abs(rows) < LARGE))):
        raise UserError(
            f"{path}, row {row} must hold numbers from -{LARGE:g} to {LARGE:g}, or nothing but NaN "
            f"for a track that has no embedding, got {rows[row, column]:g}"
        )
    return rows.astype(np.float32)


# ------------------------------------------------------------------ what is missing

SOURCES = ("own", "artist", "tags", "random")
"""Where an embedding comes from: the track itself, the mean of its artist or of its tags, or a hash
of its name."""


def filled(rows: np.ndarray, catalogue: "Catalogue") -> tuple[np.ndarray, np.ndarray]:
    """(N, D) with a row for every track, and (N,) the source of each."""
    rows = rows.copy()
    source = np.where(np.isnan(rows).any(1), len(SOURCES) - 1, 0).astype(np.uint8)
    own = source == 0
    length = np.linalg.norm(rows[own], axis=1).mean()
    for kind, members in ((1, catalogue.by_artist), (2, catalogue.tags)):
        means = unit(members @ centres(members[own], rows[own])) * length  # (N, D)
        taken = (source > kind) & means.any(1)
        rows[taken], source[taken] = means[taken], kind
    for track in np.flatnonzero(source == len(SOURCES) - 1):
        rows[track] = _random(catalogue.keys[track], rows.shape[1]) * length
    return rows, source


def centres(members: Any, rows: np.ndarray) -> np.ndarray:
    """Mean rows of groups, whose members are marked (rows, groups)."""
    sizes = np.asarray(members.sum(0)).reshape(-1, 1)
    return (members.T @ rows) / np.maximum(sizes, 1)


def _random(key: str, width: int) -> np.ndarray:
    seed = int.from_bytes(blake2b(key.encode("utf-8", "replace"), digest_size=8).digest(), "big")
    return unit(np.random.default_rng(seed).normal(size=(1, width)))[0]


# ------------------------------------------------------------------ are they sane?


class Neighbours(NamedTuple):
    """How many tracks have a tag in common with the nearest track of another artist."""

    n: int
    share: float
    low: float
    high: float
    chance: float
    """The same of any track of another artist."""

    def __str__(self) -> str:
        return (
            f"of {self.n:,} tracks {self.share:.1%} ({self.low:.1%} to {self.high:.1%}) have a "
            f"tag in common with the nearest of another artist, {self.chance:.1%} by chance"
        )


def neighbours(
    rows: np.ndarray, catalogue: "Catalogue", own: np.ndarray, most: int = 2000, seed: int = 0
) -> Neighbours | None:
    """Asked of at most so many of the tracks that are their `own` source and have tags; None where
    no two of different artists have one in common."""
    from scipy.stats import binomtest

    known = np.flatnonzero(own & (np.diff(catalogue.tags.indptr) > 0))
    if len(known) < 2:
        return None
    tags, artists = catalogue.tags[known], catalogue.by_artist[known]
    directions = unit(rows[known])
    asked = np.random.default_rng(seed).permutation(len(known))[:most]
    alike, chances = [], []
    for some in np.array_split(asked, -(-len(asked) // 200)):
        others = ~(artists[some] @ artists.T).toarray().astype(bool)  # (some, known)
        others[np.arange(len(some)), some] = False
        common = (tags[some] @ tags.T).toarray() > 0
        nearest = np.where(others, directions[some] @ directions.T, -np.inf).argmax(1)
        has = others.any(1)
        alike.extend(common[np.arange(len(some)), nearest][has])
        chances.extend((common & others).sum(1)[has] / others.sum(1)[has])
    if not any(chances):
        return None
    low, high = binomtest(int(np.sum(alike)), len(alike)).proportion_ci(0.95, "wilson")
    return Neighbours(len(alike), float(np.mean(alike)), low, high, float(np.mean(chances)))


# ------------------------------------------------------------------ what is known

Triplet = tuple[int | None, ...]


@dataclass(frozen=True, eq=False)
class Catalogue:
    """What is known of tracks, the most played first; for people, and for evaluation."""

    keys: list[str]
    artists: list[str]
    titles: list[str]
    styles: list[str]
    """The tags that there are."""
    tags: Any
    """(N, tags) sparse: which tags a track has."""
    audio: np.ndarray
    """(N, 13) features from 0 to 1, not a number where one is not known."""

    @classmethod
    def of(cls, tracks: Sequence[Track]) -> Self:
        styles = sorted({tag for track in tracks for tag in track.tags})
        place = {tag: i for i, tag in enumerate(styles)}
        audio = [[track.audio.get(name, np.nan) for name in AUDIO] for track in tracks]
        return cls(
            keys=[track.key for track in tracks],
            artists=[track.artist for track in tracks],
            titles=[track.title for track in tracks],
            styles=styles,
            tags=marked([sorted({place[tag] for tag in track.tags}) for track in tracks], styles),
            audio=normalised(np.array(audio, float).reshape(-1, len(AUDIO))).astype(np.float32),
        )

    @cached_property
    def by_artist(self) -> Any:
        """(N, artists) sparse: whose a track is, where that is said."""
        names = sorted(set(self.artists) - {""})
        place = {name: i for i, name in enumerate(names)}
        return marked([[place[name]] if name else [] for name in self.artists], names)

    @property
    def heard(self) -> np.ndarray:
        """(N,) of which tracks any feature is known."""
        return np.asarray(np.isfinite(self.audio).any(1))

    def name(self, track: int) -> str:
        return " - ".join(filter(None, (self.artists[track], self.titles[track])))

    @cached_property
    def _places(self) -> dict[str, int]:
        everything = range(len(self.keys) - 1, -1, -1)  # so that the most played is found
        titles = {self.titles[track].casefold(): track for track in everything}
        names = {self.name(track).casefold(): track for track in everything}
        return titles | names | {key: track for track, key in enumerate(self.keys)}

    def find(self, text: str) -> int:
        """The track of a key, an "artist - title", or a title; the most played of several."""
        for known in (text.strip(), text.strip().casefold()):
            if known and known in self._places:
                return self._places[known]
        raise UserError(
            f"unknown track {text.strip()[:60]!r}: a key, a title or 'artist - title' of one of "
            f"{len(self.keys):,} tracks is needed, such as {self.name(0)!r}"
        )

    def by_triplet(self, codes: np.ndarray) -> "Triplets":
        return Triplets.of(self, codes)

    # ---------------------------------------------------------------- files

    def save(self, folder: Path) -> None:
        arrays = {
            "audio": self.audio,
            "tags": self.tags.indices.astype(np.int32),
            "ends": self.tags.indptr.astype(np.int64),
        }
        words = {name: getattr(self, name) for name in ("keys", "artists", "titles", "styles")}
        save_arrays(folder / KNOWN, arrays)
        (folder / WORDS).write_bytes(gzip.compress(json.dumps(words).encode(), mtime=0))

    @classmethod
    def load(cls, folder: Path) -> Self:
        from scipy.sparse import csr_matrix

        arrays = load_arrays(folder / KNOWN)
        words = json.loads(gzip.decompress((folder / WORDS).read_bytes()))
        ones = np.ones(len(arrays["tags"]), np.float32)
        shape = (len(words["keys"]), len(words["styles"]))
        tags = csr_matrix((ones, arrays["tags"], arrays["ends"]), shape)
        return cls(**words, tags=tags, audio=arrays["audio"])


KNOWN, WORDS = "tracks.safetensors.gz", "tracks.json.gz"


def marked(rows: Sequence[Sequence[int]], columns: Sequence[str]) -> Any:
    """(rows, columns) sparse: 1 where a row names a column."""
    from scipy.sparse import csr_matrix

    ends = np.cumsum([0, *map(len, rows)])
    places = np.fromiter((place for row in rows for place in row), np.int32, ends[-1])
    return csr_matrix((np.ones(ends[-1], np.float32), places, ends), (len(rows), len(columns)))


def normalised(audio: np.ndarray) -> np.ndarray:
    """Features from 0 to 1; the outermost hundredth on either side is cut."""
    scaled = np.full_like(audio, np.nan)
    for column in range(audio.shape[1]):
        known = np.isfinite(audio[:, column])
        if known.any():
            values = audio[known, column]
            low, high = np.percentile(values, (1, 99))
            scaled[known, column] = np.clip((values - low) / max(high - low, 1e-9), 0, 1)
    return scaled


def save_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    plain = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    path.write_bytes(gzip.compress(format_arrays(plain), 6, mtime=0))


def load_arrays(path: Path) -> dict[str, np.ndarray]:
    return parse_arrays(gzip.decompress(path.read_bytes()))


# ------------------------------------------------------------------ triplets of codes


@dataclass(frozen=True, eq=False)
class Triplets:
    """What is known of the tracks that share their codes."""

    place: dict[Triplet, int]
    audio: np.ndarray
    """(M, 13) means over their tracks, not a number where no track has any feature."""
    tags: Any
    """(M, tags) sparse: which tags any of their tracks has."""
    styles: list[str]

    @classmethod
    def of(cls, catalogue: Catalogue, codes: np.ndarray) -> Self:
        different, place = np.unique(codes, axis=0, return_inverse=True)
        names = [tuple(triplet) for triplet in different.tolist()]
        members = marked(place.reshape(-1, 1).tolist(), [""] * len(names)).T.tocsr()  # (M, N)
        return cls(
            place={name: i for i, name in enumerate(names)},
            audio=mean_known(members, catalogue.audio),
            tags=members @ catalogue.tags,
            styles=catalogue.styles,
        )

    def audio_of(self, triplets: Iterable[Triplet]) -> np.ndarray:
        """(L, 13) Rows are not a number where no track has these codes, or none has features."""
        nothing = np.full((1, self.audio.shape[1]), np.nan, np.float32)
        places = [self.place.get(triplet, -1) for triplet in triplets]
        return np.concatenate([self.audio, nothing])[places]

    def tags_of(self, triplets: Iterable[Triplet]) -> set[str]:
        """All styles of a playlist."""
        places = sorted({self.place[triplet] for triplet in triplets if triplet in self.place})
        return {self.styles[tag] for tag in self.tags[places].indices}


def mean_known(members: Any, audio: np.ndarray) -> np.ndarray:
    """Means over members; a feature that none has, where others are known, is as in all tracks."""
    known = np.isfinite(audio)
    sums, counts = members @ np.where(known, audio, 0), members @ known.astype(np.float32)
    everywhere = np.where(known, audio, 0).sum(0) / np.maximum(known.sum(0), 1)
    means = np.where(counts > 0, sums / np.maximum(counts, 1), everywhere)
    means[~counts.any(1)] = np.nan
    return means.astype(np.float32)
