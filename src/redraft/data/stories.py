"""Short English stories: files of them, or synthetic ones made from templates.

The synthetic ones tell of a child and a thing that gets lost and found. Names, things and their
looks come back several times, so that a wrong word can be told from the rest of the story.
"""

import json
import random
from math import prod
from pathlib import Path

from redraft.data import lines
from redraft.data.corpus import Corpus
from redraft.errors import UserError, unknown

SEPARATOR = "<|endoftext|>"
FORMATS = (".txt", ".txt.gz", ".jsonl", ".jsonl.gz")

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
    name = Path(path).name.lower()
    if not name.endswith(FORMATS):
        raise unknown("story format", "".join(Path(name).suffixes), FORMATS)
    if name.removesuffix(".gz").endswith(".jsonl"):
        rows = ((number, line) for number, line in lines.numbered(path) if line.strip())
        found = [_story(path, number, line) for number, line in rows]
    else:
        text = "\n".join(line for _, line in lines.numbered(path))
        found = text.split(SEPARATOR) if SEPARATOR in text else text.split("\n")
    return lines.require(path, [story for story in map(str.strip, found) if story])


def _story(path: str | Path, number: int, line: str) -> str:
    try:
        story = json.loads(line)["text"]
    except (ValueError, TypeError, KeyError):
        story = None
    if not isinstance(story, str):
        raise UserError(f'{path} must have an object with a "text" a line, line {number} has none')
    return story


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
