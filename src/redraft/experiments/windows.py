"""Unseen windows of playlists: their last tracks drawn, and what was put right of the corrupted.

Where to corrupt depends on how tracks sound; what the corrupted track was, a model never reads.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from redraft.config import check
from redraft.data import playlists as data
from redraft.data.tracks import Triplets
from redraft.evaluation.playlists import CORRUPTIONS, NEXT
from redraft.evaluation.results import Run
from redraft.experiments.bounds import bounds
from redraft.model import Model
from redraft.playlist import drawn
from redraft.sampler import Callback
from redraft.tokenizers import SemanticIdTokenizer
from redraft.tokenizers.base import MASK
from redraft.tokenizers.semantic_id import Codes

CHOICE = 0
"""The seed that chooses what is corrupted: the same cases for all models and seeds."""


@dataclass(frozen=True, eq=False)
class Windows:
    """Windows of full length, unseen ones unless another part of the data is asked for."""

    prepared: data.Prepared
    tokenizer: SemanticIdTokenizer
    tracks: np.ndarray
    """(n, 50)"""
    groups: np.ndarray
    """(n,)"""

    @classmethod
    def of(cls, run: Run, tokenizer: Any, part: str = "validation") -> "Windows":
        check(
            run.config.data.file == data.NAME and isinstance(tokenizer, SemanticIdTokenizer),
            "this is measured of prepared playlists (data.file playlists), the model has learned "
            "from made-up ones",
        )
        return cls.full(data.prepared(), tokenizer, part)

    @classmethod
    def full(cls, prepared: data.Prepared, tokenizer: SemanticIdTokenizer, part: str) -> "Windows":
        found, groups = prepared.windows(part)
        full = [i for i, tracks in enumerate(found) if len(tracks) == data.WINDOW]
        check(bool(full), f"no unseen playlist has {data.WINDOW} tracks")
        return cls(prepared, tokenizer, np.stack([found[i] for i in full]), groups[full])

    def __len__(self) -> int:
        return len(self.tracks)

    def first(self, n: int) -> range:
        return range(min(n, len(self)))

    def triplets(self, window: int) -> list[Codes]:
        return [tuple(codes) for codes in self.tokenizer.codes[self.tracks[window]].tolist()]

    def ids(self, window: int) -> np.ndarray:
        return np.array(self.tokenizer.ids(self.tracks[window].tolist()))

    def known(self) -> Triplets:
        """How tracks sound, and their tags."""
        return self.prepared.catalogue().by_triplet(self.tokenizer.codes)


# ------------------------------------------------------------------ drawing


@dataclass(frozen=True)
class Continued:
    """A window, and what may follow all but its last three tracks."""

    window: int
    draws: list[list[Codes]]


@dataclass(frozen=True)
class Repaired:
    """A window where the track of `source` stood at `place`, and what was put in its stead."""

    corruption: str
    window: int
    place: int
    source: int
    drawn: Codes = ()

    @property
    def case(self) -> tuple[str, int, int, int]:
        return self.corruption, self.window, self.place, self.source

    def corrupted(self, items: Sequence[Any]) -> list[Any]:
        return CORRUPTIONS[self.corruption].apply(items, self.place, self.source)


def triplets_of(rows: Sequence[Sequence[int | None]]) -> list[Codes]:
    return [tuple(row) for row in rows]


def continued(
    model: Model,
    windows: Windows,
    some: Sequence[int],
    draws: int,
    seed: int,
    callback: Callback | None = None,
    **options: Any,
) -> list[Continued]:
    """The last three tracks of some windows, drawn so often each, with options of `Sampler`."""
    hidden = range(data.WINDOW - NEXT, data.WINDOW)
    rows = [masked(windows, windows.ids(window), hidden) for window in some]
    again = [row for row in rows for _ in range(draws)]
    found = infilled(model, again, seed, callback, **options)
    ends = [triplets[-NEXT:] for triplets in found]
    return [Continued(window, ends[i * draws : (i + 1) * draws]) for i, window in enumerate(some)]


def corrupted(windows: Windows, known: Triplets, n: int) -> list[Repaired]:
    """Three corruptions of each of the first n windows in which all of them change something."""
    found: list[Repaired] = []
    for window in range(len(windows)):
        triplets = windows.triplets(window)
        audio = known.audio_of(triplets)
        rng = np.random.default_rng([CHOICE, window])
        places = {name: kind.places(audio, rng) for name, kind in CORRUPTIONS.items()}
        own = [Repaired(name, window, *place) for name, place in places.items() if place]
        if len(own) == len(places) and all(case.corrupted(triplets) != triplets for case in own):
            found += own
        if len(found) == n * len(places):
            break
    check(bool(found), "in no unseen playlist enough is known of how tracks sound")
    return found


def repaired(
    model: Model,
    windows: Windows,
    cases: Sequence[Repaired],
    seed: int,
    callback: Callback | None = None,
    **options: Any,
) -> list[Repaired]:
    """Each case with what the model puts at its place, with options of `Sampler`."""
    rows = [
        masked(
            windows,
            windows.tokenizer.ids(case.corrupted(windows.tracks[case.window])),
            [case.place],
        )
        for case in cases
    ]
    found = infilled(model, rows, seed, callback, **options)
    return [
        replace(case, drawn=triplets[case.place])
        for case, triplets in zip(cases, found, strict=True)
    ]


def masked(windows: Windows, ids: Sequence[int] | np.ndarray, places: Sequence[int]) -> np.ndarray:
    """Ids with the tracks of some places hidden."""
    rows = np.array(ids).reshape(-1, windows.tokenizer.width)
    rows[list(places)] = MASK
    return rows.ravel()


def infilled(
    model: Model,
    rows: Sequence[np.ndarray],
    seed: int,
    callback: Callback | None = None,
    **options: Any,
) -> list[list[Codes]]:
    """The triplets of rows whose hidden tokens are drawn."""
    hidden = [row == MASK for row in rows]
    return drawn(model, model.sampler(**options), rows, hidden, seed, callback)


@dataclass(frozen=True)
class Bound:
    """Of one window."""

    nats: float
    next_nats: float | None
    """On its last three tracks, all others given; a denoiser that does not infill has none."""


def bounds_of(model: Model, windows: Windows, some: Sequence[int], seed: int) -> list[Bound]:
    ids = [windows.ids(window) for window in some]
    whole = [own.nats for own in bounds(model, ids, seed)]
    if not model.config.denoiser.infills:
        return [Bound(nats, None) for nats in whole]
    given = torch.arange(data.WINDOW * windows.tokenizer.width, device=model.device)
    given = given < len(given) - NEXT * windows.tokenizer.width  # (L,)
    last = bounds(model, ids, seed, given.expand_as)
    return [Bound(nats, own.nats) for nats, own in zip(whole, last, strict=True)]
