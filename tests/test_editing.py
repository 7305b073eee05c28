"""Editing stories: the paper's cases and numbers by hand, models whose answers are known."""

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import tiny

import redraft
from redraft.config import DataConfig
from redraft.data import stories
from redraft.data.stories import synthetic
from redraft.errors import UserError
from redraft.experiments import editing
from redraft.experiments.editing import (
    ENTITY_STORIES,
    SPANS,
    Draft,
    Swap,
    deviations,
    lead,
    measures,
    names,
    random_spans,
    swapped,
    swaps,
    without,
)
from redraft.tokenizers.base import EOS, MASK, Tokenizer
from redraft.tokenizers.bpe import BPETokenizer
from redraft.tokenizers.smiles import SmilesTokenizer

PAPERS = [own.story for own in ENTITY_STORIES]
MADE = sorted(synthetic(60).train)
WORDS = BPETokenizer.fit([*PAPERS, *MADE] * 3, 2048)
"""Trained on so little that every word of it is one token."""


# ------------------------------------------------------------------ the paper's cases


def test_entities_occur_as_often_as_the_paper_says():
    cases = [swapped(WORDS, own) for own in ENTITY_STORIES]
    assert [own.others + 1 for own in cases] == [4, 5, 4, 5, 5]
    parts = [
        "named Lily. Tom had a big red ball.",
        "small dog named Sam. Tom and Max liked",
        "lost his blue dog. Sam was sad",
        "pretty cat. The dog was soft",
        "with the toy ball in his room",
    ]
    for own, case, part in zip(ENTITY_STORIES, cases, parts, strict=True):
        assert part in case.shown and len(case.shown.split()) == len(own.story.split())
        assert case.removed == WORDS.ids(f" {own.entity}")


def test_spans_are_as_long_and_stand_where_the_paper_says():
    for own, length in zip(SPANS, (9, 8, 9), strict=True):
        case = without(WORDS, own)
        n = len(case.ids) - 1  # without its end
        assert WORDS.decode(case.removed) == f" {own.removed}"
        assert case.length == length
        assert (case.start, case.start + length) == (int(0.35 * n), int(0.55 * n))
        assert case.masked.tolist().count(MASK) == case.shown.count("[MASK]") == length


def test_words_in_many_tokens_are_hidden_whole():
    letters = BPETokenizer.fit(["a b"], 259)
    for own in SPANS:
        case = without(letters, own)
        assert letters.decode(case.removed) == f" {own.removed}"


# ------------------------------------------------------------------ definitions


def tallies(*successes: int) -> list[Draft]:
    """So many of five trials brought the entity of each story back; else `She` was drawn."""
    cases = [swapped(WORDS, own) for own in ENTITY_STORIES]
    (she,) = WORDS.ids(" She")
    return [
        Draft(own.story, own.shown, trial, own.removed, drawn, own.others, "")
        for own, right in zip(cases, successes, strict=True)
        for trial in range(5)
        for drawn in [own.removed if trial < right else [she]]
    ]


@pytest.mark.parametrize(
    ("successes", "repair", "consistency"),
    [
        ((4, 3, 5, 5, 5), (0.880, 0.160), (0.974, 0.033)),  # VSDD
        ((0, 1, 4, 2, 2), (0.360, 0.265), (0.860, 0.065)),  # D3PM-Uniform
        ((5, 4, 5, 5, 5), (0.960, 0.080), (0.992, 0.016)),  # MDLM
    ],
)
def test_the_papers_tallies_give_its_table(successes, repair, consistency):
    drafts = tallies(*successes)
    values, spread = measures("entity-swap", drafts), deviations("entity-swap", drafts)
    for name, (mean, deviation) in {"exact_repair": repair, "consistency": consistency}.items():
        assert values[name].value == pytest.approx(mean, abs=1e-9)
        assert spread[name] == pytest.approx(deviation, abs=5e-4)
        assert values[name].low < mean < values[name].high


def drawn(tokens: list[int], removed: list[int], others: int = 0, story: str = "a") -> Draft:
    return Draft(story, "", 0, removed, tokens, others, "")


def test_definitions_on_small_cases():
    assert editing.consistency(drawn([7], [7], others=3)) == 1
    assert editing.consistency(drawn([8], [7], others=3)) == 3 / 4
    assert editing.consistency(drawn([8], [7], others=1)) == 1 / 2
    assert editing.token_overlap(drawn([5, 6, 7, 8], [5, 7, 6, 8])) == 1 / 2  # by place
    assert editing.exact_repair(drawn([8], [7])) == 0


