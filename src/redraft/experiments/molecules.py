"""Molecules: what is drawn from a model of them, and what is measured of it.

samples.smi       new molecules
samples-5.smi     by 5 reverse steps, and so on; not where the noise is not Markov
renewed-50.smi    with the last 50 % of the steps renewed, and so on; as above
redrafts.jsonl    unseen molecules, noised and brought back

Drawing needs no RDKit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from redraft.config import check
from redraft.data.molecules import canonical_or_none, column, rdkit_version
from redraft.domains import Dataset
from redraft.errors import UserError
from redraft.evaluation import molecules, results, statistics
from redraft.evaluation.statistics import Estimate
from redraft.experiments import domain, noise, redrafting, repair, sweeps
from redraft.experiments.data import dataset_of, learned, unseen
from redraft.experiments.domain import PLAIN, Asked, keep, keep_rows, read_lines
from redraft.experiments.redrafting import Outcome, Redraft
from redraft.experiments.sweeps import RENEWAL, STEPS, Form, Sweep
from redraft.model import Model
from redraft.sampler import Callback

REDRAFTS = "redrafts.jsonl"
FORM = Form(".smi", keep, read_lines)
SWEEPS = (STEPS, RENEWAL)


@dataclass(frozen=True)
class Amounts(sweeps.Amounts):
    samples: int = 15_000
    """New molecules, by all steps."""
    fewer: int = 3_000
    """By each number of fewer steps."""
    redrafts: int = 1_000
    """Unseen molecules, each at every level of noise."""
    renewed: int = 15_000
    """With each share of the steps renewed."""

    def __str__(self) -> str:
        return (
            f"{self.samples:,} samples, {self.by(STEPS):,} by fewer steps, "
            f"{self.by(RENEWAL):,} renewed, {self.redrafts:,} molecules re-drafted"
        )


@dataclass(frozen=True)
class Drawn(sweeps.Drawn):
    amounts: Amounts
    form = FORM

    def redrafts(self) -> list[Redraft]:
        return [Redraft(**row) for row in self.rows(REDRAFTS)]


def draw(model: Model, folder: Path, amounts: Amounts, callback: Callback | None = None) -> None:
    sweeps.draw(model, folder, amounts, FORM, SWEEPS, callback)
    originals = unseen(dataset_of(model.trained), amounts.redrafts)
    redrafts = partial(redrafting.draw, model, originals, model.config.seed, callback)
    keep_rows(folder / REDRAFTS, len(originals) * len(redrafting.LEVELS), redrafts)


# ------------------------------------------------------------------ of what was drawn


@dataclass(frozen=True)
class Measured:
    """Numbers of one model."""

    results: list[dict[str, Any]]
    valid: list[bool]
    """Of the samples."""
    redrafts: list[Outcome]

    def less(self, first: "Measured", seed: int) -> dict[str, dict[str, Estimate]]:
        """Samples have nothing in common, re-drafts their molecules."""
        validity = {"validity": statistics.difference(self.valid, first.valid, seed)}
        redrafted = redrafting.lead(self.redrafts, first.redrafts, seed)
        return {"generation": validity, "redrafting": redrafted}


def measuring(out: Path, asked: Asked) -> Callable[[Drawn], Measured]:
    if rdkit_version() is None:
        raise UserError(
            f"{out} holds all that was drawn; run the same command on it where RDKit is installed"
        )
    return partial(numbers, fcd=asked.fcd)


def numbers(own: Drawn, fcd: bool = False) -> Measured:
    """All experiments on what was drawn from one model."""
    seed, data, samples = own.config.seed, dataset_of(own), own.samples()

    @cache  # plain samples are asked for again as one setting of a sweep
    def measured(samples: tuple[str, ...]) -> dict[str, Estimate]:
        return generation(samples, data, seed, fcd)

    outcomes = redrafting.judged(own.redrafts())
    found = [
        results.result(own, "generation", len(samples), measured(tuple(samples))),
        redrafting.result(own, outcomes, seed),
    ]
    for sweep in SWEEPS:
        if by := own.by(sweep):
            found.append(sweep.result(own, by, lambda drawn: measured(tuple(drawn))))
    if kernel := own.kernel():
        found.append(noise.result(own, kernel, seed))
    return Measured(found, [canonical_or_none(s) is not None for s in samples], outcomes)


def generation(samples: Sequence[str], data: Dataset, seed: int, fcd: bool) -> dict[str, Estimate]:
    """Of new molecules; their FCD is to all unseen ones."""
    found = molecules.generation(samples, learned(data), seed)
    if fcd:
        found["fcd"] = molecules.frechet_chemnet_distance(samples, unseen(data), seed)
    return found


# ------------------------------------------------------------------ of a model


def measure_generation(model: Model, data: Dataset, asked: Asked) -> dict[str, Any]:
    if asked.samples is not None:
        drawn = [smiles for _, smiles in column(asked.samples)]
    else:
        n = asked.n or Amounts.samples
        options = PLAIN | asked.options
        drawn = model.sample(n, seed=asked.seed, callback=asked.callback, **options)
    metrics = generation(drawn, data, asked.seed, asked.fcd)
    return results.result(model.trained, "generation", len(drawn), metrics)


def measure_sweep(sweep: Sweep, model: Model, data: Dataset, asked: Asked) -> dict[str, Any]:
    samples = sweep.draw(model, asked.n or Amounts.fewer, asked.seed, asked.callback)
    measure = partial(generation, data=data, seed=asked.seed, fcd=asked.fcd)
    return sweep.result(model.trained, samples, measure)


def measure_redrafting(model: Model, data: Dataset, asked: Asked) -> dict[str, Any]:
    originals = unseen(data, asked.n or Amounts.redrafts)
    found = redrafting.draw(model, originals, asked.seed, asked.callback)
    return redrafting.result(model.trained, redrafting.judged(found), asked.seed)


def measure_repair(model: Model, data: Dataset, asked: Asked) -> dict[str, Any]:
    check(
        not asked.options,
        "--steps, --temperature, --top-p and --renew are not for repair of molecules",
    )
    edits = (1, 2, 3)
    room = model.longest - len(model.tokenizer.ending) - max(edits)
    found = [item for item in unseen(data) if len(model.tokenizer.ids(item)) <= room]
    originals = found[: asked.n or 300]
    check(bool(originals), f"no unseen molecule leaves room for {max(edits)} more tokens")
    details = repair.run(model, originals, asked.seed, edits, asked.callback)
    metrics = {
        f"{name}@{number}": Estimate(**value)
        for number, row in details.items()
        for name, value in row["metrics"].get("model", {}).items()
    }
    return results.result(model.trained, "repair", len(originals), metrics, by_edits=details)


def check_asked(asked: Asked) -> None:
    check(asked.judge is None, "--judge is for stories, this is about molecules")
    if asked.fcd:
        molecules.chemnet()


MOLECULES = domain.Domain(
    Drawn,
    Amounts,
    check_asked,
    draw,
    measuring,
    {
        "generation": measure_generation,
        "redrafting": measure_redrafting,
        "repair": measure_repair,
    }
    | {sweep.experiment: partial(measure_sweep, sweep) for sweep in SWEEPS},
)
