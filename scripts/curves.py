"""Learning curves of runs as results: results/DOMAIN/curves-METHOD[-VARIANT].json.

    python scripts/curves.py DRAWN_FOLDER... [--every STEPS] [--variant NAME] [--note TEXT]

Of what `redraft compare` leaves beside each run, NAME.drawn: the first row of its metrics, one in
so many steps, and the last.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from redraft.cli import outcome
from redraft.evaluation import results
from redraft.experiments import drawn
from redraft.experiments.domain import Drawn

ROOT = Path(__file__).parents[1]


def curves(own: Drawn, every: int = 2_000, note: str | None = None) -> dict[str, Any]:
    rows = own.rows(drawn.CURVES)
    chosen = [row for row in rows[1:-1] if row["step"] % every == 0]
    chosen = [rounded(row) for row in (rows[0], *chosen, rows[-1])]
    note = note or f"every {every:,} steps of the run; seconds as the run counts them"
    return results.result(own, "curves", len(rows), {}, note=note, rows=chosen)


def rounded(row: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in row.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="Learning curves of runs as results.")
    parser.add_argument("folders", nargs="+", type=Path, help="NAME.drawn of redraft compare")
    parser.add_argument("--variant", help="a name for these, beside those of others")
    parser.add_argument("--every", type=int, default=2_000, help="steps between two rows")
    parser.add_argument("--note")
    given = parser.parse_args()
    for folder in given.folders:
        found = curves(drawn.read(folder), given.every, given.note)
        print(results.write(found, ROOT / "results", given.variant))


if __name__ == "__main__":
    sys.exit(outcome(main))
