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

import numpy as np
import torch

from redraft.batches import collate
from redraft.config import check
from redraft.data.molecules import canonical, canonical_or_none
from redraft.evaluation import statistics
from redraft.evaluation.molecules import similarity
from redraft.evaluation.statistics import Estimate
from redraft.model import Model, similar
from redraft.sampler import Callback
from redraft.tokenizers.base import PAD

LEVELS = (0.2, 0.4, 0.6)


@dataclass(frozen=True)
class Redraft:
    """One molecule, there and back."""

    original: str
    corrupted: str
    kept: float
    """Share of its tokens that the noise left as they were."""
    result: str


def run(
    model: Model, originals: Sequence[str], seed: int = 0, callback: Callback | None = None
) -> dict[str, Estimate]:
    """All measures at each level of noise: validity@20 is that at 20 % of T."""
    check(bool(originals), "re-drafting needs at least one molecule, got none")
    return {
        f"{name}@{round(100 * level)}": estimate
        for level in LEVELS
        for name, estimate in measures(
            redrafts(model, originals, level, seed, callback), seed
        ).items()
    }


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
            found.append(Redraft(texts[0], texts[1], share, texts[2]))
    return found


def measures(found: Sequence[Redraft], seed: int = 0) -> dict[str, Estimate]:
    """Each with its interval over molecules; what nothing defines is absent."""
    valid = [canonical_or_none(r.result) is not None for r in found]
    exact = [
        v and canonical(r.result) == canonical(r.original)
        for r, v in zip(found, valid, strict=True)
    ]
    alike = [
        similarity(r.result, r.original) if v else 0.0 for r, v in zip(found, valid, strict=True)
    ]
    parse = [canonical_or_none(r.corrupted) is not None for r in found]
    by_chance = [
        similarity(r.corrupted, r.original) for r, p in zip(found, parse, strict=True) if p
    ]
    estimates = {
        "validity": statistics.share(valid, seed),
        "exact_recovery": statistics.share(exact, seed),
        "similarity": statistics.bootstrap_mean(alike, seed),
        "tokens_kept": statistics.bootstrap_mean([r.kept for r in found], seed),
        "corrupted_parse": statistics.share(parse, seed),
    }
    if by_chance:
        estimates["corrupted_similarity"] = statistics.bootstrap_mean(by_chance, seed)
    return estimates
