"""Samples drawn in other ways than the plain one: what do they gain, and what do they lose?

    steps         validity@5, uniqueness@5, ...          by 5 reverse steps instead of all
    renewal       validity@50, uniqueness@50, ...        `renew` at 50 % instead of 0
    temperature   judge_perplexity@80, distinct_1@80     `temperature` at 80 % instead of 100

the measures of what is generated, as many samples by every setting, since variety falls as samples
are added. Only noise that is Markov can be drawn from in these ways.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from redraft.config import check
from redraft.evaluation import results
from redraft.evaluation.results import Run
from redraft.evaluation.statistics import Estimate
from redraft.experiments import domain
from redraft.experiments.domain import PLAIN
from redraft.model import Model
from redraft.noise.markov import MarkovProcess
from redraft.sampler import Callback

Measure = Callable[[Sequence[str]], dict[str, Estimate]]


@dataclass(frozen=True)
class Sweep:
    """An option of the sampler, and what is tried of it."""

    experiment: str
    name: str
    """What the samples of a setting are called."""
    amount: str
    """Which of the amounts tells how many."""
    option: Callable[[int], dict[str, Any]]
    settings: Callable[[int], list[int]]
    """All of them for a model of T steps, the plain one last."""

    def others(self, model: Model) -> list[int]:
        """The settings beside the plain one; none where the noise is not Markov."""
        markov = isinstance(model.trained.process, MarkovProcess)
        return self.settings(model.config.noise.T)[:-1] if markov else []

    def draw(
        self, model: Model, n: int, seed: int = 0, callback: Callback | None = None
    ) -> dict[int, list[str]]:
        """n samples by each setting."""
        T = model.config.noise.T
        check(
            bool(self.others(model)),
            f"this {model.config.method} model of {T} steps can be sampled in the plain way only, "
            f"and not by other {self.experiment}",
        )
        return {
            setting: model.sample(n, seed=seed, callback=callback, **(PLAIN | self.option(setting)))
            for setting in sorted(self.settings(T))
        }

    def result(
        self, run: Run, samples: Mapping[int, Sequence[str]], measure: Measure, **more: Any
    ) -> dict[str, Any]:
        """All measures at each setting."""
        metrics = {
            f"{name}@{setting}": estimate
            for setting, drawn in samples.items()
            for name, estimate in measure(drawn).items()
        }
        n = min(map(len, samples.values()))
        return results.result(run, self.experiment, n, metrics, **more)


STEPS = Sweep(
    "steps",
    "samples-{}",
    "fewer",
    lambda steps: {"steps": steps},
    lambda T: [*(steps for steps in (5, 10, 25) if steps < T), T],
)
RENEWAL = Sweep(
    "renewal",
    "renewed-{}",
    "renewed",
    lambda share: {"renew": share / 100},
    lambda T: [50, 75, 100, 0],
)
TEMPERATURE = Sweep(
    "temperature",
    "cooled-{}",
    "cooled",
    lambda percent: {"temperature": percent / 100},
    lambda T: [70, 80, 90, 100],
)


# ------------------------------------------------------------------ as files

PLAINLY = "samples"


@dataclass(frozen=True)
class Form:
    """How a domain keeps samples."""

    suffix: str
    keep: Callable[[Path, int, Callable[[], list[str]]], None]
    """A file of n samples, made where it is not there."""
    read: Callable[[Path], list[str]]

    def path(self, folder: Path, name: str) -> Path:
        return folder / f"{name}{self.suffix}"


@dataclass(frozen=True)
class Amounts(domain.Amounts):
    optional = frozenset(sweep.amount for sweep in (STEPS, RENEWAL, TEMPERATURE))
    samples: int
    """In the plain way."""

    def by(self, sweep: Sweep) -> int:
        """Samples by each setting, no more than in the plain way."""
        return min(getattr(self, sweep.amount), self.samples)


@dataclass(frozen=True)
class Drawn(domain.Drawn):
    amounts: Amounts
    form: ClassVar[Form]

    def samples(self) -> list[str]:
        return self.form.read(self.form.path(self.folder, PLAINLY))

    def by(self, sweep: Sweep) -> dict[int, list[str]]:
        """Samples by each setting, the plain one among them; nothing where there are no others."""
        n, settings = self.amounts.by(sweep), sweep.settings(self.config.noise.T)
        if not n:
            return {}
        paths = {own: self.form.path(self.folder, sweep.name.format(own)) for own in settings[:-1]}
        found = {own: self.form.read(path) for own, path in paths.items() if path.is_file()}
        if found:
            found[settings[-1]] = self.samples()[:n]
        return dict(sorted(found.items()))


def draw(
    model: Model,
    folder: Path,
    amounts: Amounts,
    form: Form,
    sweeps: Sequence[Sweep],
    callback: Callback | None = None,
) -> None:
    """Samples in the plain way, and by each setting of the sweeps."""

    def samples(name: str, n: int, **options: Any) -> None:
        options = PLAIN | options | {"seed": model.config.seed, "callback": callback}
        form.keep(form.path(folder, name), n, lambda: model.sample(n, **options))

    samples(PLAINLY, amounts.samples)
    for sweep in sweeps:
        n = amounts.by(sweep)
        for setting in sweep.others(model) if n else ():
            samples(sweep.name.format(setting), n, **sweep.option(setting))
