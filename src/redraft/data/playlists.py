"""Playlists: rows of track indices, from files or made up.

What is learned from is prepared once: tracks are numbered from the most played on and placed among
each other, sequences fall into parts by their groups, and all is kept in the cache, the part that
training needs apart from what is known of the tracks. Windows are cut when they are asked for.

In the made-up ones tracks lie around the centres of latent genres. A playlist walks from a track to
one of its nearest that it has not played yet, and now and then jumps to another genre.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from redraft.config import check
from redraft.data import playlist_files, tracks, wheels
from redraft.data.corpus import Corpus, split
from redraft.data.playlist_files import Listening, Played
from redraft.data.tracks import WIDTH, Catalogue
from redraft.errors import UserError, unknown

NEIGHBOURS = 64
JUMPS = 0.04
GENRES = 16

# ------------------------------------------------------------------ windows

WINDOW, STRIDE = 50, 10
LEAST = 4
"""Tracks of the shortest playlist: one to begin with, and three that may follow."""
RARE = 5
"""Tracks with fewer plays to learn from are counted as rare."""


def windows(played: np.ndarray, length: int = WINDOW, stride: int = STRIDE) -> list[np.ndarray]:
    """Overlapping pieces of a sequence; all of it, where it is shorter than one.

    >>> [piece.tolist() for piece in windows(np.arange(7), length=4, stride=2)]
    [[0, 1, 2, 3], [2, 3, 4, 5]]
    """
    starts = range(0, max(len(played) - length, 0) + 1, stride)
    return [played[start : start + length] for start in starts]


# ------------------------------------------------------------------ prepared once

NAME = "playlists"
"""Of what is prepared, in the cache and in recipes."""
PLAYS, EMBEDDINGS = "playlists.safetensors.gz", "embeddings.safetensors.gz"
FOR_TRAINING, FOR_EVALUATION = (PLAYS,), (EMBEDDINGS, tracks.KNOWN, tracks.WORDS)
PARTS = ("train", "held_out", "validation")


@dataclass(frozen=True)
class Request:
    """What is to be prepared."""

    files: tuple[str, ...]
    features: str | None = None
    """A CSV that tells how tracks sound, and of their tags."""
    embeddings: str | None = None
    """An .npy file with a row for each track, instead of those learned from what is played."""
    origin: str | None = None
    """One sentence on what the playlists are."""

    def __post_init__(self):
        check(bool(self.files), "playlists need --file, there are none to be fetched")
        for file in self.files:
            check(self.files.count(file) == 1, f"a file counts once, {file} is named again")

    def facts(self) -> dict[str, Any]:
        """What tells it from other requests: files count by what is in them."""
        return {
            "title": self.title,
            "files": [wheels.digest_of(file) for file in self.files],
            "features": wheels.digest_of(self.features) if self.features else None,
            "embeddings": wheels.digest_of(self.embeddings) if self.embeddings else None,
        }

    @property
    def title(self) -> str:
        names = ", ".join(Path(file).name for file in self.files)
        return self.origin.strip().rstrip(".") if self.origin else f"Playlists of {names}"


@dataclass(frozen=True)
class Gathered:
    """Sequences in parts, of tracks that are numbered from the most played on."""

    parts: Mapping[str, list[Played]]
    catalogue: Catalogue
    rows: np.ndarray
    """(N, D) embeddings."""
    source: np.ndarray
    """(N,) where each comes from."""
    counts: dict[str, Any]


def gather(request: Request) -> Gathered:
    listening = playlist_files.read(request.files)
    if request.features:
        listening = playlist_files.with_features(listening, request.features)
    given = None
    if request.embeddings:
        given = tracks.read_embeddings(request.embeddings, len(listening.tracks))
    long = [sequence for sequence in listening.sequences if len(sequence.tracks) >= LEAST]
    check(
        bool(long),
        f"playlists of at least {LEAST} tracks are needed, none of "
        f"{len(listening.sequences):,} has as many",
    )
    order, parts = numbered(listening, long)
    catalogue = Catalogue.of([listening.tracks[track] for track in order])
    if given is None:
        wheels.tell(f"placing {len(order):,} tracks among each other, once")
        played = [sequence.tracks for sequence in parts["train"]]
        rows = tracks.embed(played, len(order))
    else:
        rows = given[order]
    rows, source = tracks.filled(rows, catalogue)
    sane = tracks.neighbours(rows, catalogue, source == 0)
    counts = {
        "short": len(listening.sequences) - len(long),
        "neighbours": sane and sane._asdict(),
        **census(parts, catalogue, source),
    }
    return Gathered(parts, catalogue, rows, source, counts)


def numbered(
    listening: Listening, sequences: list[Played]
) -> tuple[np.ndarray, dict[str, list[Played]]]:
    """The order of tracks, the most played in training first; and parts with its numbers."""
    try:
        parts = dict(zip(PARTS, split(sequences, lambda sequence: sequence.group), strict=True))
    except UserError:
        raise UserError(
            f"playlists of at least 3 groups are needed, so that none is both learned from and "
            f"judged by, got {len({sequence.group for sequence in sequences})}"
        ) from None
    learned = np.concatenate([sequence.tracks for sequence in parts["train"]])
    order = np.argsort(-np.bincount(learned, minlength=len(listening.tracks)), kind="stable")
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return order, {
        part: [Played(group, rank[played]) for group, played in own] for part, own in parts.items()
    }


def census(
    parts: Mapping[str, list[Played]], catalogue: Catalogue, source: np.ndarray
) -> dict[str, Any]:
    """What there is, and what is missing."""
    n = len(source)
    plays = {part: np.concatenate([s.tracks for s in own]) for part, own in parts.items()}
    everything = np.concatenate(list(plays.values()))
    learned = np.bincount(plays["train"], minlength=n)
    tagged = np.diff(catalogue.tags.indptr) > 0
    return {
        "tracks": n,
        "rare": int(((learned > 0) & (learned < RARE)).sum()),
        "unlearned": int((learned == 0).sum()),
        "unplayed": n - len(np.unique(everything)),
        "heard": [int(catalogue.heard.sum()), float(catalogue.heard[everything].mean())],
        "tagged": [int(tagged.sum()), float(tagged[everything].mean())],
        "sources": {
            kind: [int((source == i).sum()), float((source[plays["validation"]] == i).mean())]
            for i, kind in enumerate(tracks.SOURCES)
        },
        "parts": {part: _part(own) for part, own in parts.items()},
    }


def _part(sequences: list[Played]) -> dict[str, int]:
    lengths = np.array([len(sequence.tracks) for sequence in sequences])
    pieces = sum(len(windows(sequence.tracks)) for sequence in sequences)
    return {
        "groups": len({sequence.group for sequence in sequences}),
        "sequences": len(sequences),
        "plays": int(lengths.sum()),
        "windows": pieces,
        "short": int((lengths < WINDOW).sum()),
        "left": int(np.maximum(lengths - WINDOW, 0).sum()) - STRIDE * (pieces - len(sequences)),
    }


@dataclass(frozen=True)
class Prepared:
    """Playlists in the cache."""

    folder: Path
    origin: str
    counts: Mapping[str, Any]

    @cached_property
    def _arrays(self) -> dict[str, np.ndarray]:
        return tracks.load_arrays(self.folder / PLAYS)

    def sequences(self, part: str) -> list[np.ndarray]:
        """Whole sequences of tracks."""
        ends = np.cumsum(self._arrays[f"{part}_lengths"], dtype=np.int64)
        return np.split(self._arrays[part], ends[:-1])

    def windows(self, part: str) -> tuple[list[np.ndarray], np.ndarray]:
        """Windows in an order without meaning, so that the first ones are a fair sample; and the
        group of each, since those of one group are not independent."""
        groups = self._arrays[f"{part}_groups"]
        found = [
            (piece, group)
            for played, group in zip(self.sequences(part), groups, strict=True)
            for piece in windows(played)
        ]
        order = np.random.default_rng(0).permutation(len(found))
        return [found[i][0] for i in order], np.array([found[i][1] for i in order])

    def corpus(self) -> Corpus:
        """Items are windows: arrays of track indices."""
        train, held_out, validation = (self.windows(part)[0] for part in PARTS)
        return Corpus(train, held_out, validation, self.origin)

    def codes(self, kind: str) -> np.ndarray:
        """(N, levels) semantic IDs."""
        if kind not in self.kinds:
            raise unknown("kind of codes", kind, self.kinds)
        return self._arrays[CODES + kind]

    @property
    def kinds(self) -> list[str]:
        """Of codes that were prepared."""
        return [name.removeprefix(CODES) for name in self._arrays if name.startswith(CODES)]

    def catalogue(self) -> Catalogue:
        """What is known of the tracks."""
        self._require_the_rest()
        return Catalogue.load(self.folder)

    def embeddings(self) -> tuple[np.ndarray, np.ndarray]:
        """(N, D) rows, and (N,) which of tracks.SOURCES each comes from."""
        self._require_the_rest()
        arrays = tracks.load_arrays(self.folder / EMBEDDINGS)
        return arrays["rows"].astype(np.float32), arrays["source"]

    def _require_the_rest(self) -> None:
        if find(self.folder, files=FOR_EVALUATION) is None:
            raise UserError(
                f"{self.folder} has what training needs, but not what is known of the tracks "
                f"({', '.join(FOR_EVALUATION)}), or it is damaged"
            )

    def __str__(self) -> str:
        travels, rest = (
            sum((self.folder / name).stat().st_size for name in names) / 1e6
            for names in ((*FOR_TRAINING, wheels.FACTS), FOR_EVALUATION)
        )
        lies = f"lies in: {self.folder} ({travels:.1f} MB to train from, {rest:.1f} MB of tracks)"
        return "\n".join([self.origin, *told(self.counts), lies])


CODES = "codes_"


def told(counts: Mapping[str, Any]) -> list[str]:
    """What became of everything, in lines."""
    parts = [
        f"{part.replace('_', '-')}: {own['windows']:,} windows of {own['sequences']:,} sequences "
        f"in {own['groups']:,} groups; {own['short']:,} windows are shorter than {WINDOW} tracks, "
        f"and {own['left']:,} of {own['plays']:,} plays are after the last window"
        for part, own in counts["parts"].items()
    ]
    known = [
        f"{name}: {n:,} tracks, {share:.0%} of plays"
        for name, (n, share) in (
            ("audio features", counts["heard"]),
            ("tags", counts["tagged"]),
        )
    ]
    sources = [
        f"{n:,} {kind} ({share:.1%} of validation plays)"
        for kind, (n, share) in counts["sources"].items()
    ]
    codes = [f"{kind} codes: {said}" for kind, said in counts["codes"].items()]
    sane = counts["neighbours"] and tracks.Neighbours(**counts["neighbours"])
    return [
        *parts,
        f"tracks: {counts['tracks']:,}; {counts['rare']:,} are rare, with fewer than {RARE} plays "
        f"to learn from, {counts['unlearned']:,} have none, {counts['unplayed']:,} no play at all",
        *known,
        f"embeddings: {', '.join(sources)}",
        f"nearest neighbours: {sane or 'too few tracks have tags in common to tell'}",
        *codes,
    ]


def prepared() -> Prepared:
    """What lies in the cache."""
    if (found := find(home())) is None:
        raise UserError(
            f"no playlists are prepared in {home()}: redraft data playlists --file prepares them"
        )
    return found


def home() -> Path:
    return wheels.cache() / NAME


def find(
    folder: Path, request: Request | None = None, files: Sequence[str] = FOR_TRAINING
) -> Prepared | None:
    """What was prepared, if these files of it are whole, and it is what the request asks for."""
    asked = None if request is None else request.facts()
    return wheels.noted(
        folder,
        files,
        lambda facts: Prepared(folder, str(facts["origin"]), dict(facts["counts"])),
        asked,
    )


def write(
    folder: Path,
    request: Request,
    gathered: Gathered,
    codes: Mapping[str, np.ndarray],
    collisions: Mapping[str, str],
) -> None:
    """What `find` finds."""
    arrays: dict[str, np.ndarray] = {
        CODES + kind: own.astype(np.uint8) for kind, own in codes.items()
    }
    for part, own in gathered.parts.items():
        _, groups = np.unique([sequence.group for sequence in own], return_inverse=True)
        arrays[part] = np.concatenate([sequence.tracks for sequence in own])
        arrays[f"{part}_lengths"] = np.array([len(s.tracks) for s in own], np.int32)
        arrays[f"{part}_groups"] = groups.astype(np.int32)
    tracks.save_arrays(folder / PLAYS, arrays)
    # Rows of a file may have any length, learned ones have length 1.
    exact = np.float32 if request.embeddings else np.float16
    placed = {"rows": gathered.rows.astype(exact), "source": gathered.source}
    tracks.save_arrays(folder / EMBEDDINGS, placed)
    gathered.catalogue.save(folder)
    facts = {
        "origin": _origin(request, gathered),
        "asked": request.facts(),
        "counts": {**gathered.counts, "codes": dict(collisions)},
    }
    wheels.note(folder, (*FOR_TRAINING, *FOR_EVALUATION), **facts)


def _origin(request: Request, gathered: Gathered) -> str:
    counts = gathered.counts
    known = sum(counts["parts"][part]["windows"] for part in PARTS[:2])
    placed = "given" if request.embeddings else "learned from what is played together"
    return (
        f"{request.title}: {known:,} windows of at most {WINDOW} tracks to learn from and "
        f"{counts['parts']['validation']['windows']:,} for validation, of other groups; "
        f"{counts['short']:,} playlists of fewer than {LEAST} tracks were left out; embeddings "
        f"{placed}."
    )


# ------------------------------------------------------------------ synthetic


def synthetic(
    n: int, seed: int = 0, tracks: int = 2000, genres: int = GENRES, length: int = 50
) -> tuple[Corpus, np.ndarray]:
    """`n` synthetic playlists of `length` tracks, and the tracks' embeddings (tracks, 80)."""
    if not 1 <= length <= NEIGHBOURS < tracks:
        raise UserError(
            f"a playlist has 1 to {NEIGHBOURS} of more than {NEIGHBOURS} tracks, "
            f"got {length} of {tracks}"
        )
    if n < 3 or genres < 1:
        raise UserError(f"at least 3 playlists and 1 genre are needed, got {n} and {genres}")
    rng = np.random.default_rng(seed)
    embeddings, _ = _made_up(rng, tracks, genres)

    norms = (embeddings**2).sum(1)
    distances = norms[:, None] + norms - 2 * embeddings @ embeddings.T  # (tracks, tracks)
    np.fill_diagonal(distances, np.inf)
    distances = distances.round(6)  # which no machine's last digits change
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :NEIGHBOURS]

    rows = np.arange(n)
    track = rng.integers(tracks, size=n)
    playlists, played = [track], np.zeros((n, tracks), bool)
    for _ in range(length - 1):
        played[rows, track] = True
        offers = nearest[track]  # (n, NEIGHBOURS)
        # The nearer a track, the likelier it comes next.
        order = np.arange(NEIGHBOURS) + rng.exponential(8, size=offers.shape)
        order[played[rows[:, None], offers]] = np.inf
        far = rng.integers(tracks, size=n)
        jumps = (rng.random(n) < JUMPS) & ~played[rows, far]
        track = np.where(jumps, far, offers[rows, order.argmin(1)])
        playlists.append(track)

    origin = (
        f"{n} synthetic playlists of {length} tracks from {genres} latent genres (seed {seed}); "
        "no real track, listener or recording is in them, and they are free to use."
    )
    return Corpus.of(np.stack(playlists, 1).tolist(), origin), embeddings


def genres_of(tracks: int, seed: int = 0, genres: int = GENRES) -> list[int]:
    """The genre of each track of synthetic playlists."""
    return _made_up(np.random.default_rng(seed), tracks, genres)[1].tolist()


def _made_up(rng: np.random.Generator, tracks: int, genres: int) -> tuple[np.ndarray, np.ndarray]:
    """Embeddings (tracks, 80) around the centres of genres, and the genres."""
    centres = rng.normal(size=(genres, WIDTH))
    spread = rng.normal(scale=0.5, size=(tracks, WIDTH))
    own = rng.integers(genres, size=tracks)
    return (centres[own] + spread).astype(np.float32), own
