"""How next tracks are best drawn: steps, renewal, temperature, on windows held out of training.

    python scripts/choose_next_tracks.py OUT RUN... [-n 200] [--draws 20] [--votes 100]

Each run draws the same windows in every way. OUT/ways.json has what simple ways hit of them, and a
row for each way and run: what it hits, and, paired by window, how much more than the run's own
plain draws (all steps, none renewed; the paper's) and than the first run in the same way. What a
run's noise does not allow is left out.

With --votes each run then draws unseen windows, so often, in the way of its own that the vote hit
most with. OUT/results has what comes of that as the variant "chosen": next tracks, and repairs
drawn in the same way. Nothing is chosen by them.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from redraft import checkpoint
from redraft.cli import outcome
from redraft.domains import Dataset
from redraft.errors import UserError
from redraft.evaluation import results
from redraft.experiments.data import dataset_of
from redraft.experiments.domain import Asked
from redraft.experiments.playlists import PLAYLISTS, Columns, in_file, next_tracks, simple
from redraft.experiments.windows import Windows, continued
from redraft.folder import write_json
from redraft.model import Model, load

WAYS: tuple[dict[str, float], ...] = (
    {},
    {"renew": 0.5, "temperature": 0.5},
    {"steps": 10},
    {"steps": 10, "temperature": 0.7},
    {"steps": 10, "temperature": 0.5},
    {"steps": 10, "temperature": 0.3},
    {"steps": 10, "renew": 0.5},
    {"steps": 10, "renew": 0.5, "temperature": 0.7},
    {"steps": 10, "renew": 0.5, "temperature": 0.5},
)
"""Options of `Sampler`, the plain way first."""
BY = "hitrate@3_combined"
"""The best way has most of it."""

Row = dict[str, Any]


def heading(experiment: str, n: int, draws: int) -> Row:
    """What a file of held-out windows says above its rows."""
    return {
        "domain": "playlists",
        "experiment": experiment,
        "commit": checkpoint.commit(),
        "hardware": checkpoint.hardware(),
        "data": "windows held out of training, of which no result is told",
        "n": n,
        "draws": draws,
        "rows": [],
    }


def drawn(model: Model, windows: Windows, n: int, draws: int, way: dict[str, Any]) -> Columns:
    """The next tracks of the first n windows."""
    return next_tracks(windows, continued(model, windows, windows.first(n), draws, seed=0, **way))


def baselines(windows: Windows, n: int) -> Row:
    """What simple ways hit of the same."""
    found = simple(windows, windows.first(n))
    return {name: in_file(own.estimates()) for name, own in found.items()}


def possible(model: Model, way: dict[str, Any]) -> bool:
    """Noise that is not Markov knows all its steps only."""
    try:
        model.sampler(**way)
    except UserError:
        return False
    return True


def rows(
    model: Model, windows: Windows, n: int, draws: int, first: dict[str, Columns]
) -> Iterator[Row]:
    """What a run hits in each way, as soon as it is known; `first` is filled by the first run."""
    plain: Columns | None = None
    for way in WAYS:
        if possible(model, way):
            own = drawn(model, windows, n, draws, way)
            plain = plain or own
            yield results.facts(model.trained) | {
                "way": way,
                "metrics": in_file(own.estimates()),
                "over_plain": in_file(own.less(plain)),
                "over_first": in_file(own.less(first.setdefault(str(way), own))),
            }


def measured(
    model: Model, dataset: Dataset, way: dict[str, Any], votes: int, folder: Path
) -> Iterator[Path]:
    """Unseen windows continued and repaired in a way, as results."""
    asked = Asked(model.config.seed, draws=votes, options=way)
    for experiment in ("next-tracks", "repair"):
        found = PLAYLISTS.experiments[experiment](model, dataset, asked)
        yield results.write(found | {"sampler": way}, folder, "chosen")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="How next tracks are best drawn.")
    parser.add_argument("out", type=Path)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("-n", type=int, default=200, help="windows held out of training")
    parser.add_argument("--draws", type=int, default=20, help="of each window")
    parser.add_argument("--votes", type=int, help="draws of each unseen window, in the best way")
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    found = heading("next-tracks-ways", given.n, given.draws)
    first: dict[str, Columns] = {}
    for run in given.runs:
        model, own = load(run), []
        dataset = dataset_of(model.trained)
        windows = Windows.of(model.trained, dataset.tokenizer, "held_out")
        if "baselines" not in found:
            found["baselines"] = baselines(windows, given.n)
        for row in rows(model, windows, given.n, given.draws, first):
            own.append(row)
            write_json(given.out / "ways.json", found | {"rows": found["rows"] + own})
            named = {name: row[name] for name in ("method", "seed", "way")}
            print(json.dumps(named | {BY: row["metrics"][BY]["value"]}), flush=True)
        found["rows"] += own
        if given.votes is not None:
            best = max(own, key=lambda row: row["metrics"][BY]["value"])["way"]
            for path in measured(model, dataset, best, given.votes, given.out / "results"):
                print(path, flush=True)


if __name__ == "__main__":
    sys.exit(outcome(main))
