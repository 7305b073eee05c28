"""Train recipes and draw from them, one after the other, where PyTorch is and little else.

    PYTHONPATH=src python scripts/draw.py OUT SEED:RECIPE... [-n 100 ...]

What `redraft compare` does on the machine with the GPU, without its command line, RDKit or a judge.
Every recipe leaves OUT/NAME.tar.gz, a few megabytes: unpack them in one folder elsewhere, and

    redraft compare RECIPE... --seed SEED --out FOLDER [-n 100 ...]

measures them. One that fails does not keep the next from its turn; after a signal the same
command goes on. $REDRAFT_COMMIT tells the commit where the tree is a copy without its history, or
with an older one.
"""

import argparse
import sys
import tarfile
import traceback
from collections.abc import Sequence
from pathlib import Path

from redraft.comparison import Contender, contenders, domain_of, draw
from redraft.errors import Stopped, UserError
from redraft.experiments.domain import AMOUNTS, amounts_of


def job(text: str) -> tuple[int, str]:
    seed, _, recipe = text.partition(":")
    if not seed.isdigit() or not recipe:
        raise argparse.ArgumentTypeError(f"expected SEED:RECIPE, got {text}")
    return int(seed), recipe


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train recipes and draw from them.")
    parser.add_argument("out", type=Path, help="folder for runs and what is drawn from them")
    parser.add_argument("jobs", nargs="+", type=job, metavar="SEED:RECIPE")
    parser.add_argument("--seconds", type=float, help="of training, instead of the recipes'")
    parser.add_argument("-n", type=int, help="samples of each, as in redraft compare")
    for name in AMOUNTS:
        parser.add_argument(f"--{name}", type=int, help="likewise")
    return parser.parse_args(arguments)


def packed(entry: Contender) -> Path:
    """What was drawn as one file, which is whole or not there."""
    path = entry.drawn.with_name(f"{entry.run.name}.tar.gz")
    part = path.with_suffix(".part")
    with tarfile.open(part, "w:gz") as tar:
        tar.add(entry.drawn, entry.drawn.name)
    return part.rename(path)


def main(arguments: Sequence[str] | None = None) -> int:
    given = parsed(arguments)
    amounts = {"samples": given.n} | {name: getattr(given, name) for name in AMOUNTS}
    try:  # a mistake is told before anything is trained
        entries = [
            entry
            for seed, recipe in given.jobs
            for entry in contenders([recipe], given.out, given.seconds, seed)
        ]
        wanted = [amounts_of(domain_of([entry]), **amounts) for entry in entries]
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    failed = False
    for entry, own in zip(entries, wanted, strict=True):
        try:
            draw(entry, own)
            print(packed(entry), flush=True)
        except Stopped as stop:  # by a signal, which is for all of them
            print(stop, file=sys.stderr)
            return stop.exit_code
        except UserError as error:
            print(error, file=sys.stderr)
            failed = True
        except Exception:
            traceback.print_exc()
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
