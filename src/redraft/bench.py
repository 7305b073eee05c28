"""Speed, as ratios measured in one run; rows go to the terminal and to results/bench/."""

import json
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from redraft.config import read_recipe
from redraft.trainer import Log, assemble, save

Row = dict[str, Any]
"""what, method, recipe, hardware, value, unit; more where it applies."""


def checkpoint(recipe: str = "tiny/vsdd", every: int = 100, windows: int = 5) -> list[Row]:
    """What saving a state every so many steps adds to the time of a run."""
    run = assemble(read_recipe(recipe))
    stepping, saving = [], []
    with tempfile.TemporaryDirectory() as folder, Log(Path(folder), 0, None) as log:
        for window in range(windows + 1):
            start = time.perf_counter()
            for _ in range(every):
                log.note(run.method.step(run.batches[run.step], 0.1))
                run.step += 1
            float(log.latest["loss"])  # waits for the device
            middle = time.perf_counter()
            save(run, Path(folder), log.latest)
            if window:  # the first one warms up
                stepping.append(middle - start)
                saving.append(time.perf_counter() - middle)
    share = statistics.median(b / a for a, b in zip(stepping, saving, strict=True))
    common = {"method": run.config.method, "recipe": recipe, "hardware": hardware()}
    milliseconds = {"value": 1e3 * statistics.median(saving), "unit": "ms"}
    return [
        {"what": "checkpoint", **common, **milliseconds},
        {"what": f"checkpoint every {every} steps", **common, "value": share, "unit": "of a run"},
    ]


BENCHES: dict[str, Callable[[], list[Row]]] = {"checkpoint": checkpoint}


def hardware() -> str:
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"{torch.get_num_threads()} CPU threads, {platform.machine()}"


def write(what: str, rows: list[Row], folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{what}.json"
    path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return path
