"""Several recipes under one budget: trained and drawn from one after the other, then told apart.

OUT/NAME/             the run of a recipe
OUT/NAME.drawn/       all that is measured of it: a few megabytes
OUT/results/          its numbers
OUT/comparison.json   the same in one file, and how far each recipe is from the first

What is there is not done again, so that a comparison goes on where it stopped, also on another
machine: `draw` where the GPU is, copy NAME.drawn without the run, `measure` where RDKit or a judge
of stories is.
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
from redraft.errors import UserError
from redraft.evaluation import results
from redraft.experiments import drawn
from redraft.experiments.domain import Asked, Domain, Drawn, Measured
from redraft.folder import put
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
    """Recipes of one domain, with the same budget, seed and data; one named twice stands once."""
    found = []
    for name in dict.fromkeys(recipes):
        config = replace(read_recipe(name), seed=seed)
        if seconds is not None:
            config = replace(config, train=replace(config.train, seconds=seconds, steps=None))
        if data is not None:
            config = replace(config, data=replace(config.data, file=data))
        found.append(Contender(name, config, out))
    check(bool(found), "give at least one recipe to compare")
    domains = sorted({entry.config.data.domain for entry in found})
    check(len(domains) == 1, f"recipes of one domain can be compared, got {' and '.join(domains)}")
    domain_of(found)
    return found


def domain_of(entries: Sequence[Contender]) -> Domain:
    """What all of them are about."""
    return drawn.domain_of(entries[0].config, "compare")


# ------------------------------------------------------------------ where the GPU is


def draw(
    entry: Contender,
    amounts: Any = None,
    watching: Watching = lambda config: nullcontext(),
    sampling: Sampling = nullcontext,
) -> Drawn:
    """All that is measured of an entry; it is trained, and drawn from, as far as that is missing.

    >>> for entry in contenders(["tiny/vsdd", "tiny/mdlm"], Path("out")):       # doctest: +SKIP
    ...     draw(entry)
    """
    amounts, found = amounts or domain_of([entry]).amounts(), drawn.find(entry.drawn)
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


# ------------------------------------------------------------------ where RDKit or a judge is


def measure(
    entries: Sequence[Contender], found: Sequence[Drawn], out: Path, asked: Asked | None = None
) -> dict[str, Any]:
    """All results as files, and the comparison, from what was drawn alone."""
    numbers = domain_of(entries).measuring(out, asked or Asked())
    measured = []
    for own, variant in zip(found, variants(entries), strict=True):
        measured.append(numbers(own))
        for result in measured[-1].results:
            results.write(result, out / "results", variant)
    report = {
        "recipes": [entry.name for entry in entries],
        "results": [own.results[0] for own in measured],  # how each generates
        "others": [own.results[1:] for own in measured],
        "differences": list(differences(entries, measured)),
    }
    put(report_path(entries, out), (json.dumps(report, indent=1) + "\n").encode())
    return report


def variants(entries: Sequence[Contender]) -> list[str | None]:
    """What files of results are told apart by, beside their methods.

    A recipe that adds to its method's name, such as paper-vsdd-slow.toml, is the variant
    "paper-slow"; one that has another name is told by it where its method comes more than once.
    """
    methods = Counter(entry.config.method for entry in entries)
    names = [Path(entry.name).stem for entry in entries]
    if len(set(names)) < len(names):
        names = [entry.label for entry in entries]
    return [
        added(name, method, methods[method] == 1)
        for name, method in zip(names, (entry.config.method for entry in entries), strict=True)
    ]


def added(name: str, method: str, alone: bool) -> str | None:
    """What a recipe's name adds to that of its method."""
    before, named, after = f"-{name}-".partition(f"-{method}-")
    if not named:
        return None if alone else name
    return "-".join(filter(None, (before.strip("-"), after.strip("-")))) or None


def report_path(entries: Sequence[Contender], out: Path) -> Path:
    return out / results.named("comparison", entries[0].config.seed)


def differences(
    entries: Sequence[Contender], measured: Sequence[Measured]
) -> Iterator[dict[str, Any]]:
    """Each entry less the first."""
    for entry, own in zip(entries[1:], measured[1:], strict=True):
        for experiment, estimates in own.less(measured[0], entry.config.seed).items():
            for metric, estimate in estimates.items():
                names = {"recipe": entry.name, "less": entries[0].name}
                what = {"experiment": experiment, "metric": metric}
                yield names | what | estimate.to_dict()
