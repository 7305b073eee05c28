"""Results as files, one for each run and experiment: every table is made from them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from redraft import checkpoint
from redraft.checkpoint import Trained
from redraft.config import Config, read_recipe, recipe_names
from redraft.evaluation.statistics import Estimate


def result(
    trained: Trained,
    experiment: str,
    n: int | Mapping[str, int],
    metrics: Mapping[str, Estimate],
    **more: Any,
) -> dict[str, Any]:
    """What was measured, of what, and how it can be measured again."""
    config, summary = trained.config, trained.summary
    return {
        "domain": config.data.domain,
        "experiment": experiment,
        "method": config.method,
        "recipe": recipe_of(config),
        "commit": checkpoint.commit(),
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
    """folder/DOMAIN/EXPERIMENT-METHOD[-VARIANT].json."""
    name = "-".join(filter(None, (found["experiment"], found["method"], variant)))
    path = folder / found["domain"] / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return path


def recipe_of(config: Config) -> str:
    """The recipe that a run followed to the letter, whatever its seed; else its own config."""
    own = {**config.to_dict(), "seed": 0}
    for name in recipe_names():
        if {**read_recipe(name).to_dict(), "seed": 0} == own:
            return name
    return "its own config.json"
