"""Short English stories: TinyStories, files of them, or synthetic ones made from templates.

What is learned from at full size is prepared once: chosen by hash, cut into tokens, and kept in the
cache as ids, small enough to travel.

The synthetic ones tell of a child and a thing that gets lost and found. Names, things and their
looks come back several times, so that a wrong word can be told from the rest of the story.
"""

import gzip
import json
import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from heapq import nsmallest
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load as parse_arrays
from safetensors.numpy import save as format_arrays

from redraft.config import check
from redraft.data import lines, wheels
from redraft.data.corpus import Corpus, Encoded, split
from redraft.errors import UserError, unknown

SEPARATOR = "<|endoftext|>"
FORMATS = (".txt", ".txt.gz", ".jsonl", ".jsonl.gz")

ENTITIES = ("Lily", "Tom", "Max", "Sam", "car", "dog", "cat", "train", "ball")
"""What the paper's entity swap takes and gives: one token each, or lengths would change."""

GIRLS = ("Lily", "Mia", "Anna", "Sue", "Lucy", "Emma")
BOYS = ("Tom", "Max", "Sam", "Ben", "Tim", "Jack")
TOYS = ("ball", "car", "train", "kite", "boat", "book", "hat", "bike", "box", "drum")
PETS = ("dog", "cat", "bird", "duck", "frog", "bunny")
COLOURS = ("red", "blue", "green", "yellow", "pink", "white", "black", "shiny")
TEMPERS = ("small", "brown", "funny", "happy", "fluffy", "gentle", "quiet", "brave")
PLACES = ("park", "garden", "beach", "farm", "zoo", "school", "lake", "forest")
SPOTS = (
    "under the bed",
    "behind the tree",
    "near the door",
    "in the tall grass",
    "beside the pond",
    "on the stairs",
    "next to the old chair",
    "in a big hole",
)

PLOT = (
    (
        "Once upon a time there was a little {child} named {name}.",
        "Once there was a {child} called {name}.",
        "There was a little {child} and {his} name was {name}.",
        "In a small town lived a {child} named {name}.",
        "Long ago there lived a kind {child} whose name was {name}.",
    ),
    (
        "{name} had a {look} {thing}.",
        "{name} got a {look} {thing} from {his} mom.",
        "{name} loved {his} {look} {thing} very much.",
        "Every day {name} played with {his} {look} {thing}.",
        'For {his} birthday {name} got a {look} {thing}. "Thank you!" said {name}.',
    ),
    (
        "One day {name} took the {look} {thing} to the {place}.",
        "One sunny morning {name} went to the {place} with the {look} {thing}.",
        "Then {name} and {his} friend {friend} went to the {place}.",
        '"Let us go to the {place}," said {name}.',
        "One day it rained, but {name} still wanted to go to the {place}.",
    ),
    (
        "But soon the {thing} was gone, and {name} was very sad.",
        "{name} looked away, and then the {thing} was not there.",
        '"Oh no! Where is my {thing}?" cried {name}.',
        "{name} ran and jumped and lost the {look} {thing}.",
        "A strong wind came, and {name} could not see the {thing}.",
    ),
    (
        '{friend} saw {name} and said, "I will help you."',
        "{friend} heard {name} cry and came to help.",
        "{name} asked {friend} for help.",
        "{friend} was a good friend and helped {name} look for the {thing}.",
        '"Do not be sad, {name}," said {friend}.',
    ),
    (
        "They found the {look} {thing} {spot}.",
        "{friend} found the {thing} {spot}.",
        "After a long time {name} saw the {look} {thing} {spot}.",
        'Then {friend} called, "Look, your {thing} is {spot}!"',
        "The {thing} was {spot}, safe and sound.",
    ),
    (
        "{name} was very happy.",
        "{name} smiled and gave {friend} a big hug.",
        "{name} and {friend} played with the {thing} until it was dark.",
        "From that day on {name} took good care of the {look} {thing}.",
        "{name} went home with the {thing} and slept well.",
        "{name} and {friend} were best friends from that day on.",
    ),
)
"""One sentence of each row makes a story. Child, look, thing, place, friend and spot are told in
every story, whichever sentences are drawn, so different draws are different stories."""

VARIETY = (
    (len(GIRLS) + len(BOYS))
    * (len(GIRLS) + len(BOYS) - 1)
    * (len(TOYS) * len(COLOURS) + len(PETS) * len(TEMPERS))
    * len(PLACES)
    * len(SPOTS)
    * prod(map(len, PLOT))
)
"""How many different synthetic stories there are."""


def read(path: str | Path) -> list[str]:
    """The stories of a file.

    Text has one story a line, or stories with `<|endoftext|>` between them, as TinyStories has;
    JSON lines have one object with a "text" a line. Either may be gzipped.
    """
    return lines.require(path, list(told(path)))


