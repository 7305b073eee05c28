"""Does it matter what a denoiser that has not learned to infill is told of the time?

    python scripts/told_t.py OUT RUN... [-n 200] [--draws 6] [--temperatures 1 0.5]

Next tracks of windows held out of training, drawn in two ways: the denoiser is told how little of
the window is noisy, or t, as if all of it were, as in the paper (`denoiser.told`). One that has
learned to infill is told what is given. OUT/told-t.json has a row for each run, way and
temperature: what it hits, and, paired by window, how much more than the run's own first row, and
than the first run told the same at the same temperature.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from choose_next_tracks import Row, heading

from redraft.cli import outcome
from redraft.evaluation import results
from redraft.experiments.data import dataset_of
from redraft.experiments.playlists import Columns, in_file, next_tracks
from redraft.experiments.windows import Windows, continued
from redraft.folder import write_json
from redraft.model import Model, load


def ways(model: Model) -> dict[str, dict[str, Any]]:
    """Options of `Sampler`, by what the denoiser is told."""
    if model.config.denoiser.infills:
        return {"what is given": {}}
    return {"how little is noisy": {"told": "share"}, "t": {"told": "t"}}


def rows(
    model: Model,
    n: int,
    draws: int,
    temperatures: Sequence[float],
    first: dict[tuple[str, float], Columns],
) -> Iterator[Row]:
    """What a run hits in each way; `first` is filled by the first run."""
    windows = Windows.of(model.trained, dataset_of(model.trained).tokenizer, "held_out")
    plain: Columns | None = None
    for temperature in temperatures:
        for told, way in ways(model).items():
            options: dict[str, Any] = way | {"temperature": temperature}
            drawn = continued(model, windows, windows.first(n), draws, 0, **options)
            own = next_tracks(windows, drawn)
            plain = plain or own
            yield results.facts(model.trained) | {
                "told": told,
                "temperature": temperature,
                "metrics": in_file(own.estimates()),
                "over_plain": {} if own is plain else in_file(own.less(plain)),
                "over_first": in_file(own.less(first.setdefault((told, temperature), own))),
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("-n", type=int, default=200, help="windows held out of training")
    parser.add_argument("--draws", type=int, default=6, help="of each window")
    parser.add_argument("--temperatures", type=float, nargs="+", default=(1.0,))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    found = heading("told-t", given.n, given.draws)
    first: dict[tuple[str, float], Columns] = {}
    for run in given.runs:
        for row in rows(load(run), given.n, given.draws, given.temperatures, first):
            found["rows"].append({"run": run.name} | row)
            named = {name: row[name] for name in ("method", "told", "temperature")}
            print(json.dumps(named | row["metrics"]["hitrate@3"]), flush=True)
            write_json(given.out / "told-t.json", found)


if __name__ == "__main__":
    sys.exit(outcome(main))
