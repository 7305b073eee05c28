"""What each word of the command line does: a dataclass of its flags, with `run`.

learning.py    quickstart, data, train
drawing.py     sample, infill, revise, repair
playlist.py    playlist continue, playlist repair
measuring.py   evaluate, noise, compare, bench
reporting.py   report
serving.py     serve

torch is imported only when something runs, so that `--help` answers at once.
"""

import io
import re
from collections.abc import Callable
from contextlib import redirect_stderr
from itertools import dropwhile, takewhile
from operator import not_
from typing import Any

import tyro

from redraft.commands.drawing import Infill, Repair, Revise, Sample
from redraft.commands.learning import Data, Quickstart, Train
from redraft.commands.measuring import Bench, Compare, Evaluate, Noise
from redraft.commands.playlist import Playlist
from redraft.commands.reporting import Report
from redraft.commands.serving import Serve
from redraft.config import check_numbers
from redraft.errors import UserError

COMMANDS: dict[str, Callable[..., Any]] = {
    "quickstart": Quickstart,
    "data": Data,
    "train": Train,
    "sample": Sample,
    "infill": Infill,
    "revise": Revise,
    "repair": Repair,
    "playlist": Playlist,
    "evaluate": Evaluate,
    "noise": Noise,
    "compare": Compare,
    "report": Report,
    "serve": Serve,
    "bench": Bench,
}


def run(word: str, arguments: list[str]) -> None:
    """Parse the flags of a command, and do it."""
    command = COMMANDS[word]
    default = command.default(arguments) if hasattr(command, "default") else tyro.MISSING_NONPROP
    complaint = io.StringIO()
    try:
        with redirect_stderr(complaint):
            parsed = tyro.cli(command, args=arguments, default=default, prog=f"redraft {word}")
    except SystemExit as stop:
        if not stop.code:
            return  # --help was answered
        raise UserError(
            f"{in_one_sentence(complaint.getvalue())} (redraft {word} --help)"
        ) from None
    check_numbers(getattr(parsed, word, parsed))  # of `playlist`, what it is to do
    parsed.run()


def in_one_sentence(box: str) -> str:
    """What tyro complains of, without its box: the first paragraph, and the nearest flag."""
    _, *lines = [re.sub(r"^[─-]+$", "", line.strip("│╰╯ ")) for line in box.splitlines()]
    first = list(takewhile(bool, dropwhile(not_, lines)))
    if "Perhaps you meant:" in lines:
        nearest = lines[lines.index("Perhaps you meant:") + 1]
        first.append(f"- did you mean {nearest}?")
    return " ".join(first)
