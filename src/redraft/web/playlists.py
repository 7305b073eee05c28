"""What the playlists tab asks for: what may follow, and other tracks where some are marked.

A model draws codes many times over, and tracks are put to the vote. A film has a row for each draw,
and in it the places that are drawn, each with the most played track of its codes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from redraft.config import check
from redraft.domains import load_playlists
from redraft.model import Model
from redraft.playlist import Curator, Names, Vote, chosen, plain, require, tokenizer_of
from redraft.sampler import Step
from redraft.tokenizers.base import EOS, MASK
from redraft.tokenizers.semantic_id import Codes
from redraft.web import forms
from redraft.web.desk import Job
from redraft.web.film import Film, Row, told

FOUND = 20
"""Tracks that a search shows."""
MORE = 5
"""Tracks beyond those that are asked for, or for a place, that had fewer votes."""
EXAMPLE = 12
"""Tracks of an example."""

Facts = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Library:
    """A model of playlists, and its tracks by their names."""

    model: Model
    names: Names
    words: Sequence[tuple[str, int]]
    """What tracks are called, in plain letters; of one name only the most played."""
    examples: dict[str, str]

    @classmethod
    def of(cls, model: Model) -> "Library":
        names = Names.of(model)
        own = (t for t in range(len(names.catalogue.keys)) if names.twin(t) == t)
        words = [(f" {plain(str(names[track]))}", track) for track in own]
        few = replace(model.config.data, synthetic=10)
        corpus, _ = load_playlists(few, model.config.seed)
        played = [[int(track) for track in row[:EXAMPLE]] for row in corpus.validation[:4]]
        examples = {f"from {names[row[0]]} on": " ".join(map(str, row)) for row in played}
        return cls(model, names, words, examples)

    def curator(self, ask: forms.Continue | forms.Redraft) -> Curator:
        return Curator(self.model, self.names, self.model.sampler(**ask.options), ask.draws)

    def named(self, track: int) -> Facts:
        named = self.names[track]
        return {"track": track, "artist": named.artist, "title": named.title or named.id}

    def check(self, tracks: Sequence[int]) -> None:
        """Known tracks alone, and enough of them to be a playlist."""
        tokenizer_of(self.model).ids(tracks)
        require(tracks)


def examples(library: Library) -> dict[str, str]:
    return library.examples


def first(library: Library, job: Job) -> None:
    tracks = [0, 1, 2, 3]
    continued(library, forms.Continue(model="first", tracks=tracks, n=1, draws=1), job)


# ------------------------------------------------------------------ at once


def search(library: Library, ask: forms.Search) -> Facts:
    """Tracks of which the name has words that begin so, the most played first."""
    wanted = [f" {word}" for word in plain(ask.text).split()]
    hits = (track for name, track in library.words if all(word in name for word in wanted))
    found = [library.named(track) for track, _ in zip(hits, range(FOUND), strict=False)]
    return {"tracks": found if wanted else []}


def look(library: Library, ask: forms.Playlist) -> Facts:
    """Tracks by their numbers."""
    tokenizer_of(library.model).ids(ask.tracks)
    return {"tracks": [library.named(track) for track in ask.tracks]}


# ------------------------------------------------------------------ step by step


def continued(library: Library, ask: forms.Continue, job: Job) -> None:
    """Tracks that are most often drawn to come next."""
    curator, given = library.curator(ask), len(ask.tracks)
    read = min(given, curator.most - ask.n)
    draws = Draws(library, job, range(given, given + ask.n), start=given - read)
    ends = curator.following(ask.tracks, ask.n, seed=ask.seed, callback=draws.step)
    votes = curator.votes(ends, ask.tracks)[: ask.n + MORE]
    whole = f"all {given}" if read == given else f"the last {read} of {given}"
    note = f"Shares of {ask.draws} draws, given {whole} tracks."
    job.say("done", candidates=[draws.candidate(vote) for vote in votes], note=note)


def redrafted(library: Library, ask: forms.Redraft, job: Job) -> None:
    """Other tracks for places that are named, or else where one comes again."""
    curator = library.curator(ask)
    places = sorted({place - 1 for place in ask.at}) or [*curator.repeats(ask.tracks)]
    if not places:
        note = "No track comes again: mark those that are to be redrafted."
        job.say("done", candidates=[], note=note)
        return
    draws, seed = Draws(library, job, places), ask.seed
    voted = curator.redrawn(ask.tracks, places, ask.strength, seed=seed, callback=draws.step)
    found = [draws.candidate(vote, place) for place, own in voted for vote in own[: 1 + MORE]]
    done = len({one["place"] for one in found})
    note = f"{done} of {len(places)} places redrafted; shares of {ask.draws} draws."
    job.say("done", candidates=found, note=note)


def check_places(library: Library, ask: forms.Redraft) -> None:
    n, most = len(ask.tracks), library.curator(ask).most
    check(n <= most, f"this playlist has {n} tracks, the model reads at most {most} at once")
    if ask.at:
        chosen(ask.at, n)


class Draws:
    """The eyes of a page on all draws: the places of each that are drawn."""

    def __init__(self, library: Library, job: Job, places: Sequence[int], start: int = 0):
        self.library, self.places, self.start = library, places, start
        self.tokenizer = tokenizer_of(library.model)
        self.film = Film(job, self.look)

    def step(self, step: Step) -> None:
        rows = [self.tokenizer.decode(_silent(row)) for row in step.x.tolist()]
        shown = [[row[place - self.start] for place in self.places] for row in rows]
        self.film.show(told(step), shown)

    def look(self, row: list[Codes], known: Row) -> Row:
        tracks = [self.tokenizer.tracks(codes)[:1] for codes in row]
        names = [str(self.library.names[own[0]]) if own else "no such track" for own in tracks]
        numbered = zip(self.places, names, strict=True)
        return {
            "tokens": [f"{place + 1}  {name}" for place, name in numbered],
            "text": ", ".join(names),
            "masked": [n for n, own in enumerate(tracks) if not own],
        }

    def candidate(self, vote: Vote, place: int | None = None) -> Facts:
        """A track that was drawn, and the first draw that has it."""
        codes = tuple(self.tokenizer.codes[vote.track].tolist())
        n = slice(None) if place is None else slice(m := self.places.index(place), m + 1)
        row = next(r for r, drawn in enumerate(self.film.ids) if codes in drawn[n])
        facts = {"place": place, "share": vote.share, "sharing": vote.sharing, "row": row}
        return self.library.named(vote.track) | facts


def _silent(row: Sequence[int]) -> list[int]:
    """A playlist has no end: one that is drawn is no code."""
    return [MASK if i == EOS else i for i in row]
