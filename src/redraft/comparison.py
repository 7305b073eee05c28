"""Several recipes under one budget: trained one after the other, sampled, measured, told apart.

OUT/NAME/             the run of a recipe
OUT/NAME.smi          what it generated
OUT/results/          its numbers
OUT/comparison.json   all numbers, and how far each recipe is from the first

What is there is not done again, so that a comparison goes on where it stopped, also on another
machine: train and sample where the GPU is, measure where RDKit is.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from redraft import checkpoint, trainer
from redraft.config import Config, check, read_recipe
from redraft.data.molecules import canonical_or_none, rdkit_version
from redraft.errors import UserError
from redraft.evaluation import molecules, results, statistics
from redraft.evaluation.statistics import Estimate
from redraft.experiments.data import dataset_of, learned
from redraft.model import Model
from redraft.sampler import Callback
from redraft.trainer import Watcher

Watching = Callable[[Config], AbstractContextManager[Watcher]]
"""Shows a run while it is trained."""


@dataclass(frozen=True)
class Contender:
    """One recipe of a comparison."""

    name: str
    config: Config
    folder: Path
    """Of its run."""

    @property
    def samples(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.smi")

    def trained(self, watching: Watching) -> Model:
        """As it was finished, from where it stopped, or from the beginning."""
        begun = bool(checkpoint.states(self.folder))
        if begun and checkpoint.read_config(self.folder) != self.config:
            raise UserError(
                f"{self.folder} was trained with another recipe or budget; choose another --out"
            )
        if begun:
            device = str(checkpoint.device_of(self.config.train.device))
            finished = checkpoint.load(self.folder, device)
            if "bound_end" in finished.summary:
                return Model(finished)
        with watching(self.config) as watch:
            if begun:
                return Model(trainer.resume(self.folder, watch))
            return Model(trainer.train(self.config, self.folder, watch))

    def drawn(self, model: Model, n: int, callback: Callback | None = None) -> list[str]:
        """n samples, from the file if it holds as many."""
        if self.samples.is_file():
            found = self.samples.read_text(encoding="utf-8").splitlines()
            if len(found) == n:
                return found
        found = model.sample(n, seed=self.config.seed, callback=callback)
        aside = self.samples.with_name(f".{self.samples.name}.new")
        aside.write_text("".join(f"{item}\n" for item in found), encoding="utf-8")
        os.replace(aside, self.samples)
        return found


def contenders(
    recipes: Sequence[str], out: Path, seconds: float | None, seed: int, data: str | None
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
        folder = out / f"{Path(name).with_suffix('').as_posix().replace('/', '-')}-seed{seed}"
        found.append(Contender(name, config, folder))
    check(bool(found), "give at least one recipe to compare")
    return found


def compare(
    entries: Sequence[Contender],
    out: Path,
    n: int,
    watching: Watching,
    sampling: Callable[[], AbstractContextManager[Callback]],
) -> dict[str, Any]:
    """All entries trained, sampled and measured; everything found so far is in `out`."""
    models, samples = [], []
    for entry in entries:
        models.append(entry.trained(watching))
        with sampling() as callback:
            samples.append(entry.drawn(models[-1], n, callback))
    if rdkit_version() is None:
        raise UserError(
            f"{out} holds models and samples; run the same command on it where RDKit is installed"
        )
    found = []
    for model, drawn in zip(models, samples, strict=True):
        metrics = molecules.generation(drawn, learned(dataset_of(model)), model.config.seed)
        found.append(results.result(model.trained, "generation", len(drawn), metrics))
        results.write(found[-1], out / "results")
    report = {
        "recipes": [entry.name for entry in entries],
        "results": found,
        "differences": list(differences(entries, samples)),
    }
    (out / "comparison.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return report


def differences(
    entries: Sequence[Contender], samples: Sequence[list[str]]
) -> Iterator[dict[str, Any]]:
    """Validity of each entry less that of the first: two samples, nothing links them."""
    valid = [[canonical_or_none(s) is not None for s in drawn] for drawn in samples]
    for entry, own in zip(entries[1:], valid[1:], strict=True):
        apart: Estimate = statistics.difference(own, valid[0], entry.config.seed)
        names = {"recipe": entry.name, "less": entries[0].name, "metric": "validity"}
        yield names | apart.to_dict()