def test_differences_are_paired_by_case():
    """What is hard for both goes out: the same gain on every story leaves what four may miss."""
    theirs = [drawn([i, 0, 0, 0], [9, 1, 2, 3], story=f"{i}") for i in range(8, 12)]
    ours = [replace(own, drawn=[own.drawn[0], 1, 0, 0]) for own in theirs]
    found = lead("span-removal", ours, theirs)
    margin = 1 - 0.025 ** (1 / 4)
    assert found["token_overlap"] == pytest.approx((0.25, 0.25 - margin, min(0.25 + margin, 1)))
    assert lead("span-removal", ours, theirs[::-1]) == found  # in whatever order they were drawn
    assert lead("span-removal", ours, theirs[:3]) == {}  # other stories


# ------------------------------------------------------------------ models whose answers are known


class Known:
    """A model that knows some stories by heart, and answers from them or never does."""

    device, batch = torch.device("cpu"), 7
    tokenizer = WORDS
    longest = 256

    def __init__(self, stories: list[str], right: bool):
        self.stories, self.right = [WORDS.encode(story) for story in stories], right

    def sampler(self):
        return self

    def infill(self, x, mask, generator, callback):
        assert (mask == (x == MASK)).all()
        filled = torch.full_like(x, EOS)
        for row, answer in zip(x.tolist(), filled, strict=True):
            (ids,) = [
                ids
                for ids in self.stories
                if all(a in (b, MASK) for a, b in zip(row, ids, strict=False))
            ]
            answer[: len(ids)] = torch.tensor(ids)
        return torch.where(mask, filled if self.right else EOS, x)


DRAWS = {
    name: lambda model, name=name: editing.draw(model, name, MADE, n=20)
    for name in editing.EXPERIMENTS
}


@pytest.mark.parametrize("experiment", DRAWS)
def test_right_answers_give_one_and_wrong_ones_nothing(experiment):
    right, wrong = (DRAWS[experiment](Known([*PAPERS, *MADE], answer)) for answer in (True, False))
    assert {own.result == own.story for own in right} == {True}
    best, worst = measures(experiment, right), measures(experiment, wrong)
    assert {estimate.value for estimate in best.values()} == {1}
    name = "token_overlap" if "span" in experiment else "exact_repair"
    assert worst[name].value == 0
    assert best[name].low < 1 and worst[name].high > 0  # so few stories leave doubt
    assert lead(experiment, right, wrong)[name].value == 1


def test_wrong_names_are_inconsistent_once():
    values = measures("entity-swap", DRAWS["entity-swap"](Known(PAPERS, right=False)))
    assert values["consistency"].value == pytest.approx((2 * 3 / 4 + 3 * 4 / 5) / 5)


# ------------------------------------------------------------------ cases from other stories


def test_names_are_told_from_other_capitals():
    stories = [
        "Once Lily met Mr. Tom. Then Lily said, Mom is here. The mom of Lily ran to Mom and Tom.",
        "Once upon a time, then, the mom saw a Xylophonia.",
    ]
    known = BPETokenizer.fit([" Lily Tom Mr Mom Once Then The mom then" for _ in "ab"], 400)
    assert len(known.ids(" Mr")) == len(known.ids(" Mom")) == 1
    assert names(known, stories) == ["Lily", "Tom"]


@given(st.integers(0, 99))
def test_a_later_occurrence_gets_another_name(seed):
    known = names(WORDS, MADE)
    found = swaps(WORDS, MADE, 10, seed)
    assert len(found) == 10
    for own in found:
        case = swapped(WORDS, own)
        assert 2 <= own.occurrence <= case.others + 1
        assert own.entity != own.wrong and {own.entity, own.wrong} <= set(known)
        assert case.removed == WORDS.ids(f" {own.entity}")
        place = [m.start() for m in re.finditer(f" {own.entity}\\b", own.story)][own.occurrence - 1]
        assert case.shown[:place] == own.story[:place]
        assert case.shown[place:].startswith(f" {own.wrong}")
    assert swaps(WORDS, MADE, 4, seed) == found[:4]


@given(st.integers(0, 99))
def test_random_spans_leave_some_on_both_sides(seed):
    found = random_spans(WORDS, MADE, 10, seed)
    assert len(found) == 10 and {own.length for own in found} <= {8, 9}
    for own in found:
        hidden = np.flatnonzero(own.masked == MASK)
        assert len(hidden) == own.length
        assert hidden[0] > 0 and hidden[-1] < len(own.ids) - 2  # a word and the end remain
    assert random_spans(WORDS, MADE, 4, seed) == found[:4]


