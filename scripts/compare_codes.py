"""What the codes of tracks tell of them: one kind beside another, results/playlists/codes.json.

    python scripts/compare_codes.py [-n 500]

Of unseen windows of the prepared playlists, for each kind of codes, without any model:

    triplets, tracks_each, largest    how many different codes there are, and who shares them
    meant             share of tracks that are what their codes mean, the most played that has them
    sharers_nats      what tells a track from those that share its codes, by their plays alone
    all_nats          what tells it from all others
    codes_again       share of tracks whose codes stood in the window before
    tracks_again      share of those that stood there themselves
    baselines         how often simple ways tell any of the last three, by codes and by tracks

Intervals are over groups of windows.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from redraft import checkpoint
from redraft.cli import outcome
from redraft.data import playlists as data
from redraft.experiments.playlists import (
    Columns,
    in_file,
    nats_among_sharers,
    nats_by_plays,
    of_windows,
    simple,
)
from redraft.experiments.windows import Windows
from redraft.folder import write_json
from redraft.tokenizers import SemanticIdTokenizer
from redraft.tokenizers.semantic_id import CODES

ROOT = Path(__file__).parents[1]


def again(items: np.ndarray) -> np.ndarray:
    """(n,) the share of each row that stood in it before."""
    return np.array([1 - len(set(row)) / len(row) for row in items.tolist()])


def told(windows: Windows, some: range) -> Columns:
    tokenizer, tracks = windows.tokenizer, windows.tracks[list(some)]  # (n, 50)
    meant = tokenizer.meant()
    values = {
        "meant": (meant[tracks] == tracks).mean(1),
        "sharers_nats": nats_among_sharers(windows)[tracks].mean(1),
        "all_nats": nats_by_plays(windows.prepared, np.zeros_like(meant))[tracks].mean(1),
        "codes_again": again(meant[tracks]),
        "tracks_again": again(tracks),
    }
    return of_windows(windows, some, values)


def row(prepared: data.Prepared, kind: str, n: int) -> dict[str, Any]:
    """All that there is to say of one kind of codes."""
    tokenizer = SemanticIdTokenizer(prepared.codes(kind))
    windows = Windows.full(prepared, tokenizer, "validation")
    some, shared = windows.first(n), tokenizer.collisions()
    return {
        "codes": kind,
        "triplets": shared.triplets,
        "tracks_each": shared.mean,
        "largest": shared.largest,
        "n": len(some),
        "metrics": in_file(told(windows, some).estimates()),
        "baselines": {
            name: in_file(own.estimates()) for name, own in simple(windows, some).items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="What the codes of tracks tell of them.")
    parser.add_argument("-n", type=int, default=500, help="unseen windows")
    prepared, n = data.prepared(), parser.parse_args().n
    found = {
        "domain": "playlists",
        "experiment": "codes",
        "commit": checkpoint.commit(),
        "data": prepared.origin,
        "rows": [row(prepared, kind, n) for kind in CODES],
    }
    write_json(ROOT / "results/playlists/codes.json", found)


if __name__ == "__main__":
    sys.exit(outcome(main))
