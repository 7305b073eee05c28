"""How recipes of playlists come along, on windows held out of training: for choosing among them.

    PYTHONPATH=src python scripts/held_out.py OUT RECIPE_OR_RUN... [--windows 400] [--draws 4]

Every state that a run keeps (train.save_every, train.keep) is measured as its end is, but on what
no number of ours is reported of: next tracks and the bound; and the bound on as many windows that
were learned from, which tells how much is known by heart. OUT/NAME.json has a row each.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from redraft import checkpoint
from redraft.cli import outcome
from redraft.config import read_recipe
from redraft.experiments.data import dataset_of
from redraft.experiments.playlists import Columns, bound_columns, in_file, next_tracks, told
from redraft.experiments.windows import Windows, bounds_of, continued
from redraft.folder import write_json
from redraft.model import Model, load
from redraft.trainer import train


def measured(model: Model, n: int, draws: int, steps: int | None) -> dict[str, Any]:
    trained, tokenizer = model.trained, dataset_of(model.trained).tokenizer
    unseen, learned = (Windows.of(trained, tokenizer, part) for part in ("held_out", "train"))

    def bound(windows: Windows) -> Columns:
        return bound_columns(windows, bounds_of(model, windows, windows.first(n), seed=0))

    rows = continued(model, unseen, unseen.first(n), draws, seed=0, steps=steps)
    return {
        **in_file(told([next_tracks(unseen, rows), bound(unseen)])),
        "learned": in_file(bound(learned).estimates()),
    }


def followed(
    what: str, folder: Path, n: int, draws: int, steps: int | None
) -> Iterator[dict[str, Any]]:
    """A row for each state of a run that has begun; the last is its end. A recipe is run first."""
    if checkpoint.states(Path(what)):
        folder = Path(what)
    else:
        train(read_recipe(what), folder)
    for state in checkpoint.states(folder):
        model = load(state / "model")
        done = {name: model.trained.summary[name] for name in ("steps", "seconds")}
        if done["steps"]:
            yield done | measured(model, n, draws, steps)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Recipes of playlists on held-out windows.")
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="+", metavar="RECIPE_OR_RUN")
    parser.add_argument("--windows", type=int, default=400)
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--steps", type=int, help="of a draw; by default all T")
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    for name in given.names:
        folder = given.out / Path(name).stem
        rows = []
        for row in followed(name, folder, given.windows, given.draws, given.steps):
            rows.append(row)
            print(json.dumps(row), flush=True)
            write_json(folder.with_suffix(".json"), rows)


if __name__ == "__main__":
    sys.exit(outcome(main))