def test_no_more_stories_are_read_than_are_needed(model):
    read: list[str] = []

    def told() -> Iterator[str]:
        for own in MADE:
            read.append(own)
            yield own

    found = editing.large_spans(WORDS, told(), 4)
    assert len(found) == 4 and len(read) <= 5
    for own in ("entity-swap", "span-removal"):
        assert editing.draw(model, own, told()) == editing.draw(model, own)
    assert len(read) <= 5


def test_models_of_all_seeds_are_given_the_same_cases(model):
    """Else their differences would not be paired; only what is drawn differs."""
    for name in ("entity-swap-large", "span-removal-large"):
        one, other = (editing.draw(model, name, MADE, n=6, seed=seed) for seed in (0, 1))
        assert list(map(editing.case_of, one)) == list(map(editing.case_of, other))
        assert [own.drawn for own in one] != [own.drawn for own in other]


def test_stories_are_prepared_for_the_entities_of_the_paper():
    words = {word for own in ENTITY_STORIES for word in (own.entity, own.wrong)}
    assert words == set(stories.ENTITIES)


def test_another_seed_gives_other_cases():
    assert swaps(WORDS, MADE, 10, 0) != swaps(WORDS, MADE, 10, 1)
    assert random_spans(WORDS, MADE, 10, 0) != random_spans(WORDS, MADE, 10, 1)


def test_longer_names_are_not_occurrences():
    case = swapped(WORDS, Swap("Then Ben saw Benny, and Ben's mom saw Ben.", "Ben", "Tom", 2))
    assert case.others == 2
    assert case.shown == "Then Ben saw Benny, and Tom's mom saw Ben."


# ------------------------------------------------------------------ a real model


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> redraft.Model:
    config = tiny("d3pm-uniform", steps=5, batch=8, validate=8, device="cpu")
    data = DataConfig(domain="stories", synthetic=200, vocabulary=650, max_length=160)
    return redraft.train(replace(config, data=data), tmp_path_factory.mktemp("runs") / "stories")


def test_only_the_hidden_token_is_drawn_anew(model):
    drafts = editing.draw(model, "entity-swap", seed=3)
    assert len(drafts) == 25 and {own.trial for own in drafts} == set(range(5))
    for own, swap in zip(drafts, ENTITY_STORIES * 5, strict=True):
        place = editing.occurrences(swap.story, swap.entity)[swap.occurrence - 1]
        assert own.story == swap.story and own.result.startswith(own.story[: place.start()])
        assert own.drawn == [EOS] or own.result.endswith(own.story[place.end() :])
    assert (
        drafts
        == editing.draw(model, "entity-swap", seed=3)
        != editing.draw(model, "entity-swap", seed=4)
    )
    trials = [[own.drawn for own in drafts if own.trial == trial] for trial in range(5)]
    assert all(a != b for i, a in enumerate(trials) for b in trials[:i])


def test_drafts_travel_as_lines_and_become_a_result(model):
    drafts = editing.draw(model, "span-removal")
    stored = [Draft(**json.loads(json.dumps(asdict(own)))) for own in drafts]
    assert stored == drafts
    found = editing.result(model.trained, "span-removal", stored)
    assert (found["experiment"], found["n"], found["trials"]) == ("span-removal", 3, 5)
    assert set(found["metrics"]) == set(found["deviation"]) == {"token_overlap"}
    large = editing.result(
        model.trained, "entity-swap-large", editing.draw(model, "entity-swap-large", MADE, n=5)
    )
    assert (large["n"], large["trials"]) == (5, 1)
    assert set(large["metrics"]) == {"exact_repair", "consistency"}


# ------------------------------------------------------------------ mistakes


def with_tokens(tokenizer: Tokenizer, longest: int = 256) -> Any:
    return SimpleNamespace(tokenizer=tokenizer, longest=longest)


LETTERS = BPETokenizer.fit(["a b"], 259)


@pytest.mark.parametrize(
    ("tokenizer", "longest", "what", "said"),
    [
        (LETTERS, 256, ("entity-swap",), "Ben|Lily"),
        (SmilesTokenizer.fit(["CCO"]), 256, ("entity-swap",), "smiles"),
        (WORDS, 20, ("span-removal",), "at most 20"),
        (WORDS, 256, ("entity-swap-large", ["No Lily. So Tom."]), "none of 1"),
        (WORDS, 256, ("entity-swap-large", ["a Lily, a Lily"]), "two names"),
        (WORDS, 256, ("span-removal-large", ["a Lily"]), "at least 10"),
        (WORDS, 256, ("span-removal-large", MADE, 0), "got 0"),
        (WORDS, 256, ("entity-swap-large", MADE, 0), "got 0"),
    ],
)
def test_mistakes_are_told(tokenizer, longest, what, said):
    with pytest.raises(UserError, match=said):
        editing.draw(with_tokens(tokenizer, longest), *what)
