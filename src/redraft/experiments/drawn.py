"""What is drawn from a model, once: a small folder from which everything is measured, anywhere.

summary.json        the run: its config, what came of it, and how much was asked for
samples.smi         new molecules
samples-5.smi       by 5 reverse steps, and so on; not where the noise is not Markov
redrafts.jsonl      unseen molecules, noised and brought back
noise.safetensors   a learned kernel and what it is held against; not where nothing is learned
metrics.jsonl       learning curves
manifest.json       sizes and checksums, when all is there

Drawing needs no RDKit. A file is whole or not there, and what is there is not drawn again.
"""

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from redraft import checkpoint
from redraft.config import Config, check
from redraft.evaluation.results import recipe_of
from redraft.experiments import redrafting, steps
from redraft.experiments.data import dataset_of, unseen
from redraft.experiments.noise import Kernel, kernel_of
from redraft.experiments.redrafting import Redraft
from redraft.folder import MANIFEST, Sealed, explained, read_json, seal
from redraft.model import Model
from redraft.sampler import Callback

SUMMARY, SAMPLES, REDRAFTS = "summary.json", "samples.smi", "redrafts.jsonl"
NOISE, CURVES = "noise.safetensors", "metrics.jsonl"


@dataclass(frozen=True)
class Amounts:
    """How much is drawn."""

    samples: int = 15_000
    """New molecules, by all steps."""
    fewer: int = 3_000
    """By each number of fewer steps; no more than by all."""
    redrafts: int = 1_000
    """Unseen molecules, each at every level of noise."""

    def __post_init__(self):
        for name, value in asdict(self).items():
            check(value >= 1, f"{name} must be at least 1, got {value}")

    @property
    def strided(self) -> int:
        return min(self.fewer, self.samples)

    def __str__(self) -> str:
        return (
            f"{self.samples:,} samples, {self.strided:,} by fewer steps, "
            f"{self.redrafts:,} molecules re-drafted"
        )


@dataclass(frozen=True)
class Drawn:
    """Such a folder; it has what results tell of a run."""

    folder: Path
    config: Config
    summary: dict[str, Any]
    amounts: Amounts

    def samples(self) -> list[str]:
        return read_lines(self.folder / SAMPLES)

    def by_steps(self) -> dict[int, list[str]]:
        """Samples by fewer steps, and as many by all; nothing where steps cannot be left out."""
        files = self.folder.glob("samples-*.smi")
        found = {int(path.stem.removeprefix("samples-")): read_lines(path) for path in files}
        if found:
            found[self.config.noise.T] = self.samples()[: self.amounts.strided]
        return dict(sorted(found.items()))

    def redrafts(self) -> list[Redraft]:
        with explained(path := self.folder / REDRAFTS):
            return [Redraft(**json.loads(line)) for line in read_lines(path)]

    def kernel(self) -> Kernel | None:
        path = self.folder / NOISE
        return Kernel.read(path) if path.is_file() else None


def find(folder: Path) -> Drawn | None:
    """What lies in a folder, if drawing came to its end there and nothing was damaged since."""
    if not (folder / SUMMARY).is_file() or not (folder / MANIFEST).is_file():
        return None
    Sealed(folder)  # or tells what is damaged
    return read(folder)


def read(folder: Path) -> Drawn:
    with explained(path := folder / SUMMARY):
        stored = read_json(path)
        config, amounts = Config.from_dict(stored["config"]), Amounts(**stored["amounts"])
        return Drawn(folder, config, dict(stored["summary"]), amounts)


def draw(
    model: Model,
    folder: Path,
    amounts: Amounts | None = None,
    curves: Path | None = None,
    callback: Callback | None = None,
) -> Drawn:
    """Fill a folder with what is not yet there; `curves` is the run's metrics.jsonl."""
    amounts = amounts or Amounts()
    begin(folder, model, amounts)
    seed = model.config.seed
    sample = partial(model.sample, seed=seed, callback=callback)
    keep(folder / SAMPLES, amounts.samples, partial(sample, amounts.samples))
    for number in steps.fewer(model):
        path, n = folder / f"samples-{number}.smi", amounts.strided
        keep(path, n, partial(sample, n, steps=number))
    originals = unseen(dataset_of(model.trained), amounts.redrafts)

    def redrafts() -> list[str]:
        found = redrafting.draw(model, originals, seed, callback)
        return [json.dumps(asdict(own)) for own in found]

    keep(folder / REDRAFTS, len(originals) * len(redrafting.LEVELS), redrafts)
    if (kernel := kernel_of(model)) is not None:
        put(folder / NOISE, kernel.to_bytes())
    if curves is not None and curves.is_file():
        put(folder / CURVES, curves.read_bytes())
    seal(folder)
    return read(folder)


def begin(folder: Path, model: Model, amounts: Amounts) -> None:
    """Note the run and what is asked for; what was drawn from another run goes."""
    config, summary = model.config, model.trained.summary
    known = read(folder) if (folder / SUMMARY).is_file() else None
    if known is None or known.config != config or not summary.items() <= known.summary.items():
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)
    facts = {"recipe": recipe_of(config), "commit": checkpoint.commit()}
    stored = {
        "summary": summary | facts,
        "amounts": asdict(amounts),
        "config": config.to_dict(),
    }
    put(folder / SUMMARY, (json.dumps(stored, indent=1) + "\n").encode())


def keep(path: Path, n: int, make: Callable[[], Sequence[str]]) -> None:
    """A file of n lines, made where it is not there."""
    if not path.is_file() or len(read_lines(path)) != n:
        put(path, "".join(f"{line}\n" for line in make()).encode())


def put(path: Path, content: bytes) -> None:
    """A file that is whole, or as it was."""
    aside = path.with_name(f".{path.name}.new")
    aside.write_bytes(content)
    os.replace(aside, path)


def read_lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()
