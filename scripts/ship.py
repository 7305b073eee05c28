"""Make a model that comes with the package, of a run: src/redraft/models/NAME.

    python scripts/ship.py RUN_FOLDER NAME [RESULTS.json]

It is saved compact; its card tells what the run says of itself, and the numbers of a results file.
"""

import argparse
import shutil
from pathlib import Path

import redraft
from redraft import model
from redraft.evaluation.results import recipe_of
from redraft.folder import read_json


def numbers(file: Path) -> dict[str, str]:
    """What was measured, in words."""
    found = read_json(file)
    n, bound_n = found["n"], found.get("bound_n", found["n"])
    return {
        name: f"{m['value']:.4g} (95 %: {m['low']:.4g} to {m['high']:.4g}; "
        f"n = {bound_n if name.startswith('bound') else n:,})"
        for name, m in found["metrics"].items()
    }


def ship(run: Path, name: str, results: Path | None = None) -> Path:
    """The folder, which replaces an older one of this name."""
    shipped = redraft.load(run, "cpu")
    shipped.trained.summary |= {
        "name": name,
        "recipe": recipe_of(shipped.config),
        "commit": read_json(run / "config.json")["commit"],
        **(numbers(results) if results else {}),
    }
    folder = model.SHIPPED / name
    shutil.rmtree(folder, ignore_errors=True)
    shipped.save(folder, compact=True)
    return folder


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make a model that comes with the package.")
    parser.add_argument("run", type=Path, help="a run folder")
    parser.add_argument("name", help="what redraft.load will call it")
    parser.add_argument("results", type=Path, nargs="?", help="a file under results/, for the card")
    given = parser.parse_args()
    made = ship(given.run, given.name, given.results)
    size = sum(path.stat().st_size for path in made.iterdir())
    print(f"{made}: {size:,} bytes")
