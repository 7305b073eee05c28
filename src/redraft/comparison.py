"""Several recipes under one budget: trained and drawn from one after the other, then told apart.

OUT/NAME/             the run of a recipe
OUT/NAME.drawn/       all that is measured of it: a few megabytes
OUT/results/          its numbers
OUT/comparison.json   how all generate, and how far each recipe is from the first

What is there is not done again, so that a comparison goes on where it stopped, also on another
machine: `draw` where the GPU is, copy NAME.drawn without the run, `measure` where RDKit is.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from redraft import checkpoint, trainer
from redraft.config import Config, check, read_recipe
from redraft.data.molecules import canonical_or_none, rdkit_version
from redraft.errors import UserError
from redraft.evaluation import molecules, results, statistics
from redraft.evaluation.statistics import Estimate
from redraft.experiments import drawn, noise, redrafting, steps
from redraft.experiments.data import dataset_of, learned
from redraft.experiments.drawn import Amounts, Drawn
from redraft.experiments.redrafting import Outcome
from redraft.model import Model
from redraft.sampler import Callback
from redraft.trainer import Watcher

Watching = Callable[[Config], AbstractContextManager[Watcher | None]]
"""Shows a run while it is trained."""
Sampling = Callable[[], AbstractContextManager[Callback | None]]
"""Shows what is drawn."""


@dataclass(frozen=True)
class Contender:
    """One recipe of a comparison."""

    name: str
    config: Config
    out: Path

    @property
    def label(self) -> str:
        return Path(self.name).with_suffix("").as_posix().replace("/", "-")

    @property
    def run(self) -> Path:
        return self.out / f"{self.label}-seed{self.config.seed}"

    @property
    def drawn(self) -> Path:
        return self.run.with_name(f"{self.run.name}.drawn")

    def require(self, config: Config) -> None:
        if config != self.config:
            raise UserError(
                f"{self.run} was trained with another recipe or budget; choose another --out"
            )

    def trained(self, watching: Watching) -> Model:
        """As it was finished, from where it stopped, or from the beginning."""
        begun = bool(checkpoint.states(self.run))
        if begun:
            self.require(checkpoint.read_config(self.run))
            device = str(checkpoint.device_of(self.config.train.device))
            finished = checkpoint.load(self.run, device)
            if "bound_end" in finished.summary:
                return Model(finished)
        with watching(self.config) as watch:
            if begun:
                return Model(trainer.resume(self.run, watch))
            return Model(trainer.train(self.config, self.run, watch))


def contenders(
    recipes: Sequence[str],
    out: Path,
    seconds: float | None = None,
    seed: int = 0,
    data: str | None = None,
) -> list[Contender]:
    """Recipes with the same budget, seed and data; one that is named twice stands once."""
    found = []
    for name in dict.fromkeys(recipes):
        config = replace(read_recipe(name), seed=seed)
        if seconds is not None:
            config = replace(config, train=replace(config.train, seconds=seconds, steps=None))
        if data is not None:
            config = replace(config, data=replace(config.data, file=data))
        domain = config.data.domain
        check(domain == "molecules", f"compare knows molecules, {name} is about {domain}")
        found.append(Contender(name, config, out))
    check(bool(found), "give at least one recipe to compare")
    return found


# ------------------------------------------------------------------ where the GPU is


def draw(
    entry: Contender,
    amounts: Amounts | None = None,
    watching: Watching = lambda config: nullcontext(),
    sampling: Sampling = nullcontext,
) -> Drawn:
    """All that is measured of an entry; it is trained, and drawn from, as far as that is missing.

    >>> for entry in contenders(["tiny/vsdd", "tiny/mdlm"], Path("out")):       # doctest: +SKIP
    ...     draw(entry)
    """
    amounts, found = amounts or Amounts(), drawn.find(entry.drawn)
    if found is not None:
        entry.require(found.config)
        if found.amounts == amounts:
            return found
    if entry.drawn.is_dir() and not entry.run.is_dir():
        raise UserError(
            f"{entry.drawn} does not hold what is asked for ({amounts}), and its run "
            f"{entry.run} is not here to draw from"
        )
    model = entry.trained(watching)
    with sampling() as callback:
        return drawn.draw(model, entry.drawn, amounts, entry.run / drawn.CURVES, callback)


# ------------------------------------------------------------------ where RDKit is


@dataclass(frozen=True)
class Measured:
    """One entry's numbers, and what differences are made of."""

    results: list[dict[str, Any]]
    """Generation first."""
    valid: list[bool]
    """Of the samples."""
    redrafts: list[Outcome]


def measure(entries: Sequence[Contender], found: Sequence[Drawn], out: Path) -> dict[str, Any]:
    """All results as files, and the comparison, from what was drawn alone."""
    if rdkit_version() is None:
        raise UserError(
            f"{out} holds all that was drawn; run the same command on it where RDKit is installed"
        )
    methods = Counter(entry.config.method for entry in entries)
    measured = []
    for entry, own in zip(entries, found, strict=True):
        measured.append(numbers(own))
        variant = entry.label if methods[entry.config.method] > 1 else None
        for result in measured[-1].results:
            results.write(result, out / "results", variant)
    report = {
        "recipes": [entry.name for entry in entries],
        "results": [own.results[0] for own in measured],
        "differences": list(differences(entries, measured)),
    }
    text = json.dumps(report, indent=1) + "\n"
    report_path(entries, out).write_text(text, encoding="utf-8")
    return report


def report_path(entries: Sequence[Contender], out: Path) -> Path:
    return out / results.named("comparison", entries[0].config.seed)


def numbers(own: Drawn) -> Measured:
    """All experiments on what was drawn from one model."""
    seed, training, samples = own.config.seed, learned(dataset_of(own)), own.samples()
    generated = molecules.generation(samples, training, seed)
    outcomes = redrafting.judged(own.redrafts())
    found = [
        results.result(own, "generation", len(samples), generated),
        redrafting.result(own, outcomes, seed),
    ]
    if by_steps := own.by_steps():
        found.append(steps.result(own, by_steps, training, seed))
    if kernel := own.kernel():
        found.append(noise.result(own, kernel, seed))
    return Measured(found, [canonical_or_none(s) is not None for s in samples], outcomes)


def differences(
    entries: Sequence[Contender], measured: Sequence[Measured]
) -> Iterator[dict[str, Any]]:
    """Each entry less the first: samples have nothing in common, re-drafts their molecules."""
    first = measured[0]
    for entry, own in zip(entries[1:], measured[1:], strict=True):
        seed = entry.config.seed
        validity = {"validity": statistics.difference(own.valid, first.valid, seed)}
        redrafted = redrafting.lead(own.redrafts, first.redrafts, seed)
        apart: dict[str, dict[str, Estimate]] = {"generation": validity, "redrafting": redrafted}
        for experiment, estimates in apart.items():
            for metric, estimate in estimates.items():
                names = {"recipe": entry.name, "less": entries[0].name}
                what = {"experiment": experiment, "metric": metric}
                yield names | what | estimate.to_dict()


def compare(
    entries: Sequence[Contender],
    out: Path,
    amounts: Amounts,
    watching: Watching,
    sampling: Sampling,
) -> dict[str, Any]:
    """All entries trained, drawn from and measured; everything found so far is in `out`."""
    return measure(entries, [draw(entry, amounts, watching, sampling) for entry in entries], out)
