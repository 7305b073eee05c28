"""Editing stories: a wrong name, or a span that is gone, drawn anew from the rest of the story.

    exact_repair    the name that stood there came back
    consistency     share of the entity's occurrences that have the most common of their values
    token_overlap   share of a span's tokens that came back in their places

Entity swap and span removal are the paper's, on its own stories, five trials each; the large forms
do the same once to each of many unseen stories. The hidden tokens start from the process's prior,
as everywhere in infilling, so the model never reads the wrong name; all others stay as they are.

The paper's +- is the population deviation over stories of each story's mean over trials. Intervals
are over stories, too, since trials of one story are not independent of each other.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from redraft.batches import collate
from redraft.config import check
from redraft.errors import UserError
from redraft.evaluation import results, statistics
from redraft.evaluation.results import Run
from redraft.evaluation.statistics import Estimate
from redraft.model import Model
from redraft.sampler import Callback
from redraft.tokenizers.base import MASK, shorten
from redraft.tokenizers.bpe import BPETokenizer

TRIALS = 5
LARGE = 200
"""Unseen stories in the large forms."""
CHOICE = 0
"""The seed that chooses their names and spans: the same cases for all models and seeds."""
LENGTHS = (8, 9)
"""Tokens of a random span."""
TITLES = {"Mr", "Mrs", "Ms", "Miss", "Dr"}


# ------------------------------------------------------------------ the paper's stories


class Swap(NamedTuple):
    """One occurrence of an entity, counted from 1, gets the name of another."""

    story: str
    entity: str
    wrong: str
    occurrence: int


class Span(NamedTuple):
    """A part of a story, whole words; the space before it goes with it."""

    story: str
    removed: str


LILY = (
    "Once upon a time there was a little girl named Lily. Lily had a big red ball. "
    "She loved to play with the red ball every day. "
    "One day Lily took the red ball to the park. Lily was very happy."
)
MAX = (
    "Tom had a small dog named Max. Tom and Max liked to play in the park. "
    "Every morning Tom took Max for a long walk. "
    "Max was a good dog and Tom loved Max very much."
)
SAM = (
    "There was a little boy named Sam. Sam had a blue car. "
    "Sam liked to play with his blue car. One day Sam lost his blue car. "
    "Sam was sad but then he found the blue car under the bed."
)
CAT = (
    "Lily had a pretty cat. The cat was soft and white. "
    "Lily liked to pet her cat every day. One day the cat found a little mouse. "
    "Lily and the cat played in the garden."
)
TRAIN = (
    "Ben had a toy train. Ben loved his toy train. "
    "Every day Ben played with the toy train in his room. "
    "One day Ben took the toy train to show his friend. His friend liked the toy train too."
)

ENTITY_STORIES = (
    Swap(LILY, "Lily", "Tom", 2),
    Swap(MAX, "Max", "Sam", 1),
    Swap(SAM, "car", "dog", 3),
    Swap(CAT, "cat", "dog", 2),
    Swap(TRAIN, "train", "ball", 3),
)
SPANS = (
    Span(LILY, "red ball. She loved to play with the"),
    Span(MAX, "in the park. Every morning Tom took"),
    Span(SAM, "liked to play with his blue car. One"),
)
"""What stands from 35 % to 55 % of each story, 9, 8 and 9 tokens where every word is one."""


# ------------------------------------------------------------------ drawing


@dataclass(frozen=True)
class Case:
    """A story and the tokens of it that are to be drawn anew."""

    story: str
    shown: str
    """The story with the wrong name, or with masks in place of the span."""
    ids: list[int]
    """Tokens of the story, its end included."""
    start: int
    length: int
    """Of the hidden part, in tokens."""
    others: int = 0
    """Occurrences of the entity that are not hidden."""

    @property
    def removed(self) -> list[int]:
        return self.ids[self.start : self.start + self.length]

    @property
    def masked(self) -> np.ndarray:
        ids = np.array(self.ids)
        ids[self.start : self.start + self.length] = MASK
        return ids


@dataclass(frozen=True)
class Draft:
    """One trial of one case."""

    story: str
    shown: str
    trial: int
    removed: list[int]
    """Tokens that were hidden."""
    drawn: list[int]
    """Tokens that the model put in their places."""
    others: int
    """Occurrences of the entity that were not hidden; 0 for a span."""
    result: str
    """The story after it, up to an end if one was drawn."""


def draw(
    model: Model,
    experiment: str,
    stories: Iterable[str] = (),
    n: int = LARGE,
    seed: int = 0,
    callback: Callback | None = None,
) -> list[Draft]:
    """All trials of an experiment; its large form is of at most n unseen stories."""
    own = EXPERIMENTS[experiment]
    cases = own.cases(bpe_of(model), fitting(model, stories), n)
    return infilled(model, cases, own.trials, seed, callback)


@torch.no_grad()
def infilled(
    model: Model, cases: Sequence[Case], trials: int, seed: int, callback: Callback | None = None
) -> list[Draft]:
    """Every case in every trial; each trial has random numbers of its own."""
    most = model.longest
    for case in cases:
        n = len(case.ids)
        check(n <= most, f"{shorten(case.story)} has {n} tokens, this model takes at most {most}")
    sampler, found = model.sampler(), []
    for trial in range(trials):
        own = int(np.random.default_rng([seed, trial]).integers(2**63))
        generator = torch.Generator(model.device).manual_seed(own)
        for first in range(0, len(cases), model.batch):
            part = cases[first : first + model.batch]
            x = collate([case.masked for case in part], model.device)  # (B, L)
            rows = sampler.infill(x, x == MASK, generator, callback).tolist()
            found += [draft(model, case, trial, row) for case, row in zip(part, rows, strict=True)]
    return found


def draft(model: Model, case: Case, trial: int, row: list[int]) -> Draft:
    drawn = row[case.start : case.start + case.length]
    text = model.tokenizer.decode(row)
    return Draft(case.story, case.shown, trial, case.removed, drawn, case.others, text)


def bpe_of(model: Model) -> BPETokenizer:
    tokenizer = model.tokenizer
    if not isinstance(tokenizer, BPETokenizer):
        raise UserError(
            f"editing stories needs a model with {BPETokenizer.name} tokens, "
            f"this one has {tokenizer.name} tokens"
        )
    return tokenizer


def fitting(model: Model, stories: Iterable[str]) -> Iterator[str]:
    return (own for own in stories if len(model.tokenizer.encode(own)) <= model.longest)


# ------------------------------------------------------------------ cases


def own_swaps(tokenizer: BPETokenizer, stories: Iterable[str], n: int) -> list[Case]:
    """The paper's five stories."""
    words = {word for own in ENTITY_STORIES for word in (own.entity, own.wrong)}
    tokenizer.require_single_tokens(sorted(words))
    return [swapped(tokenizer, own) for own in ENTITY_STORIES]


