"""Molecules drawn in other ways than the plain one: what do they gain, and what do they lose?

    steps     validity@5, uniqueness@5, ...     by 5 reverse steps instead of all
    renewal   validity@50, uniqueness@50, ...   `renew` at 50 % instead of 0

the measures of generated molecules, as many samples by every setting, since uniqueness falls as
samples are added. Only noise that is Markov can be drawn from in these ways.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redraft.config import check
from redraft.evaluation import results
from redraft.evaluation.results import Run
from redraft.evaluation.statistics import Estimate
from redraft.experiments.domain import PLAIN
from redraft.model import Model
from redraft.noise.markov import MarkovProcess
from redraft.sampler import Callback

Measure = Callable[[Sequence[str]], dict[str, Estimate]]


@dataclass(frozen=True)
class Sweep:
    """An option of the sampler, and what is tried of it."""

    experiment: str
    file: str
    """Where the samples of a setting are kept."""
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
        self, run: Run, samples: Mapping[int, Sequence[str]], measure: Measure
    ) -> dict[str, Any]:
        """All measures at each setting."""
        metrics = {
            f"{name}@{setting}": estimate
            for setting, drawn in samples.items()
            for name, estimate in measure(drawn).items()
        }
        return results.result(run, self.experiment, min(map(len, samples.values())), metrics)


STEPS = Sweep(
    "steps",
    "samples-{}.smi",
    lambda steps: {"steps": steps},
    lambda T: [*(steps for steps in (5, 10, 25) if steps < T), T],
)
RENEWAL = Sweep(
    "renewal",
    "renewed-{}.smi",
    lambda share: {"renew": share / 100},
    lambda T: [50, 75, 100, 0],
)