def told(path: str | Path) -> Iterator[str]:
    """The same, one after the other, of a file that may be larger than memory."""
    name = Path(path).name.lower()
    if not name.endswith(FORMATS):
        raise unknown("story format", "".join(Path(name).suffixes), FORMATS)
    if name.removesuffix(".gz").endswith(".jsonl"):
        rows = ((number, line) for number, line in lines.numbered(path) if line.strip())
        found = (_story(path, number, line) for number, line in rows)
    elif any(SEPARATOR in line for _, line in lines.numbered(path)):
        found = _separated(path)
    else:
        found = (line for _, line in lines.numbered(path))
    return (story for story in map(str.strip, found) if story)


def _separated(path: str | Path) -> Iterator[str]:
    story = ""
    for _, line in lines.numbered(path):
        *ends, rest = f"{line}\n".split(SEPARATOR)
        for end in ends:
            yield story + end
            story = ""
        story += rest
    yield story


def _story(path: str | Path, number: int, line: str) -> str:
    try:
        story = json.loads(line)["text"]
        story.encode()  # which half of a character cannot be
    except (ValueError, TypeError, KeyError, AttributeError):
        raise UserError(
            f'{path} must have an object with a "text" a line, line {number} has none'
        ) from None
    return story


# ------------------------------------------------------------------ prepared once

NAME = "stories"
"""Of what is prepared, in the cache and in recipes."""
MOST = 100_000
"""Stories that are learned from, where there are more."""
UNSEEN = 5_000
"""Stories that a model is judged by, where others than those of training are given."""
HUB, FILES = "roneneldan/TinyStories", ("TinyStories-train.txt", "TinyStories-valid.txt")
IDS, TOKENIZER = "stories.safetensors.gz", "tokenizer.json"
PARTS = ("train", "held_out", "validation")


@dataclass(frozen=True)
class Request:
    """What is to be prepared; without files, TinyStories from the hub."""

    files: tuple[str, ...] = ()
    validation: str | None = None
    """A file of others to be judged by; else a tenth of the stories is kept for that."""
    most: int = MOST
    origin: str | None = None
    """One sentence on what the stories are."""

    def __post_init__(self):
        others = self.validation is None and self.origin is None
        check(bool(self.files) or others, "--validation and --origin go with --file")
        check(self.most >= 3, f"at least 3 stories are needed to learn from, got {self.most}")

    def facts(self) -> dict[str, Any]:
        """What tells it from other requests: files count by what is in them."""
        return {
            "title": self.title,
            "most": self.most,
            "train": [_digest(file) for file in self.files],
            "validation": _digest(self.validation) if self.validation else None,
        }

    def paths(self) -> tuple[Sequence[str], str | None]:
        """Files to learn from, and one to be judged by."""
        if self.files:
            return self.files, self.validation
        train, validation = fetched()
        return [train], validation

    @property
    def title(self) -> str:
        if not self.files:
            return (
                f"TinyStories ({HUB} on the Hugging Face hub, CDLA-Sharing-1.0), "
                "judged by its own validation stories"
            )
        if self.origin:
            return self.origin.strip().rstrip(".")
        names = ", ".join(Path(file).name for file in self.files)
        judged = f", judged by those of {Path(self.validation).name}" if self.validation else ""
        return f"Stories of {names}{judged}"


def _digest(file: str) -> str:
    check(not Path(file).is_dir(), f"{file} is a folder, a file of stories is needed")
    return wheels.digest_of(file)


def fetched() -> list[str]:
    """TinyStories by its own parts, from the hub's cache or the hub."""
    from huggingface_hub import hf_hub_download

    wheels.tell(f"fetching TinyStories ({HUB}, 2 GB) from the Hugging Face hub")
    try:
        return [hf_hub_download(HUB, name, repo_type="dataset") for name in FILES]
    except Exception as error:  # whatever the network or the hub answer
        reason = " ".join(str(error).split())[:120].rstrip(". ")
        raise UserError(
            f"TinyStories is not to be had from the hub: {reason}; --file takes other stories"
        ) from None


@dataclass(frozen=True)
class Gathered:
    """Stories as text, in parts."""

    corpus: Corpus
    different: int
    """Stories that were found to learn from, of which the corpus has some."""


def gather(request: Request) -> Gathered:
    """At most so many different stories, chosen by hash; none that a model is judged by."""
    files, validation = request.paths()
    unseen = lines.require(validation, chosen(told(validation), UNSEEN)[0]) if validation else []
    known, different = chosen(chain.from_iterable(map(told, files)), request.most, unseen)
    train, held_out, rest = split(lines.require(", ".join(files), known))
    if validation:  # judged by those alone, so that nothing else need be kept back
        train, rest = [*rest, *train], unseen
    return Gathered(Corpus(train, held_out, rest, request.title), different)


def chosen(stories: Iterable[str], n: int, but: Collection[str] = ()) -> tuple[list[str], int]:
    """The n different ones of least hash, in its order; and how many different ones there are.

    The hash is not that which decides their parts. Those of `but` are passed over.
    """
    seen = set(map(_mark, but))

    def fresh() -> Iterator[tuple[bytes, str]]:
        for story in stories:
            if (mark := _mark(story)) not in seen:
                seen.add(mark)
                yield mark, story

    least = nsmallest(n, fresh())
    return [story for _, story in least], len(seen) - len(set(but))


