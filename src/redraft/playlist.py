"""Playlists for people: what may follow one, and what to play where a track comes again.

    curator = Curator.of(redraft.load("runs/playlists"))
    mine = curator.names.tracks(["Radiohead - Karma Police", "Blur - Song 2", ...])
    curator.continued(mine, n=3)
    curator.repaired(mine)

A model draws codes. Of the tracks that have them the most played is meant that is not in the
playlist yet; and of many draws, what is drawn most often. A model reads as many tracks as it has
learned to: the last ones of a longer playlist, or those around the place that is repaired.
"""

import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import torch

from redraft.batches import collate
from redraft.config import check
from redraft.data import made_up
from redraft.data import playlists as data
from redraft.data.tracks import Catalogue, Triplets
from redraft.errors import UserError
from redraft.evaluation.playlists import NEXT, smoothness
from redraft.model import Model, fixed
from redraft.sampler import Callback, Sampler
from redraft.tokenizers import SemanticIdTokenizer
from redraft.tokenizers.base import EOS, MASK, shorten
from redraft.tokenizers.semantic_id import Codes

# ------------------------------------------------------------------ what people are told


@dataclass(frozen=True)
class Named:
    """A track as people know it."""

    id: str
    artist: str
    title: str

    def __str__(self) -> str:
        return " - ".join(filter(None, (self.artist, self.title))) or self.id


@dataclass(frozen=True)
class Proposal(Named):
    """A track that was drawn."""

    share: float
    """Of the draws, how many have its codes."""
    sharing: int
    """How many tracks have its codes, itself among them."""


@dataclass(frozen=True)
class Continued:
    """What may follow a playlist, the likeliest first."""

    given: int
    """Tracks of the playlist."""
    read: int
    """The last of them, which the model has read."""
    draws: int
    known: float
    """Share of what was drawn that is the codes of any track."""
    tracks: list[Proposal]
    alternatives: list[Proposal]


@dataclass(frozen=True)
class Change:
    """A place of a playlist, from 1 on, that is to have another track."""

    place: int
    reason: str
    before: Named
    after: Proposal | None
    """None where no draw was a track that is not in the playlist yet."""


@dataclass(frozen=True)
class Repaired:
    """A playlist before and after."""

    before: list[Named]
    after: list[Named]
    changes: list[Change]
    draws: int
    smoothness_before: float | None
    """As results tell it, of codes; None where of no two in a row is known how they sound."""
    smoothness_after: float | None


# ------------------------------------------------------------------ names


def listed(text: str) -> list[str]:
    """What a text calls its tracks: a JSON list, or one a line.

    >>> listed("Radiohead - Creep\\n\\n17\\n"), listed('["Radiohead - Creep", 17, {"id": "18"}]')
    (['Radiohead - Creep', '17'], ['Radiohead - Creep', '17', '18'])
    """
    text = text.strip()
    if not (text.startswith("[") and text.endswith("]")):
        return [line.strip() for line in text.splitlines() if line.strip()]
    try:
        rows = [row.get("id") if isinstance(row, dict) else row for row in json.loads(text)]
    except (ValueError, RecursionError):
        raise UserError(f"{shorten(text)} begins and ends as a JSON list, but is none") from None
    for row in rows:
        if type(row) not in (str, int):
            raise UserError(
                f'a JSON list of tracks has names, ids or objects with "id", got {json.dumps(row)}'
            )
    return [str(row) for row in rows]


def plain(text: str) -> str:
    """The words of a name, however it is written.

    >>> plain("Beyoncé - Crazy in Love!"), plain("beyonce – crazy In Love")
    ('beyonce crazy in love', 'beyonce crazy in love')
    """
    letters = unicodedata.normalize("NFKD", text.casefold())
    letters = "".join(letter for letter in letters if not unicodedata.combining(letter))
    return " ".join(re.findall(r"[^\W_]+", letters))


