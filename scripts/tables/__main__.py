"""Tables of README.md and docs/ from the files under results/: what stands between their marks.

python scripts/tables            rewrite them
python scripts/tables --check    complain where one is out of date
"""

import argparse
import re
import sys

import headline
import molecules
import playlists
import speed
import stories
from cells import ROOT

PAGES = ("README.md", "docs/results.md", "docs/experiments.md")
TABLES = headline.TABLES | molecules.TABLES | stories.TABLES | playlists.TABLES | speed.TABLES


def filled(text: str) -> str:
    """The page with every marked table as the results have it."""
    return re.sub(
        r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)",
        lambda found: f"{found[1]}{TABLES[found[2]]()}\n{found[3]}",
        text,
        flags=re.DOTALL,
    )


def main(check: bool) -> int:
    stale = []
    for page in PAGES:
        path = ROOT / page
        text = path.read_text(encoding="utf-8")
        if filled(text) != text:
            stale.append(page)
            if not check:
                path.write_text(filled(text), encoding="utf-8")
    if check and stale:
        print(f"out of date: {', '.join(stale)}; run python scripts/tables", file=sys.stderr)
    return int(check and bool(stale))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="complain, and rewrite nothing")
    sys.exit(main(parser.parse_args().check))