def _mark(story: str) -> bytes:
    return blake2b(story.encode(), digest_size=16, person=b"chosen").digest()


@dataclass(frozen=True)
class Prepared:
    """Stories in the cache, as ids."""

    folder: Path
    origin: str
    counts: Mapping[str, Mapping[str, int]]
    """Of each part: stories kept, tokens in them, and stories left out as too long."""

    def corpus(self) -> Corpus:
        """Items are arrays of ids, without their end."""
        with gzip.open(self.folder / IDS) as file:
            arrays = parse_arrays(file.read())

        def part(name: str) -> list[np.ndarray]:
            ends = np.cumsum(arrays[f"{name}_lengths"], dtype=np.int64)
            return np.split(arrays[name], ends[:-1])

        return Corpus(part("train"), part("held_out"), part("validation"), self.origin)

    def tokenizer(self) -> dict[str, Any]:
        """As it was stored."""
        return json.loads((self.folder / TOKENIZER).read_text(encoding="utf-8"))

    def __str__(self) -> str:
        size = sum(file.stat().st_size for file in self.folder.iterdir()) / 1e6
        rows = [
            f"{part.replace('_', '-')}: {own['stories']:,} stories, {own['tokens']:,} tokens, "
            f"{own['long']:,} left out as too long"
            for part, own in self.counts.items()
        ]
        return "\n".join([self.origin, *rows, f"lies in: {self.folder} ({size:.0f} MB)"])


def prepared() -> Prepared:
    """What lies in the cache."""
    if (found := find(home())) is None:
        raise UserError(
            f"no stories are prepared in {home()}: redraft data stories fetches TinyStories, "
            "and with --file takes others"
        )
    return found


def home() -> Path:
    return wheels.cache() / NAME


def find(folder: Path, request: Request | None = None) -> Prepared | None:
    """What was prepared, if it is whole, and is what the request asks for."""
    asked = None if request is None else request.facts()
    return wheels.noted(
        folder,
        (IDS, TOKENIZER),
        lambda facts: Prepared(folder, str(facts["origin"]), dict(facts["counts"])),
        asked,
    )


def write(
    folder: Path,
    request: Request,
    gathered: Gathered,
    parts: Sequence[Encoded],
    tokenizer: dict[str, Any],
) -> None:
    """What `find` finds: ids of 16 bits, packed, and what became of the stories."""
    arrays, counts = {}, {}
    for name, part in zip(PARTS, parts, strict=True):
        rows = [ids[:-1].astype(np.uint16) for ids in part.sequences]  # all end alike
        arrays[name] = np.concatenate(rows)
        arrays[f"{name}_lengths"] = np.array([len(row) for row in rows], np.uint16)
        long = part.report.dropped_long
        counts[name] = {"stories": len(rows), "tokens": sum(map(len, rows)), "long": long}
    (folder / IDS).write_bytes(gzip.compress(format_arrays(arrays), mtime=0))
    (folder / TOKENIZER).write_text(json.dumps(tokenizer) + "\n", encoding="utf-8")
    facts = {"origin": _origin(gathered, counts), "asked": request.facts(), "counts": counts}
    wheels.note(folder, (IDS, TOKENIZER), **facts)


def _origin(gathered: Gathered, counts: Mapping[str, Mapping[str, int]]) -> str:
    known = counts["train"]["stories"] + counts["held_out"]["stories"]
    long = sum(own["long"] for own in counts.values())
    return (
        f"{gathered.corpus.origin}: {known:,} to learn from, chosen by hash of "
        f"{gathered.different:,}, and {counts['validation']['stories']:,} for validation; "
        f"{long:,} were left out as too long."
    )


# ------------------------------------------------------------------ synthetic


def synthetic(n: int, seed: int = 0) -> Corpus:
    """`n` distinct synthetic stories."""
    if not 3 <= n <= VARIETY // 100:
        raise UserError(f"from 3 to {VARIETY // 100} synthetic stories can be made, got {n}")
    rng = random.Random(seed)
    stories: dict[str, None] = {}
    while len(stories) < n:
        stories[_make(rng)] = None
    origin = f"{n} synthetic stories made from templates (seed {seed}), free to use."
    return Corpus.of(stories, origin)


def _make(rng: random.Random) -> str:
    name, friend = rng.sample(GIRLS + BOYS, 2)
    child, his = ("girl", "her") if name in GIRLS else ("boy", "his")
    thing = rng.choice(TOYS + PETS)
    return " ".join(rng.choice(row) for row in PLOT).format(
        name=name,
        friend=friend,
        child=child,
        his=his,
        thing=thing,
        look=rng.choice(COLOURS if thing in TOYS else TEMPERS),
        place=rng.choice(PLACES),
        spot=rng.choice(SPOTS),
    )