@dataclass(frozen=True, eq=False)
class Names:
    """Tracks by their names, and their names."""

    catalogue: Catalogue

    @classmethod
    def of(cls, model: Model) -> Self:
        """Of the tracks that a model has learned; made-up ones have made-up names."""
        config, codes = model.config.data, tokenizer_of(model).codes
        if config.file is None:
            return cls(Catalogue.of(made_up.named(len(codes), model.config.seed)))
        prepared = data.prepared()
        check(
            np.array_equal(prepared.codes(config.codes), codes),
            f"the model has learned from other playlists than those prepared in {prepared.folder}",
        )
        return cls(prepared.catalogue())

    def __getitem__(self, track: int) -> Named:
        return Named(*self.label(track))

    def label(self, track: int) -> tuple[str, str, str]:
        """Its id, artist and title."""
        known = self.catalogue
        return known.keys[track], known.artists[track], known.titles[track]

    def tracks(self, texts: Sequence[str]) -> list[int]:
        return [self.find(text) for text in texts]

    def find(self, text: str) -> int:
        """The track of an id, a title, an "artist - title", or of how only one begins."""
        with suppress(UserError):
            return self.catalogue.find(text)
        if re.fullmatch(r"-?\d+", text) and all(key.isdecimal() for key in self.catalogue.keys):
            ids = sorted(map(int, self.catalogue.keys))
            raise UserError(f"there is no track {text[:20]}: ids are from {ids[0]} to {ids[-1]}")
        name = plain(text)
        if name in self._called:
            return self._called[name]
        begun = [other for other in self._places if name and other.startswith(name)]
        if len(begun) == 1:
            return self._places[begun[0]]
        raise self._unknown(text, begun)

    def _unknown(self, text: str, begun: Sequence[str]) -> UserError:
        """Many tracks begin so, or none."""
        near = begun or get_close_matches(plain(text), self._called)
        tracks = dict.fromkeys(self._called[name] for name in near[:3])
        names = ", ".join(repr(str(self[track])) for track in tracks)
        if begun:
            return UserError(f"{shorten(text)} begins {len(begun):,} tracks, such as {names}")
        if near:
            return UserError(f"unknown track {shorten(text)}; the nearest are {names}")
        return UserError(
            f"unknown track {shorten(text)}: an id, a title or 'artist - title' of one of "
            f"{len(self.catalogue.keys):,} tracks is needed, such as {str(self[0])!r}"
        )

    def twin(self, track: int) -> int:
        """The most played track of the same name: to a listener, the same."""
        return self._places.get(plain(self.catalogue.name(track)), track)

    @cached_property
    def _places(self) -> dict[str, int]:
        """The most played track of every name."""
        return most_played(map(self.catalogue.name, range(len(self.catalogue.keys))))

    @cached_property
    def _called(self) -> dict[str, int]:
        """The same, and of every title that is no name."""
        return most_played(self.catalogue.titles) | self._places


def most_played(names: Iterable[str]) -> dict[str, int]:
    """The first of the tracks that have a name."""
    found: dict[str, int] = {}
    for track, name in enumerate(map(plain, names)):
        found.setdefault(name, track)
    found.pop("", None)
    return found


def tokenizer_of(model: Model) -> SemanticIdTokenizer:
    if isinstance(model.tokenizer, SemanticIdTokenizer):
        return model.tokenizer
    domain = model.config.data.domain
    raise UserError(f"this is for models of playlists, this model knows {domain}")


# ------------------------------------------------------------------ continued, repaired


TEMPERATURE = 0.7
"""Of what may follow the likeliest is wanted, not a fair draw: on playlists held out of training,
one draw hit more often at 0.7 than at 1 for every noise that was tried, and votes mostly did."""


class Vote(NamedTuple):
    track: int
    share: float
    sharing: int


