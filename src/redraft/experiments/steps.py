"""Fewer reverse steps than a model has: what is lost?

    validity@5, uniqueness@5, ...   the measures of generated molecules, drawn by 5 steps

as many samples by every number of steps, since uniqueness falls as samples are added.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from redraft.config import check
from redraft.evaluation import molecules, results
from redraft.evaluation.results import Run
from redraft.evaluation.statistics import Estimate
from redraft.model import Model
from redraft.noise.markov import MarkovProcess
from redraft.sampler import Callback

FEWER = (5, 10, 25)


def fewer(model: Model) -> list[int]:
    """Those below T; none where the noise is not Markov, and steps cannot be left out."""
    process = model.trained.process
    if not isinstance(process, MarkovProcess):
        return []
    return [steps for steps in FEWER if steps < process.T]


def draw(
    model: Model, n: int, seed: int = 0, callback: Callback | None = None
) -> dict[int, list[str]]:
    """n samples by each number of fewer steps, and by all."""
    T, possible = model.config.noise.T, fewer(model)
    check(
        bool(possible),
        f"this {model.config.method} model samples in all its {T} steps only: by fewer, such as "
        f"{', '.join(map(str, FEWER))}, it cannot",
    )
    return {
        steps: model.sample(n, steps=steps, seed=seed, callback=callback)
        for steps in (*possible, T)
    }


def result(
    run: Run, samples: Mapping[int, Sequence[str]], training: Collection[str], seed: int = 0
) -> dict[str, Any]:
    n = min(map(len, samples.values()))
    return results.result(run, "steps", n, measures(samples, training, seed))


def measures(
    samples: Mapping[int, Sequence[str]], training: Collection[str], seed: int = 0
) -> dict[str, Estimate]:
    """All measures of generation at each number of steps."""
    return {
        f"{name}@{steps}": estimate
        for steps, drawn in samples.items()
        for name, estimate in molecules.generation(drawn, training, seed).items()
    }
