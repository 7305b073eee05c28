"""How next tracks are best drawn: steps, renewal, temperature, on windows held out of training.

    python scripts/choose_next_tracks.py OUT.json RUN... [-n 200] [--draws 4]

Each run draws the same windows in every way. OUT.json has a row for each way and run: what it hits,
and, paired by window, how much more than the run's own plain draws (all steps, none renewed; the
paper's) and than the first run in the same way. What a run's noise does not allow is left out.
Validation windows are not looked at.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from redraft import checkpoint
from redraft.cli import outcome
from redraft.errors import UserError
from redraft.evaluation.results import facts
from redraft.experiments.data import dataset_of
from redraft.experiments.playlists import Columns, in_file, next_tracks
from redraft.experiments.windows import Windows, continued
from redraft.folder import write_json
from redraft.model import Model, load

WAYS: tuple[dict[str, float], ...] = (
    {},
    {"renew": 0.5},
    {"temperature": 0.7},
    {"temperature": 0.5},
    {"steps": 10},
    {"steps": 10, "temperature": 0.7},
    {"steps": 10, "temperature": 0.5},
    {"steps": 10, "temperature": 0.4},
    {"steps": 10, "temperature": 0.3},
)
"""Options of `Sampler`, the plain way first."""


def drawn(model: Model, n: int, draws: int, way: dict[str, Any]) -> Columns:
    """The next tracks of the first n held-out windows."""
    windows = Windows.of(model.trained, dataset_of(model.trained).tokenizer, "held_out")
    return next_tracks(windows, continued(model, windows, windows.first(n), draws, seed=0, **way))


def possible(model: Model, way: dict[str, Any]) -> bool:
    """Noise that is not Markov knows all its steps only."""
    try:
        model.sampler(**way)
    except UserError:
        return False
    return True


def rows(runs: Sequence[Path], n: int, draws: int) -> Iterator[dict[str, Any]]:
    """What each run hits in each way, as soon as it is known."""
    models = [load(run) for run in runs]
    plain: dict[int, Columns] = {}
    for way in WAYS:
        found: list[Columns] = []
        for i, model in enumerate(models):
            if not possible(model, way):
                continue
            own = drawn(model, n, draws, way)
            found.append(own)
            yield facts(model.trained) | {
                "way": way,
                "metrics": in_file(own.estimates()),
                "over_plain": in_file(own.less(plain.setdefault(i, own))),
                "over_first": in_file(own.less(found[0])),
            }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="How next tracks are best drawn.")
    parser.add_argument("out", type=Path)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("-n", type=int, default=200, help="windows held out of training")
    parser.add_argument("--draws", type=int, default=4, help="of each window")
    given = parser.parse_args(arguments)
    found = {
        "domain": "playlists",
        "experiment": "next-tracks-ways",
        "commit": checkpoint.commit(),
        "hardware": checkpoint.hardware(),
        "data": "windows held out of training, of which no result is told",
        "n": given.n,
        "draws": given.draws,
        "rows": [],
    }
    for row in rows(given.runs, given.n, given.draws):
        found["rows"].append(row)
        write_json(given.out, found)
        hit = row["metrics"]["hitrate@3"]
        print(json.dumps({name: row[name] for name in ("method", "seed", "way")} | hit), flush=True)


if __name__ == "__main__":
    sys.exit(outcome(main))