@dataclass(frozen=True, eq=False)
class Curator:
    """Continues and repairs playlists, which are lists of tracks by their numbers."""

    model: Model
    names: Names
    sampler: Sampler
    draws: int = 20
    """What is put to the vote."""

    def __post_init__(self):
        check(self.draws >= 1, f"draws must be at least 1, got {self.draws}")

    @classmethod
    def of(cls, model: Model, draws: int = draws, **options: Any) -> Self:
        """With the options of `Sampler`: steps, temperature, top_p."""
        options = {"temperature": TEMPERATURE} | options
        return cls(model, Names.of(model), model.sampler(**options), draws)

    @property
    def tokenizer(self) -> SemanticIdTokenizer:
        return tokenizer_of(self.model)

    @property
    def most(self) -> int:
        """Tracks that the model reads at once."""
        return self.model.longest // self.tokenizer.width

    def continued(
        self,
        tracks: Sequence[int],
        n: int = NEXT,
        alternatives: int = 0,
        *,
        seed: int | None = None,
        callback: Callback | None = None,
    ) -> Continued:
        """The n tracks that are most often drawn to come next, and so many after them."""
        check(alternatives >= 0, f"alternatives must be at least 0, got {alternatives}")
        ends = self.following(tracks, n, seed=seed, callback=callback)
        known = [bool(self.tokenizer.tracks(triplet)) for end in ends for triplet in end]
        best = [self._proposal(vote) for vote in self.votes(ends, tracks)]
        return Continued(
            given=len(tracks),
            read=min(len(tracks), self.most - n),
            draws=self.draws,
            known=float(np.mean(known)),
            tracks=best[:n],
            alternatives=best[n : n + alternatives],
        )

    def following(
        self,
        tracks: Sequence[int],
        n: int,
        *,
        seed: int | None = None,
        callback: Callback | None = None,
    ) -> list[list[Codes]]:
        """The codes of n tracks to come next, of every draw."""
        require(tracks)
        room = self.most - data.LEAST
        check(1 <= n <= room, f"n must be in 1..{room}, got {n}")
        read = tracks[-(self.most - n) :]
        row = np.array([*self.tokenizer.ids(read), *[MASK] * n * self.tokenizer.width])
        found = self._drawn(row, row == MASK, fixed(seed), callback)
        return [triplets[-n:] for triplets in found]

    def repaired(
        self,
        tracks: Sequence[int],
        at: Sequence[int] | None = None,
        strength: float = 1.0,
        *,
        seed: int | None = None,
        callback: Callback | None = None,
    ) -> Repaired:
        """Other tracks where one comes again, or at places that are named, given all the rest.

        Below strength 1 a draw begins from the track that stands there, noised to t = strength * T:
        the lower, the more of its codes remain.
        """
        require(tracks)
        check(0 < strength <= 1, f"strength must be above 0 and at most 1, got {strength}")
        reasons = self.repeats(tracks) if at is None else chosen(at, len(tracks))
        settled, after = dict[int, Vote | None](), list(tracks)
        for place, votes in self.redrawn(tracks, reasons, strength, seed=seed, callback=callback):
            settled[place] = votes[0] if votes else None
            after[place] = votes[0].track if votes else after[place]
        return self._told(tracks, after, reasons, settled)

    def redrawn(
        self,
        tracks: Sequence[int],
        places: Iterable[int],
        strength: float = 1.0,
        *,
        seed: int | None = None,
        callback: Callback | None = None,
    ) -> Iterator[tuple[int, list[Vote]]]:
        """Places in order, from 0 on, each with its votes; the best stands there for the next."""
        seed, after, left = fixed(seed), list(tracks), set(places)
        for window, own in windows_of(sorted(left), len(tracks), self.most):
            row = np.array(self.tokenizer.ids([after[i] for i in window]))
            free = np.repeat([i in left for i in window], self.tokenizer.width)
            found = self._drawn(row, free, seed + own[0], callback, strength)
            for place in own:
                votes = self.votes([[draw[place - window.start]] for draw in found], after)
                after[place] = votes[0].track if votes else after[place]
                left.remove(place)
                yield place, votes

    def repeats(self, tracks: Sequence[int]) -> dict[int, str]:
        """Places whose track was there before."""
        first, found = {}, {}
        for place, track in enumerate(map(self.names.twin, tracks)):
            if first.setdefault(track, place) < place:
                found[place] = f"repeats {first[track] + 1}"
        return found

    def votes(self, draws: Sequence[Sequence[Codes]], playlist: Sequence[int]) -> list[Vote]:
        """Tracks that are not in the playlist yet, those that most draws have first."""
        counts = Counter(triplet for draw in draws for triplet in dict.fromkeys(draw))
        twin, found = self.names.twin, []
        taken = set(map(twin, playlist))
        for triplet, n in counts.most_common():
            own = self.tokenizer.tracks(triplet)
            new = next((track for track in own if twin(track) not in taken), None)
            if new is not None:
                taken.add(twin(new))
                found.append(Vote(new, n / len(draws), len(own)))
        return found

    def _drawn(
        self,
        row: np.ndarray,
        free: np.ndarray,
        seed: int,
        callback: Callback | None,
        strength: float = 1.0,
    ) -> list[list[Codes]]:
        rows, places = [row] * self.draws, [free] * self.draws
        return drawn(self.model, self.sampler, rows, places, seed, callback, strength)

    def _proposal(self, vote: Vote) -> Proposal:
        return Proposal(*self.names.label(vote.track), vote.share, vote.sharing)

    def _told(
        self,
        before: Sequence[int],
        after: Sequence[int],
        reasons: Mapping[int, str],
        settled: Mapping[int, Vote | None],
    ) -> Repaired:
        changes = [
            Change(
                place=place + 1,
                reason=reasons[place],
                before=self.names[before[place]],
                after=vote and self._proposal(vote),
            )
            for place, vote in settled.items()
        ]
        return Repaired(
            before=[self.names[track] for track in before],
            after=[self.names[track] for track in after],
            changes=changes,
            draws=self.draws,
            smoothness_before=self._smoothness(before),
            smoothness_after=self._smoothness(after),
        )

    def _smoothness(self, tracks: Sequence[int]) -> float | None:
        codes = self.tokenizer.codes[list(tracks)].tolist()
        found = smoothness(self._sounds.audio_of(map(tuple, codes)))
        return None if math.isnan(found) else found

    @cached_property
    def _sounds(self) -> Triplets:
        return self.names.catalogue.by_triplet(self.tokenizer.codes)


