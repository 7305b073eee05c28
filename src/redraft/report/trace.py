"""One sequence while it is re-drafted."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from redraft.report.style import VERMILLION, Names, styled, token_name
from redraft.terminal import Frames
from redraft.tokenizers.base import PAD

CHARACTER, MARGIN, LINE = 0.078, 0.13, 0.27  # inches, of 9 point letters in a cell
WIDEST = 13.0


@styled
def revision_trace(
    frames: Frames, tokens: Names, clean: Sequence[int] | None = None, most: int = 16
) -> Figure:
    """One sequence while it is re-drafted: time runs downwards, positions to the right.

    Of many frames, `most` are chosen evenly; of a long sequence, the part where most changes.
    """
    chosen = np.unique(np.linspace(0, len(frames) - 1, min(most, len(frames))).round().astype(int))
    rows = [(f"t = {frames[n][0]}", list(map(int, frames[n][1]))) for n in chosen]
    if clean is not None:
        rows.insert(0, ("clean", list(map(int, clean))))
    length = max(len(_trimmed(ids)) for _, ids in rows)
    x = np.array([(ids + [PAD] * length)[:length] for _, ids in rows])  # (frames, L)
    texts = [["" if i == PAD else token_name(tokens[i], 12) for i in ids] for ids in x]
    widths = np.array([max(map(len, column)) for column in zip(*texts, strict=True)])
    widths = CHARACTER * np.maximum(widths, 1) + MARGIN  # (L,) inches
    changed = np.zeros_like(x, dtype=bool)
    changed[1:] = x[1:] != x[:-1]
    start, end = _liveliest(changed.sum(0), widths)

    grid = _grid([label for label, _ in rows], widths[start:end])
    right = np.zeros_like(changed) if clean is None else x == x[0]
    for n in range(len(rows)):
        for k, left in enumerate(grid.lefts):
            at = n, start + k
            _cell(grid.ax, (left, n, widths[at[1]]), texts[n][at[1]], changed[at], right[at])
    part = "" if end - start == length else f", positions {start + 1} to {end} of {length}"
    grid.ax.set_title(f"A sequence being re-drafted{part}", pad=24)
    _trace_legend(grid.ax, clean is not None)
    return grid.figure


def _trimmed(ids: list[int]) -> list[int]:
    """Without the padding at the end."""
    return ids[: max((n + 1 for n, i in enumerate(ids) if i != PAD), default=0)]


def _liveliest(changes: np.ndarray, widths: np.ndarray) -> tuple[int, int]:
    """The part that fits into a figure and holds the most changes."""
    ends = np.append(0, widths.cumsum())
    sums = np.append(0, changes.cumsum())
    starts = np.arange(len(widths))
    stops = np.searchsorted(ends, ends[:-1] + WIDEST, side="right") - 1
    stops = np.maximum(stops, starts + 1)
    best = int(np.argmax(sums[stops] - sums[starts]))
    return best, int(stops[best])


class Grid(NamedTuple):
    figure: Figure
    ax: Axes
    lefts: np.ndarray
    """Where each column begins, in inches."""


def _grid(labels: Names, widths: np.ndarray) -> Grid:
    """Empty axes in inches to the right and rows downwards, as large as their cells need."""
    width, height = float(widths.sum()), LINE * len(labels)
    margin = 0.8  # for the labels at the left
    figure = Figure(figsize=(max(width, 4.6) + margin + 0.15, height + 0.85))
    full, tall = figure.get_size_inches()
    ax = figure.add_axes((margin / full, 0.12 / tall, width / full, height / tall))
    ax.set(xlim=(0, width), ylim=(len(labels) - 0.5, -0.5), xticks=[])
    ax.set_yticks(range(len(labels)), labels, fontsize=9)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return Grid(figure, ax, np.append(0, widths.cumsum())[:-1])


def _cell(ax: Axes, at: tuple[float, int, float], text: str, changed: bool, right: bool) -> None:
    """A token: green where it is right, framed and bold where it has just changed."""
    left, row, width = at
    fill = RIGHT if right else FRESH if changed else QUIET
    pad = 0.015
    box = Rectangle(
        (left + pad, row - 0.44),
        width - 2 * pad,
        0.88,
        facecolor=fill,
        edgecolor=VERMILLION if changed else "none",
        linewidth=1.2,
    )
    if text:
        ax.add_patch(box)
        weight = "bold" if changed else "normal"
        middle = left + width / 2
        ax.text(
            middle,
            row,
            text,
            ha="center",
            va="center_baseline",
            family="monospace",
            fontsize=9,
            weight=weight,
        )


RIGHT, FRESH, QUIET = "#BFE5D6", "#FBE3C0", "#F1F1F1"


def _trace_legend(ax: Axes, with_clean: bool) -> None:
    entries = [Patch(facecolor=FRESH, edgecolor=VERMILLION, label="changed since the row above")]
    if with_clean:
        entries.append(Patch(facecolor=RIGHT, label="as in the clean sequence"))
    ax.legend(
        handles=entries,
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=2,
        frameon=False,
        fontsize=9,
        borderaxespad=0.2,
        borderpad=0,
        handlelength=1.2,
    )