def own_spans(tokenizer: BPETokenizer, stories: Iterable[str], n: int) -> list[Case]:
    """The paper's three spans."""
    return [without(tokenizer, own) for own in SPANS]


def large_swaps(tokenizer: BPETokenizer, stories: Iterable[str], n: int) -> list[Case]:
    """A name in each of at most n unseen stories."""
    fit = list(stories)
    found = swaps(tokenizer, fit, n, CHOICE)
    check(bool(found), f"none of {len(fit)} stories that fit has a name of one token twice")
    return [swapped(tokenizer, own) for own in found]


def large_spans(tokenizer: BPETokenizer, stories: Iterable[str], n: int) -> list[Case]:
    """A random span of each of at most n unseen stories."""
    found = random_spans(tokenizer, stories, n, CHOICE)
    least = min(LENGTHS) + 2
    check(bool(found), f"none of the stories that fit has at least {least} tokens")
    return found


def swapped(tokenizer: BPETokenizer, swap: Swap) -> Case:
    """One occurrence hidden, the others counted."""
    story, entity, wrong, occurrence = swap
    found = occurrences(story, entity)
    hidden = found[occurrence - 1]
    return Case(
        story,
        f"{story[: hidden.start()]} {wrong}{story[hidden.end() :]}",
        tokenizer.encode(story),
        start=len(tokenizer.ids(story[: hidden.start()])),
        length=1,
        others=len(found) - 1,
    )


def occurrences(story: str, word: str) -> list[re.Match[str]]:
    """Where a word stands whole and after a space: only there it is the token that is swapped."""
    return list(re.finditer(rf" {re.escape(word)}\b", story))


def without(tokenizer: BPETokenizer, span: Span) -> Case:
    before = span.story[: span.story.index(f" {span.removed}")]
    start, length = len(tokenizer.ids(before)), len(tokenizer.ids(f" {span.removed}"))
    return hide(tokenizer, span.story, start, length)


def hide(tokenizer: BPETokenizer, story: str, start: int, length: int) -> Case:
    """Tokens `start` to `start + length` of a story hidden."""
    ids = tokenizer.encode(story)
    shown = tokenizer.decode([*ids[:start], *[MASK] * length, *ids[start + length :]])
    return Case(story, shown, ids, start, length)


def swaps(tokenizer: BPETokenizer, stories: Sequence[str], n: int, seed: int) -> list[Swap]:
    """A name that a story has at least twice, wrong after its first time, in the first n stories.

    Each story has random numbers of its own, so a larger n does not change the first ones.
    """
    check(n >= 1, f"n must be at least 1, got {n}")
    known = names(tokenizer, stories)
    check(len(known) >= 2, f"a swap needs two names of one token each, the stories have {known}")
    found: list[Swap] = []
    for number, story in enumerate(stories):
        if len(found) == n:
            break
        counts = {name: len(occurrences(story, name)) for name in known if name in story}
        repeated = [name for name, count in counts.items() if count >= 2]
        if repeated:
            rng = np.random.default_rng([seed, number])
            entity = str(rng.choice(repeated))
            wrong = str(rng.choice([name for name in known if name != entity]))
            found.append(Swap(story, entity, wrong, int(rng.integers(2, counts[entity] + 1))))
    return found