def require(tracks: Sequence[int]) -> None:
    check(
        len(tracks) >= data.LEAST,
        f"a playlist of at least {data.LEAST} tracks is needed, got {len(tracks)}",
    )


def chosen(at: Sequence[int], n: int) -> dict[int, str]:
    """Places that are named, from 1 on."""
    for place in at:
        check(1 <= place <= n, f"places are from 1 to {n}, got {place}")
    check(0 < len(set(at)) < n, f"some of {n} places are to be named, not all, got {len(set(at))}")
    return {place - 1: "named" for place in at}


def windows_of(places: Sequence[int], n: int, most: int) -> Iterator[tuple[range, list[int]]]:
    """Windows of at most so many of n tracks, and the places that each is around, in order.

    >>> list(windows_of([1, 3, 17], n=20, most=8))
    [(range(0, 8), [1, 3]), (range(12, 20), [17])]
    """
    reach = most // 2 if n > most else n
    while places:
        near = [place for place in places if place - places[0] <= reach]
        start = min(max((near[0] + near[-1] + 1 - most) // 2, 0), max(n - most, 0))
        yield range(start, min(start + most, n)), near
        places = places[len(near) :]


# ------------------------------------------------------------------ drawing


@torch.no_grad()
def drawn(
    model: Model,
    sampler: Sampler,
    rows: Sequence[np.ndarray],
    free: Sequence[np.ndarray],
    seed: int,
    callback: Callback | None = None,
    strength: float = 1.0,
) -> list[list[Codes]]:
    """The triplets of rows whose free tokens are drawn; an end that is drawn is no code."""
    n, most = max(map(len, rows)), model.longest
    check(n <= most, f"the playlists have {n} tokens, this model takes at most {most}")
    found = []
    for first in range(0, len(rows), model.batch):
        part = slice(first, first + model.batch)
        own = int(np.random.default_rng([seed % 2**63, first]).integers(2**63))
        generator = torch.Generator(model.device).manual_seed(own)
        x, mask = (collate(items[part], model.device) for items in (rows, free))  # (B, L)
        x = sampler.infill(x, mask.bool(), generator, callback, strength)
        found += map(model.tokenizer.decode, torch.where(x == EOS, MASK, x).tolist())
    return found
