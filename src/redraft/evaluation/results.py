"""Results as files, one for each run and experiment: every table is made from them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from redraft import checkpoint
from redraft.config import Config, read_recipe, recipe_names
from redraft.errors import UserError
from redraft.evaluation.statistics import Estimate
from redraft.folder import put, read_json


class Run(Protocol):
    """What results tell of a run: a trained model has it, and so has what was drawn from one."""

    @property
    def config(self) -> Config: ...

    @property
    def summary(self) -> dict[str, Any]: ...


def result(
    run: Run,
    experiment: str,
    n: int | Mapping[str, int],
    metrics: Mapping[str, Estimate],
    **more: Any,
) -> dict[str, Any]:
    """What was measured, of what, and how it can be measured again."""
    config, summary = run.config, run.summary
    return {
        "domain": config.data.domain,
        "experiment": experiment,
        "method": config.method,
        "recipe": summary.get("recipe") or recipe_of(config),
        "commit": summary.get("commit") or checkpoint.commit(),
        "seed": config.seed,
        "hardware": summary.get("hardware") or checkpoint.hardware(),
        "data": summary["data"],
        "train_seconds": summary["seconds"],
        "steps": summary["steps"],
        "n": n,
        **more,
        "metrics": {name: estimate.to_dict() for name, estimate in metrics.items()},
    }


def write(found: Mapping[str, Any], folder: Path, variant: str | None = None) -> Path:
    path = path_of(found, folder, variant)
    path.parent.mkdir(parents=True, exist_ok=True)
    put(path, (json.dumps(found, indent=1) + "\n").encode())
    return path


def require_room(run: Run, experiment: str, folder: Path, variant: str | None = None) -> None:
    """Numbers of another run are not written over: no two runs take the same seconds exactly."""
    if variant is not None and Path(variant).name != variant:
        raise UserError(f"--variant is a part of a file's name, got {variant!r}")
    path = path_of(facts(run) | {"experiment": experiment}, folder, variant)
    if path.is_file() and not belongs(read_json(path), run):
        raise UserError(
            f"{path} holds the numbers of another run; give these a name with --variant, "
            "such as that of the run's folder, or choose another --out"
        )


def belongs(found: Any, run: Run) -> bool:
    """Whether something read from a file is a result of this run."""
    return isinstance(found, dict) and "metrics" in found and facts(run).items() <= found.items()


def facts(run: Run) -> dict[str, Any]:
    """What tells it from others."""
    return {
        "domain": run.config.data.domain,
        "method": run.config.method,
        "seed": run.config.seed,
        "steps": run.summary.get("steps"),
        "train_seconds": run.summary.get("seconds"),
    }


def path_of(found: Mapping[str, Any], folder: Path, variant: str | None = None) -> Path:
    """folder/DOMAIN/EXPERIMENT-METHOD[-VARIANT].json."""
    stem = f"{found['experiment']}-{found['method']}"
    return folder / found["domain"] / named(stem, found["seed"], variant)


def named(stem: str, seed: int, variant: str | None = None) -> str:
    """A file's name; a seed other than 0 is a variant, too.

    >>> named("generation-vsdd", 0), named("generation-vsdd", 1, "steps-10")
    ('generation-vsdd.json', 'generation-vsdd-steps-10-seed1.json')
    """
    parts = (stem, variant, f"seed{seed}" if seed else None)
    return "-".join(filter(None, parts)) + ".json"


def recipe_of(config: Config) -> str:
    """The recipe that a run followed to the letter, whatever its seed; else its own config."""
    own = {**config.to_dict(), "seed": 0}
    for name in recipe_names():
        if {**read_recipe(name).to_dict(), "seed": 0} == own:
            return name
    return "its own config.json"
