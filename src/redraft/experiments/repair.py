"""Repair: unseen molecules broken by a few random edits, and repaired by a model and by rules.

    repair_rate      results that are valid
    exact_recovery   the molecule that it was
    edit_distance    tokens between the broken string and its repair, over the repaired
    tanimoto         similarity of the result to the molecule, 0 where it is not repaired

Molecules are broken by random edits of tokens, and edits of tokens are what the model's repairer
searches: with one edit the molecule is always among its candidates, and the question is whether it
is chosen. Errors of real generators may be of other kinds, and harder.

To be valid is easy, to stay the same molecule is not: a repairer that answers methane repairs all.
The baselines are what people use today, and a blind search for a valid string an edit away, which
shows what the model adds to searching. Differences to them are paired, over the same cases.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from typing import Any, NamedTuple

import numpy as np

from redraft.config import check
from redraft.data.molecules import canonical, canonical_or_none
from redraft.errors import UserError
from redraft.evaluation import statistics
from redraft.evaluation.molecules import similarity
from redraft.evaluation.statistics import Estimate
from redraft.model import Model
from redraft.repair import distance
from redraft.tokenizers.base import EOS
from redraft.tokenizers.smiles import SmilesTokenizer

Repair = Callable[[str], str | None]
"""A string to a valid one; None: not repaired."""
TRIES = 100
"""Draws of edits, until a molecule counts as one that cannot be broken."""
BLIND_TRIES = 3000
"""Random edits that blind search looks at; there are about 5,000 in all."""
RING_CHOICES = 64
"""Ways to close or drop open ring bonds that are tried: all of them for six bonds."""


@dataclass(frozen=True)
class Case:
    """A molecule and what became of it."""

    original: str
    broken: str
    edits: int
    """Tokens that were replaced, inserted or left out, one after the other."""


class Attempt(NamedTuple):
    """One case, for whoever watches."""

    case: Case
    results: dict[str, str | None]
    """What each repairer made of it."""
    n: int
    """Cases to go."""


class Outcome(NamedTuple):
    """What one repair is worth."""

    valid: bool = False
    exact: bool = False
    tanimoto: float = 0.0
    edits: int = 0
    """From the broken string; means nothing where the result is not valid."""


def run(
    model: Model,
    originals: Sequence[str],
    seed: int = 0,
    edits: Sequence[int] = (1, 2, 3),
    callback: Callable[[Any], object] | None = None,
) -> dict[str, Any]:
    """For each number of edits, every repairer's measures, and the model's lead; ready for JSON.

    The callback gets an `Attempt` after every case.
    """
    tokens = model.tokenizer.tokens[EOS + 1 :]
    drawn = {number: broken(originals, tokens, number, seed) for number in edits}
    to_go = sum(map(len, drawn.values()))
    found: dict[str, Any] = {}
    for number, cases in drawn.items():
        outcomes: dict[str, list[Outcome]] = {}
        tried = attempts(model, [case.broken for case in cases], seed)
        for case, results in zip(cases, tried, strict=True):
            for name, result in results.items():
                outcomes.setdefault(name, []).append(outcome(case, result))
            to_go -= 1
            if callback:
                callback(Attempt(case, results, to_go))
        skipped = len(originals) - len(cases)
        found[str(number)] = {"n": len(cases), "skipped": skipped, **summary(outcomes, seed)}
    return found


def attempts(model: Model, texts: Sequence[str], seed: int) -> Iterator[dict[str, str | None]]:
    """What the model, blind search and every baseline make of each broken string."""
    others, tokens = baselines(), model.tokenizer.tokens[EOS + 1 :]
    repairs = model.repair(texts, seed=seed)
    for number, (text, own) in enumerate(zip(texts, repairs, strict=True)):
        rules = {name: repair(text) for name, repair in others.items()}
        rng = np.random.default_rng([seed, number])
        yield {"model": own.result, "any_edit": any_edit(text, tokens, rng), **rules}


# ------------------------------------------------------------------ breaking


def broken(originals: Sequence[str], tokens: Sequence[str], edits: int, seed: int) -> list[Case]:
    """Molecules after random edits, drawn again until they do not parse.

    What cannot be broken is left out. Each molecule has random numbers of its own, so more
    molecules do not change the first ones.
    """
    check(edits >= 1, f"edits must be at least 1, got {edits}")
    check(len(set(tokens)) >= 2, f"at least 2 different tokens are needed, got {list(tokens)}")
    cases = []
    for number, original in enumerate(originals):
        canonical(original)  # or tells that it is no molecule
        rng = np.random.default_rng([seed, edits, number])
        text = break_one(original, tokens, edits, rng)
        if text is not None:
            cases.append(Case(original, text, edits))
    return cases


def break_one(
    original: str, tokens: Sequence[str], edits: int, rng: np.random.Generator
) -> str | None:
    """Neither empty nor a molecule, and read as the very tokens that the edits left."""
    for _ in range(TRIES):
        pieces = SmilesTokenizer.split(original)
        for _ in range(edits):
            pieces = edited(pieces, tokens, rng)
        text = SmilesTokenizer.join(pieces)
        if text and SmilesTokenizer.split(text) == pieces and canonical_or_none(text) is None:
            return text
    return None


def edited(pieces: list[str], tokens: Sequence[str], rng: np.random.Generator) -> list[str]:
    """One token replaced by another, inserted or left out: equally likely, anywhere."""
    kind = rng.choice(["replace", "insert", "leave out"]) if pieces else "insert"
    at = int(rng.integers(len(pieces) + (kind == "insert")))
    if kind == "leave out":
        return [*pieces[:at], *pieces[at + 1 :]]
    if kind == "insert":
        return [*pieces[:at], str(rng.choice(tokens)), *pieces[at:]]
    others = [token for token in tokens if token != pieces[at]]
    return [*pieces[:at], str(rng.choice(others)), *pieces[at + 1 :]]


# ------------------------------------------------------------------ baselines


def any_edit(text: str, tokens: Sequence[str], rng: np.random.Generator) -> str | None:
    """The first valid string among random ones an edit away: what search finds without a model."""
    pieces = SmilesTokenizer.split(text)
    tries = (SmilesTokenizer.join(edited(pieces, tokens, rng)) for _ in range(BLIND_TRIES))
    return next((found for found in tries if canonical_or_none(found) is not None), None)


def baselines() -> dict[str, Repair]:
    """What people use today; the SELFIES route only where its package is installed."""
    try:
        import selfies  # noqa: F401
    except ImportError:
        return {"close_brackets": close_brackets}
    return {"close_brackets": close_brackets, "through_selfies": through_selfies}


def close_brackets(text: str) -> str | None:
    """Rules for brackets and rings, and for nothing else.

    A `)` that closes nothing is dropped, missing ones are appended. A ring bond that stays open is
    closed by its number at the end; where that does not parse, the number is dropped. Of several
    open ones as many as possible are closed.

    >>> close_brackets("CC(C"), close_brackets("CC)C"), close_brackets("c1ccccc")
    ('CC(C)', 'CCC', 'c1ccccc1')
    """
    if canonical_or_none(text) is not None:
        return text
    pieces = balanced(SmilesTokenizer.split(text))
    rings = open_rings(pieces)
    choices = (gone for size in range(len(rings) + 1) for gone in combinations(rings, size))
    for gone in islice(choices, RING_CHOICES):
        kept = [piece for at, piece in enumerate(pieces) if at not in gone]
        ends = [pieces[at] for at in rings if at not in gone]
        candidate = SmilesTokenizer.join([*kept, *ends])
        if canonical_or_none(candidate) is not None:
            return candidate
    return None


def balanced(pieces: Sequence[str]) -> list[str]:
    """Without any `)` that closes nothing, and with those that are missing."""
    kept, depth = [], 0
    for piece in pieces:
        if piece == ")" and depth == 0:
            continue
        depth += {"(": 1, ")": -1}.get(piece, 0)
        kept.append(piece)
    return [*kept, *")" * depth]


def open_rings(pieces: Sequence[str]) -> list[int]:
    """Where the ring bonds begin that never end."""
    begun: dict[str, int] = {}
    for at, piece in enumerate(pieces):
        if piece[0] in "%0123456789" and begun.pop(piece, None) is None:
            begun[piece] = at
    return list(begun.values())


def through_selfies(text: str) -> str | None:
    """To SELFIES and back, of the longest beginning that gets there.

    SELFIES are always molecules, but their encoder takes no broken SMILES. So tokens are left out
    at the end until what is before them, closed by `close_brackets`, can be encoded. SELFIES write
    rings and atoms in other ways; where the molecule is the same, it stays written as it was, so
    that no edits are counted for that. Needs the package `selfies`.
    """
    try:
        import selfies
    except ImportError:
        raise UserError("the SELFIES route needs an extra package: pip install selfies") from None
    pieces = SmilesTokenizer.split(text)
    for length in range(len(pieces), 0, -1):
        closed = close_brackets(SmilesTokenizer.join(pieces[:length]))
        if closed is None:
            continue
        try:
            result = str(selfies.decoder(str(selfies.encoder(closed))))
        except (selfies.EncoderError, selfies.DecoderError):
            continue
        form = canonical_or_none(result)
        if form is not None:
            return closed if form == canonical(closed) else result
    return None


# ------------------------------------------------------------------ measures


def outcome(case: Case, result: str | None) -> Outcome:
    """A result that does not parse is none."""
    form = None if result is None else canonical_or_none(result)
    if result is None or form is None:
        return Outcome()
    return Outcome(
        valid=True,
        exact=form == canonical(case.original),
        tanimoto=similarity(result, case.original),
        edits=distance(SmilesTokenizer.split(case.broken), SmilesTokenizer.split(result)),
    )


def measures(outcomes: Sequence[Outcome], seed: int = 0) -> dict[str, Estimate]:
    """Each with its interval over cases; edit_distance is absent where nothing was repaired."""
    estimates = {
        "repair_rate": statistics.share([o.valid for o in outcomes], seed),
        "exact_recovery": statistics.share([o.exact for o in outcomes], seed),
        "tanimoto": statistics.bootstrap_mean([o.tanimoto for o in outcomes], seed),
    }
    edits = [o.edits for o in outcomes if o.valid]
    if edits:
        estimates["edit_distance"] = statistics.bootstrap_mean(edits, seed)
    return estimates


def lead(a: Sequence[Outcome], b: Sequence[Outcome], seed: int = 0) -> dict[str, Estimate]:
    """Measures of a less those of b, paired by case."""
    return {
        "exact_recovery": statistics.paired_difference(
            [o.exact for o in a], [o.exact for o in b], seed
        ),
        "tanimoto": statistics.paired_difference(
            [o.tanimoto for o in a], [o.tanimoto for o in b], seed
        ),
    }


def summary(outcomes: Mapping[str, Sequence[Outcome]], seed: int = 0) -> dict[str, Any]:
    """Measures of every repairer, and the model's lead on each of the others."""
    metrics = {name: measures(own, seed) for name, own in outcomes.items()}
    differences = {
        name: lead(outcomes["model"], other, seed)
        for name, other in outcomes.items()
        if name != "model"
    }
    return {"metrics": plain(metrics), "differences": plain(differences)}


def plain(found: Mapping[str, Mapping[str, Estimate]]) -> dict[str, dict[str, dict[str, float]]]:
    """As it stands in a file of results."""
    return {
        name: {measure: estimate.to_dict() for measure, estimate in own.items()}
        for name, own in found.items()
    }
