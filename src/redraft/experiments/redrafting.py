"""Re-drafting: unseen molecules noised to a share of T, and brought back.

    validity               of what came back
    exact_recovery         the molecule that it was
    similarity             Tanimoto of what came back to the molecule, 0 where it is not valid
    tokens_kept            tokens that the noise left as they were
    corrupted_parse        noised strings that are molecules by chance
    corrupted_similarity   Tanimoto of those to the molecule

The last two are the paper's scale of noise, but few noised strings parse; tokens are always there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from redraft.batches import collate
from redraft.config import check
from redraft.data.molecules import canonical, canonical_or_none
from redraft.evaluation import results, statistics
from redraft.evaluation.molecules import similarity
from redraft.evaluation.results import Run
from redraft.evaluation.statistics import Estimate
from redraft.model import Model, similar
from redraft.sampler import Callback
from redraft.tokenizers.base import PAD

LEVELS = (0.2, 0.4, 0.6)


@dataclass(frozen=True)
class Redraft:
    """One molecule, there and back."""

    level: float
    """Share of T that it was noised for."""
    original: str
    corrupted: str
    kept: float
    """Share of its tokens that the noise left as they were."""
    result: str


def draw(
    model: Model, originals: Sequence[str], seed: int = 0, callback: Callback | None = None
) -> list[Redraft]:
    """Every molecule at each level of noise; nothing here needs RDKit."""
    check(bool(originals), "re-drafting needs at least one molecule, got none")
    return [
        redraft for level in LEVELS for redraft in redrafts(model, originals, level, seed, callback)
    ]


@torch.no_grad()
def redrafts(
    model: Model,
    originals: Sequence[str],
    level: float,
    seed: int = 0,
    callback: Callback | None = None,
) -> list[Redraft]:
    """Every molecule taken to t = level * T and back, in batches of similar length."""
    ids = sorted((model.tokenizer.encode(item) for item in originals), key=len)
    sizes = similar([len(row) for row in ids], model.batch)
    sampler, generator = model.sampler(), torch.Generator(model.device).manual_seed(seed)
    found: list[Redraft] = []
    start = 0
    for size in sizes:
        x = collate([np.array(row) for row in ids[start : start + size]], model.device)
        start += size
        n = torch.full_like(x[0, :1], round(level * model.config.noise.T))
        noised = model.trained.process.corrupt(x, n, generator)
        back = sampler.revise(noised, level, noising=False, generator=generator, callback=callback)
        real = x != PAD
        kept = ((x == noised) & real).sum(-1) / real.sum(-1)
        columns = (*(y.tolist() for y in (x, noised, back)), kept.tolist())
        for clean, dirty, result, share in zip(*columns, strict=True):
            texts = [model.tokenizer.decode(row) for row in (clean, dirty, result)]
            found.append(Redraft(level, texts[0], texts[1], share, texts[2]))
    return found


# ------------------------------------------------------------------ measures


class Outcome(NamedTuple):
    """What one re-draft is worth."""

    redraft: Redraft
    valid: bool
    exact: bool
    similarity: float
    by_chance: float | None
    """Similarity of the noised string; None where it is no molecule."""


def judged(found: Sequence[Redraft]) -> list[Outcome]:
    return [outcome(redraft) for redraft in found]


def outcome(redraft: Redraft) -> Outcome:
    original, form = redraft.original, canonical_or_none(redraft.result)
    parses = canonical_or_none(redraft.corrupted) is not None
    return Outcome(
        redraft,
        valid=form is not None,
        exact=form == canonical(original),
        similarity=0.0 if form is None else similarity(redraft.result, original),
        by_chance=similarity(redraft.corrupted, original) if parses else None,
    )


def result(run: Run, outcomes: Sequence[Outcome], seed: int = 0) -> dict[str, Any]:
    n = min(map(len, by_percent(outcomes).values()))
    return results.result(run, "redrafting", n, measures(outcomes, seed))


def measures(outcomes: Sequence[Outcome], seed: int = 0) -> dict[str, Estimate]:
    """All measures at each level of noise: validity@20 is that at 20 % of T."""
    return {
        f"{name}@{percent}": estimate
        for percent, own in by_percent(outcomes).items()
        for name, estimate in measures_of_level(own, seed).items()
    }


def by_percent(outcomes: Sequence[Outcome]) -> dict[int, list[Outcome]]:
    levels: dict[int, list[Outcome]] = {}
    for own in outcomes:
        levels.setdefault(round(100 * own.redraft.level), []).append(own)
    return levels


def measures_of_level(outcomes: Sequence[Outcome], seed: int) -> dict[str, Estimate]:
    """Each with its interval over molecules; what nothing defines is absent."""
    by_chance = [o.by_chance for o in outcomes if o.by_chance is not None]
    estimates = {
        "validity": statistics.share([o.valid for o in outcomes], seed),
        "exact_recovery": statistics.share([o.exact for o in outcomes], seed),
        "similarity": statistics.bootstrap_mean([o.similarity for o in outcomes], seed),
        "tokens_kept": statistics.bootstrap_mean([o.redraft.kept for o in outcomes], seed),
        "corrupted_parse": statistics.share([o.by_chance is not None for o in outcomes], seed),
    }
    if by_chance:
        estimates["corrupted_similarity"] = statistics.bootstrap_mean(by_chance, seed)
    return estimates


def lead(a: Sequence[Outcome], b: Sequence[Outcome], seed: int = 0) -> dict[str, Estimate]:
    """Measures of a less those of b, paired by molecule; none where the molecules differ."""
    a, b = sorted(a, key=case), sorted(b, key=case)
    if list(map(case, a)) != list(map(case, b)):
        return {}
    ours, theirs = by_percent(a), by_percent(b)
    columns = {"validity": "valid", "exact_recovery": "exact", "similarity": "similarity"}
    return {
        f"{name}@{percent}": statistics.paired_difference(
            [getattr(o, column) for o in ours[percent]],
            [getattr(o, column) for o in theirs[percent]],
            seed,
        )
        for percent in ours
        for name, column in columns.items()
    }


def case(own: Outcome) -> tuple[float, str]:
    return own.redraft.level, own.redraft.original
