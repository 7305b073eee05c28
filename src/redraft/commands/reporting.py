"""The command that tells: report."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from redraft.config import check
from redraft.errors import UserError


@dataclass
class Report:
    """One HTML file that tells all of some runs: numbers, figures, samples, how to do it again.

    For example:
    $ redraft report runs/first
    $ redraft report comparison -o report.html --figures figures

    It needs no network and opens from the disk.
    """

    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN...")]
    """Run folders, the NAME.drawn of `redraft compare`, or folders that hold several of them."""
    out: Annotated[Path, arg(aliases=["-o"])] = Path("report.html")
    """File to write."""
    figures: Path | None = None
    """A folder for the figures as files, too: SVG and PNG."""
    samples: int = 12
    """How many samples of each run to show; drawn from the model where there are none yet."""
    results: Path = Path("results")
    """Where `redraft evaluate` has left more numbers of these runs."""

    def run(self) -> None:
        self.check_flags()
        from redraft.folder import put
        from redraft.report.page import page
        from redraft.report.runs import gather

        runs = gather(self.runs, self.results, self.samples)
        found = page(runs, self.samples)
        try:
            put(self.out, found.text.encode())
            saved = found.album.save(self.figures) if self.figures is not None else []
        except OSError as error:
            raise UserError(f"{error.filename} cannot be written: {error.strerror}") from None
        print(f"written to {self.out} ({len(found.text.encode()) / 1e6:.1f} MB)")
        if saved:
            print(f"{len(saved)} figures in {self.figures}")

    def check_flags(self) -> None:
        """Before anything is read, which may take a while."""
        check(bool(self.runs), "give at least one run to report on")
        check(self.samples >= 0, f"--samples must be at least 0, got {self.samples}")
        folder = self.out.parent
        check(folder.is_dir(), f"there is no folder {folder} for {self.out.name}")
        check(not self.out.is_dir(), f"{self.out} is a folder; name a file, such as report.html")
        check(os.access(folder, os.W_OK), f"{folder} cannot be written to")
        bad = self.figures is not None and self.figures.exists() and not self.figures.is_dir()
        check(not bad, f"--figures takes a folder, and {self.figures} is a file")
