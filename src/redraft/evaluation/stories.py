"""Generated stories: how likely another language model finds them, how varied they are, how new.

    judge_perplexity    exp(sum of nats / sum of tokens) under a judge       over all stories
    nll_per_character   sum of nats / sum of characters, the same way        over all stories
    distinct_1, _2      distinct n-grams of words over all n-grams           of the whole set
    unigram_entropy     -sum_w p(w) ln p(w) of its words, in nats            of the whole set
    copied              have a run of over 50 tokens from a training story   over all stories

Perplexities of two judges cannot be compared, and a story that repeats itself pleases every judge:
so the judge is named, and variety stands beside perplexity. Distinct-n falls and entropy rises as
stories are added, so their number is named too. Words are what stands between white space.
"""

import random
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from redraft.errors import UserError
from redraft.evaluation import statistics
from redraft.evaluation.copies import Ids, copied
from redraft.evaluation.judge import Judge, Judging, Likelihood
from redraft.evaluation.statistics import Estimate


def generation(
    samples: Sequence[str],
    training_ids: Iterable[Ids],
    encode: Callable[[str], Ids],
    judge: Judge | None = None,
    seed: int = 0,
    callback: Judging | None = None,
) -> dict[str, Estimate]:
    """All measures. Without a judge there is no likelihood; what no sample defines is absent.

    `encode` gives a sample's ids as the training stories have theirs: a model may spell a copied
    story in other tokens than the tokenizer would, and it is a copy all the same.
    """
    measures = quality(samples, judge, seed, callback)
    copies = copied([encode(text) for text in samples], training_ids, seed=seed)
    return measures | {"copied": copies}


def quality(
    samples: Sequence[str],
    judge: Judge | None = None,
    seed: int = 0,
    callback: Judging | None = None,
) -> dict[str, Estimate]:
    """All measures that need no training stories."""
    if not samples:
        raise UserError("at least one generated story is needed, got none")
    judged = judge.nll(samples, callback) if judge else []
    measures = likelihood(judged, seed) if any(one.tokens for one in judged) else {}
    return measures | variety(samples, seed)


# ------------------------------------------------------------------ likelihood


def likelihood(judged: Sequence[Likelihood], seed: int = 0) -> dict[str, Estimate]:
    """Both measures that a judge gives."""
    return {
        "judge_perplexity": perplexity(judged, seed),
        "nll_per_character": nll_per_character(judged, seed),
    }


def perplexity(judged: Sequence[Likelihood], seed: int = 0) -> Estimate:
    """exp(sum_i nll_i / sum_i tokens_i), with a bootstrap over texts."""
    tokens = [one.tokens for one in judged]
    mean = statistics.bootstrap_ratio([one.nll for one in judged], tokens, seed)
    return Estimate(*np.exp(mean).tolist())


def nll_per_character(judged: Sequence[Likelihood], seed: int = 0) -> Estimate:
    """sum_i nll_i / sum_i characters_i, whatever tokens the judge may cut texts into, likewise."""
    characters = [one.characters for one in judged]
    return statistics.bootstrap_ratio([one.nll for one in judged], characters, seed)


def apart(a: Sequence[Likelihood], b: Sequence[Likelihood], seed: int = 0) -> dict[str, Estimate]:
    """Perplexity of a over that of b, and nats per character of a less those of b."""
    tokens, characters = (
        statistics.difference(_influences(a, column), _influences(b, column), seed)
        for column in ("tokens", "characters")
    )
    ratio = Estimate(*np.exp(tokens).tolist())
    return {"judge_perplexity_ratio": ratio, "nll_per_character": characters}


def _influences(judged: Sequence[Likelihood], column: str) -> np.ndarray:
    """Numbers whose mean is sum_i nll_i / sum_i count_i, and varies as that does, to first order.

    r + (nll_i - r count_i) / mean count, with r the ratio itself.
    """
    nll = np.array([one.nll for one in judged])
    counts = np.array([getattr(one, column) for one in judged])
    ratio = nll.sum() / counts.sum()
    return ratio + (nll - ratio * counts) / counts.mean()


def scale(
    judge: Judge, texts: Sequence[str], seed: int = 0, callback: Judging | None = None
) -> dict[str, dict[str, Estimate]]:
    """What the measures of a judge are worth: those of real texts, and of their words shuffled.

    The order is the same for every seed, so that no text is judged twice.
    """
    ends = {"real": texts, "shuffled": [shuffled(text) for text in texts]}
    return {end: likelihood(judge.nll(found, callback), seed) for end, found in ends.items()}


def shuffled(text: str, seed: int = 0) -> str:
    """The words of a text in random order, white space where it was.

    >>> sorted(shuffled("Tom saw\\na dog.").split())
    ['Tom', 'a', 'dog.', 'saw']
    """
    words = text.split()
    random.Random(f"{seed} {text}").shuffle(words)  # other texts around it must not matter
    drawn = iter(words)
    return re.sub(r"\S+", lambda _: next(drawn), text)


# ------------------------------------------------------------------ variety


def variety(texts: Sequence[str], seed: int = 0) -> dict[str, Estimate]:
    """All measures of a set that need neither judge nor training data."""
    measures, words = {}, [text.split() for text in texts]
    for n in (1, 2):
        if any(len(text) >= n for text in words):
            measures[f"distinct_{n}"] = distinct(texts, n, seed)
    if any(words):
        measures["unigram_entropy"] = unigram_entropy(texts, seed)
    return measures


def distinct(texts: Sequence[str], n: int, seed: int = 0) -> Estimate:
    """Distinct n-grams of words over all n-grams of a set of texts (Li et al., 2016).

    >>> distinct(["a dog saw a dog"], 2).value
    0.75
    """
    words = [text.split() for text in texts]
    rows = [list(zip(*(text[i:] for i in range(n)), strict=False)) for text in words]
    grams, owners, kinds = _numbered([row for row in rows if row])
    if not len(grams):
        raise UserError(f"Distinct-{n} needs a text of at least {n} words, got none")

    def share(chosen: np.ndarray) -> float:
        kept, seen = np.zeros(owners[-1] + 1, bool), np.zeros(kinds, bool)
        kept[chosen] = True
        found = grams[kept[owners]]
        seen[found] = True
        return float(seen.sum() / len(found))

    return statistics.subsample(share, np.arange(owners[-1] + 1), seed)


def unigram_entropy(texts: Sequence[str], seed: int = 0) -> Estimate:
    """-sum_w p(w) ln p(w) of the words of a set of texts, in nats.

    That is the mean of -ln p(w) over all words, so it has a mean's bootstrap over texts: how p
    itself would vary does not matter to first order, since sum_w p(w) d ln p(w) = 0.
    """
    words, owners, kinds = _numbered([text.split() for text in texts])
    if not len(words):
        raise UserError("the entropy of words needs a text with a word, got none")
    surprise = -np.log(np.bincount(words, minlength=kinds) / len(words))[words]
    totals, counts = np.bincount(owners, surprise), np.bincount(owners)
    return statistics.bootstrap_ratio(totals, counts, seed)


def _numbered(rows: Sequence[Sequence[Any]]) -> tuple[np.ndarray, np.ndarray, int]:
    """All entries as numbers from 0, equal ones alike; the row of each; how many kinds."""
    kinds: dict[Any, int] = {}
    numbers = [kinds.setdefault(entry, len(kinds)) for entry in chain.from_iterable(rows)]
    owners = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    return np.array(numbers, np.int64), owners, len(kinds)
