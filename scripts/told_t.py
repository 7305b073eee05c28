"""Does it matter what a denoiser that has not learned to infill is told of the time?

    python scripts/told_t.py OUT RUN... [-n 200] [--draws 6]

Next tracks of windows held out of training, drawn in two ways: the denoiser is told how little of
the window is noisy, as in `Sampler`; or it is told t, as if all of it were, as in the paper.
OUT/told-t.json has a row for each run and way, and how much more is hit than by the first run.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from torch import Tensor

from redraft import checkpoint
from redraft.cli import outcome
from redraft.evaluation import results
from redraft.experiments.data import dataset_of
from redraft.experiments.playlists import Columns, in_file, next_tracks
from redraft.experiments.windows import Windows, continued
from redraft.folder import write_json
from redraft.model import Model, load
from redraft.objective import predict
from redraft.sampler import Sampler


class ToldT(Sampler):
    """Its denoiser is told that all tokens are at t."""

    def _of_few(
        self, x: Tensor, t: Tensor, padded: bool, belief: Tensor | None, free: Tensor
    ) -> Tensor:
        return predict(self.network, self.process, x, t, padded, belief)


class Told(Model):
    """A model whose samplers tell it t."""

    def sampler(self, **options: Any) -> Sampler:
        return ToldT(self.trained.denoiser, self.trained.process, **options)


WAYS: dict[str, type[Model]] = {"how little is noisy": Model, "t": Told}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("-n", type=int, default=200, help="windows held out of training")
    parser.add_argument("--draws", type=int, default=6, help="of each window")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    found = {
        "domain": "playlists",
        "experiment": "told-t",
        "commit": checkpoint.commit(),
        "hardware": checkpoint.hardware(),
        "data": "windows held out of training, of which no result is told",
        "n": given.n,
        "draws": given.draws,
        "rows": [],
    }
    first: dict[str, Columns] = {}
    for run in given.runs:
        trained = load(run).trained
        windows = Windows.of(trained, dataset_of(trained).tokenizer, "held_out")
        for told, way in WAYS.items():
            rows = continued(way(trained), windows, windows.first(given.n), given.draws, seed=0)
            columns = next_tracks(windows, rows)
            row = results.facts(trained) | {
                "told": told,
                "metrics": in_file(columns.estimates()),
                "over_first": in_file(columns.less(first.setdefault(told, columns))),
            }
            found["rows"].append(row)
            print(row["method"], told, json.dumps(row["metrics"]["hitrate@3"]), flush=True)
            write_json(given.out / "told-t.json", found)


if __name__ == "__main__":
    sys.exit(outcome(main))
