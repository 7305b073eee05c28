"""Both players of a run over time."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from redraft.report.style import BLUE, GREEN, GREY, ORANGE, PURPLE, VERMILLION, styled

Row = Mapping[str, float]


class Panel(NamedTuple):
    key: str
    """The metric without which there is nothing to draw."""
    title: str
    draw: Callable[[Axes, Sequence[Row]], None]


@styled
def learning_curves(rows: Sequence[Row]) -> Figure:
    """Both players over time, from the rows of metrics.jsonl; a panel for whatever was logged."""
    panels = [p for p in PANELS if np.isfinite(series(rows, p.key)[1]).any()]
    columns = min(max(len(panels), 1), 3)
    lines = max(math.ceil(len(panels) / columns), 1)
    width = 7.0 if columns == 1 else 4.3 * columns
    figure = Figure(figsize=(width, 2.9 * lines + 0.2), layout="constrained")
    figure.get_layout_engine().set(wspace=0.06, hspace=0.08)  # pyright: ignore
    axes = list(figure.subplots(lines, columns, squeeze=False).flat)
    for ax, panel in zip(axes, panels, strict=False):
        panel.draw(ax, rows)
        ax.set_title(panel.title)
        ax.set_xlabel("steps")
        ax.grid(axis="y", color="#EEEEEE")
        ax.set_axisbelow(True)
        ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        if ax.get_xlim()[1] >= 10_000:
            ax.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:g}k" if x else "0")
        if len(ax.get_legend_handles_labels()[1]) > 1:
            ax.legend(frameon=False, fontsize=9)
    for ax in axes[len(panels) :]:
        ax.set_axis_off()
    if not panels:
        figure.text(0.5, 0.5, "no metrics were logged", ha="center", color=GREY)
    return figure


def series(rows: Sequence[Row], key: str, clock: str = "step") -> tuple[np.ndarray, np.ndarray]:
    """Times and values of the rows that have this metric; NaN for what is not finite."""
    pairs = [(row[clock], row[key]) for row in rows if row.get(key) is not None]
    times, values = np.array(pairs, dtype=float).reshape(-1, 2).T
    return times, np.where(np.isfinite(values), values, np.nan)


def smooth(values: np.ndarray) -> np.ndarray:
    """A centred moving average over a twentieth of the curve; NaN do not count.

    Its window is narrow at the start, where curves fall, and one-sided at the end.
    """
    n, half = np.arange(len(values)), len(values) // 40
    first = n - np.minimum(half, n)
    last = n + np.minimum(np.minimum(half, n), n[::-1])
    known = np.isfinite(values)
    total = np.append(0, np.where(known, values, 0).cumsum())
    count = np.append(0, known.cumsum())
    around = count[last + 1] - count[first]
    mean = (total[last + 1] - total[first]) / np.maximum(around, 1)
    return np.where(around > 0, mean, np.nan)


def curve(
    ax: Axes, steps: np.ndarray, values: np.ndarray, colour: str, label: str | None = None
) -> None:
    """The raw curve, pale, and the smoothed one over it."""
    ax.plot(steps, values, color=colour, alpha=0.3, linewidth=0.8)
    ax.plot(steps, smooth(values), color=colour, linewidth=1.8, label=label)


def log_if_far(ax: Axes, values: np.ndarray) -> None:
    """A logarithmic scale for what falls a long way."""
    if np.nanmin(values) > 0 and np.nanmax(values) > 8 * np.nanmin(values):
        logarithmic(ax)


def logarithmic(ax: Axes, subs: Sequence[float] = (1, 2, 5)) -> None:
    """Upwards, with plain numbers at these multiples of the powers of ten."""
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=subs))
    ax.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
    ax.yaxis.set_minor_formatter(NullFormatter())


def _plain(key: str, colour: str) -> Callable[[Axes, Sequence[Row]], None]:
    """One curve, on a logarithmic scale where it falls a long way."""

    def draw(ax: Axes, rows: Sequence[Row]) -> None:
        steps, values = series(rows, key)
        curve(ax, steps, values, colour)
        log_if_far(ax, values)

    return draw


def _reward(ax: Axes, rows: Sequence[Row]) -> None:
    steps, reward = series(rows, "leader/reward")
    curve(ax, steps, reward, VERMILLION, "mean of the probes")
    complete = [row for row in rows if row.get("leader/reward") is not None]
    steps, spread = series(complete, "leader/reward_spread")
    if len(spread) == len(reward):
        middle, around = smooth(reward), smooth(spread)
        ax.fill_between(
            steps,
            middle - around,
            middle + around,
            color=ORANGE,
            alpha=0.25,
            linewidth=0,
            label="± spread between them",
        )
    ax.axhline(0, color=GREY, linewidth=0.8)


def _entropy(ax: Axes, rows: Sequence[Row]) -> None:
    """Mean and smallest row entropy, as shares of ln(V' - 1) where the share was logged."""
    has_share = np.isfinite(series(rows, "leader/entropy_share")[1]).any()
    if has_share:
        rows = [row for row in rows if row.get("leader/entropy_share")]
    steps, average = series(rows, "leader/entropy_mean")
    steps_low, lowest = series(rows, "leader/entropy_min")
    if has_share:
        largest = np.nanmax(average / series(rows, "leader/entropy_share")[1])
        average, lowest = average / largest, lowest / largest
        ax.yaxis.set_major_formatter(lambda y, _: f"{100 * y:g} %")
        ax.axhline(1, color=GREY, linewidth=0.8, linestyle=":")
    curve(ax, steps, average, GREEN, "mean row")
    if len(lowest):
        curve(ax, steps_low, lowest, PURPLE, "lowest row")
    ax.set_ylabel("share of uniform noise's" if has_share else "nats")


PANELS = [
    Panel("loss", "Denoiser: loss, nats per token", _plain("loss", BLUE)),
    Panel(
        "leader/reference_loss",
        "Denoiser under reference noise: L_ref",
        _plain("leader/reference_loss", BLUE),
    ),
    Panel("leader/reward", "Leader: reward", _reward),
    Panel("leader/entropy_mean", "Leader: row entropy of the noise", _entropy),
    Panel(
        "leader/largest_transition",
        "Leader: largest transition",
        _plain("leader/largest_transition", VERMILLION),
    ),
    Panel(
        "leader/terminal_kl",
        "Leader: KL of the end to uniform, nats",
        _plain("leader/terminal_kl", VERMILLION),
    ),
]