def names(tokenizer: BPETokenizer, stories: Sequence[str]) -> list[str]:
    """Words of one token that are capitalised within sentences, more often than they are not.

    That leaves out words which begin sentences, and mom; titles are left out by hand.
    """
    inside = Counter(
        word for story in stories for word in re.findall(r"[a-z,] ([A-Z][a-z]+)\b", story)
    )
    small = Counter(word for story in stories for word in re.findall(r"\b[a-z]+\b", story))
    return [
        word
        for word in sorted(inside.keys() - TITLES)
        if inside[word] > small[word.lower()] and len(tokenizer.ids(f" {word}")) == 1
    ]


def random_spans(tokenizer: BPETokenizer, stories: Iterable[str], n: int, seed: int) -> list[Case]:
    """8 or 9 tokens hidden in the first n stories that leave some on both sides."""
    check(n >= 1, f"n must be at least 1, got {n}")
    found: list[Case] = []
    for number, story in enumerate(stories):
        if len(found) == n:
            break
        rng = np.random.default_rng([seed, number])
        length = int(rng.choice(LENGTHS))
        room = len(tokenizer.ids(story)) - length
        if room >= 2:
            found.append(hide(tokenizer, story, int(rng.integers(1, room)), length))
    return found


# ------------------------------------------------------------------ measures


def exact_repair(own: Draft) -> float:
    """Whether the token that was hidden came back; an equal word of other tokens is not it."""
    return float(own.drawn == own.removed)


def consistency(own: Draft) -> float:
    """Share of all occurrences of the entity that agree with their most common value.

    Occurrences are the places where the entity stood in the original: one was drawn, the others
    are as they were. So three of four agree where `Lily` became `She`.
    """
    values = Counter([*own.drawn, *own.removed * own.others])
    return max(values.values()) / values.total()


def token_overlap(own: Draft) -> float:
    """Share of places in which the drawn token is the one that was hidden there."""
    hits = [new == old for new, old in zip(own.drawn, own.removed, strict=True)]
    return sum(hits) / len(hits)


Measure = Callable[[Draft], float]
SWAP: dict[str, Measure] = {"exact_repair": exact_repair, "consistency": consistency}
SPAN: dict[str, Measure] = {"token_overlap": token_overlap}


class Experiment(NamedTuple):
    cases: Callable[[BPETokenizer, Iterable[str], int], list[Case]]
    trials: int
    measures: dict[str, Measure]
    own: Sequence[Swap | Span] = ()
    """The paper's; else it is of unseen stories."""

    def drafts(self, n: int) -> int:
        """How many there are, where n unseen stories can be had."""
        return (len(self.own) or n) * self.trials


EXPERIMENTS: Mapping[str, Experiment] = {
    "entity-swap": Experiment(own_swaps, TRIALS, SWAP, ENTITY_STORIES),
    "span-removal": Experiment(own_spans, TRIALS, SPAN, SPANS),
    "entity-swap-large": Experiment(large_swaps, 1, SWAP),
    "span-removal-large": Experiment(large_spans, 1, SPAN),
}


def result(run: Run, experiment: str, drafts: Sequence[Draft], seed: int = 0) -> dict[str, Any]:
    """As it stands in a file of results; the paper prints value +- deviation."""
    n = len({case_of(own) for own in drafts})
    spread = deviations(experiment, drafts)
    trials = 1 + max(own.trial for own in drafts)
    metrics = measures(experiment, drafts, seed)
    return results.result(run, experiment, n, metrics, trials=trials, deviation=spread)


def measures(experiment: str, drafts: Sequence[Draft], seed: int = 0) -> dict[str, Estimate]:
    """Means over stories, each a share, so that an interval is left where all stories agree."""
    return {
        name: statistics.share(by_case(measure, drafts), seed)
        for name, measure in EXPERIMENTS[experiment].measures.items()
    }


def deviations(experiment: str, drafts: Sequence[Draft]) -> dict[str, float]:
    """The population deviation over stories, which the paper prints behind +-."""
    return {
        name: float(np.std(by_case(measure, drafts)))
        for name, measure in EXPERIMENTS[experiment].measures.items()
    }


def lead(
    experiment: str, a: Sequence[Draft], b: Sequence[Draft], seed: int = 0
) -> dict[str, Estimate]:
    """Measures of a less those of b, paired by case; none where the cases differ."""
    if {case_of(own) for own in a} != {case_of(own) for own in b}:
        return {}
    return {
        name: statistics.paired_difference(by_case(measure, a), by_case(measure, b), seed)
        for name, measure in EXPERIMENTS[experiment].measures.items()
    }


def by_case(measure: Measure, drafts: Sequence[Draft]) -> list[float]:
    """Each case's mean over its trials, cases in an order of their own."""
    values: dict[tuple[str, str], list[float]] = {}
    for own in sorted(drafts, key=case_of):
        values.setdefault(case_of(own), []).append(measure(own))
    return [sum(trials) / len(trials) for trials in values.values()]


def case_of(own: Draft) -> tuple[str, str]:
    return own.story, own.shown
