"""What a terminal shows: how training goes, how a sequence is re-drafted, what noise does.

On a terminal this is live and in colour. Anywhere else (a pipe, a file, a batch job) it is plain
lines without control codes, in which curly brackets stand for colour.
"""

from redraft.terminal.console import new_console
from redraft.terminal.noise import show_noise, times_uniform
from redraft.terminal.numbers import Curve, clock, sparkline, times
from redraft.terminal.sequences import (
    Frames,
    diff,
    show_alternatives,
    show_changes,
    show_revision,
)
from redraft.terminal.training import TrainingDisplay

__all__ = [
    "Curve",
    "Frames",
    "TrainingDisplay",
    "clock",
    "diff",
    "new_console",
    "show_alternatives",
    "show_changes",
    "show_noise",
    "show_revision",
    "sparkline",
    "times",
    "times_uniform",
]
