"""Several methods in one figure, from files of results and of metrics.

redrafting   validity of what came back, against how much the noise had left
steps        quality against the number of sampling steps
renewal      quality against the share of the steps that draw tokens anew
temperature  quality against the temperature
validity     valid samples run by run, beside the paper's
learning     losses, noise and rewards of several runs against time

A method keeps its colour and its marker; several runs of one method share them.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator, PercentFormatter
from scipy.optimize import isotonic_regression

from redraft.evaluation.statistics import Estimate, over_seeds
from redraft.report import paper
from redraft.report.learning import Row, log_if_far, series, smooth
from redraft.report.measures import measure
from redraft.report.style import GREY, INK, LOOKS, look, styled
from redraft.report.tables import in_percent

Result = Mapping[str, Any]
"""A file of results, as redraft.evaluation.results writes it."""

CAPTIONS = {
    "redrafting": (
        "Molecules noised to 20, 40 and 60 % of the steps (from right to left) and brought back: "
        "the higher a line, the more of them are molecules again after equal damage; bars are 95 % "
        "intervals over molecules."
    ),
    "steps": (
        "What fewer sampling steps cost: the flatter a line, the less a method loses when it is "
        "sampled in a hurry (FLDD, which is not Markov, cannot be); bars are 95 % intervals over "
        "samples."
    ),
    "renewal": (
        "What is gained where the last sampling steps forget the tokens and draw them anew from "
        "what the denoiser believes: the more valid samples or the lower the perplexity, the more "
        "mistakes are taken back, as long as variety stays; bars are 95 % intervals over samples."
    ),
    "temperature": (
        "What is gained where likely tokens are drawn more often than the denoiser believes, at "
        "temperatures below 1: quality may rise only because variety falls, so that a line alone "
        "does not tell which setting is better; bars are 95 % intervals over samples."
    ),
    "validity": (
        "Valid molecules by method, a mark for each training seed with its 95 % interval over "
        "samples (that of the numbers is over seeds where there are several); the diamonds are the "
        "paper's, of other data and another budget."
    ),
    "learning": (
        "Several runs over the same time: losses under different noise are different bounds, so "
        "levels are to be compared in L_ref, where the noise is the same for all."
    ),
}
"""One sentence each: what to see."""

PAPER = {
    method: row["validity"] for method, row in paper.NUMBERS["molecules", "generation"].items()
}
"""Validity of generated molecules in the paper, by method."""

PERCENT = PercentFormatter(1, decimals=0, symbol=" %")
WIDTH = 8.6  # inches: at the width of a README, 10 points are as large as its own letters


# ------------------------------------------------------------------ re-drafting

SCALES = {
    "tokens_kept": "share of tokens that the noise kept",
    "corrupted_similarity": "mean Tanimoto of noised to clean,\nover noised strings that parse",
}
"""How far the noise went: the first is always defined, the second where noised strings parse."""


@styled
def redrafting(results: Sequence[Result]) -> Figure:
    """Validity against both scales of noise; a point a level, joined for each run."""
    figure = canvas(3.6)
    axes = figure.subplots(1, len(SCALES), sharey=True)
    for ax, (scale, label) in zip(axes, SCALES.items(), strict=True):
        absent = []
        for result in ordered(results):
            x, y = levels(result, scale), levels(result, "validity")
            marks(ax, result["method"], [(x[n], y[n]) for n in y if n in x])
            absent += [] if x else [look(result["method"]).name]
        if absent:
            names = ", ".join(dict.fromkeys(absent))
            ax.set_title(f"{names}: nothing noised parses", fontsize=9)
        ax.set_xlabel(label)
        quiet(ax)
    noise = sorted({n for result in results for n in levels(result, "validity")})
    axes[0].set_title(f"noise from the right: {', '.join(map(str, noise))} % of T", fontsize=9)
    axes[0].set_ylabel("valid after re-drafting")
    axes[0].yaxis.set_major_formatter(PERCENT)
    axes[0].xaxis.set_major_formatter(PERCENT)
    handles = [Line2D([], [], label=look(m).name, **stroke(m)) for m in _best_first(results)]
    figure.legend(handles=handles, loc="outside right center", frameon=False)
    return figure


def _best_first(results: Iterable[Result]) -> list[str]:
    """Methods by their validity, the mean over all levels and runs."""
    found: dict[str, list[float]] = {}
    for result in results:
        values = [estimate.value for estimate in levels(result, "validity").values()]
        found.setdefault(result["method"], []).extend(values)
    return sorted(found, key=lambda method: -np.mean(found[method]))


# ------------------------------------------------------------------ other ways to sample

QUALITY = {
    "validity": "valid samples",
    "judge_perplexity": "perplexity: how surprised a language model,\nthe judge, is by the samples",
}
"""What samples are judged by, and how an axis says it."""


@styled
def steps(results: Sequence[Result]) -> Figure:
    """Quality by the number of sampling steps."""
    figure = settings(results, "sampling steps")
    ax = figure.axes[0]
    ticks = ax.get_xticks()
    ax.set(xscale="log", xlim=(ticks[0] / 1.1, ticks[-1] * 1.05))
    ax.set_xticks(ticks, [f"{n:.0f}" for n in ticks])  # the scale has its own
    ax.xaxis.set_minor_locator(NullLocator())
    return figure


@styled
def renewal(results: Sequence[Result]) -> Figure:
    """Quality by the share of the steps, the last of them, that are renewed."""
    return settings(results, "last share of the steps, %, in which tokens are renewed")


@styled
def temperature(results: Sequence[Result]) -> Figure:
    """Quality by the temperature, of which results tell the hundredths."""
    return settings(results, "temperature", unit=100)


def settings(results: Sequence[Result], label: str, unit: int = 1) -> Figure:
    """Quality by an option of the sampler, a line a run, named at its end."""
    figure = canvas(4.0)
    ax = figure.subplots()
    judged_by = quality_of(results)
    runs = [(result["method"], levels(result, judged_by)) for result in ordered(results)]
    found = [(method, by_setting) for method, by_setting in runs if by_setting]
    for method, by_setting in found:
        marks(ax, method, [(exactly(n / unit), y) for n, y in by_setting.items()])
    ax.set(xlabel=label, ylabel=QUALITY[judged_by])
    ax.set_xticks(sorted({n / unit for _, by_setting in found for n in by_setting}))
    if measure(judged_by).percent:
        ax.yaxis.set_major_formatter(PERCENT)
    else:
        log_if_far(ax, np.array([y.value for _, own in found for y in own.values()]))
    quiet(ax)
    _name_ends(ax, {method: by_setting[max(by_setting)].value for method, by_setting in found})
    return figure


def quality_of(results: Sequence[Result]) -> str:
    """What most of them were judged by."""
    return max(QUALITY, key=lambda name: sum(bool(levels(result, name)) for result in results))


def _name_ends(ax: Axes, ends: Mapping[str, float]) -> None:
    """Every method at the right of the axes, as high as its line ends."""
    methods = sorted(ends, key=ends.__getitem__, reverse=True)
    scale = ax.yaxis.get_transform()  # as it looks, which may be logarithmic
    low, high = scale.transform(np.array(ax.get_ylim()))
    exact = scale.transform(np.array([ends[method] for method in methods]))
    heights = scale.inverted().transform(apart(exact, gap=0.06 * (high - low)))
    beside = ax.get_yaxis_transform()
    for method, height in zip(methods, heights, strict=True):
        name, colour, _ = look(method)
        ends_at = (ends[method], height)
        ax.plot((1.01, 1.05), ends_at, color=colour, transform=beside, clip_on=False)
        ax.text(1.06, height, name, transform=beside, va="center")


def apart(heights: np.ndarray, gap: float) -> np.ndarray:
    """Heights from the highest to the lowest, moved until `gap` lies between neighbours.

    By least squares, so that none is moved without need.
    """
    shift = gap * np.arange(len(heights))
    return isotonic_regression(heights + shift, increasing=False).x - shift  # may not ascend


# ------------------------------------------------------------------ new molecules

PAPER_MARK: dict[str, Any] = {
    "marker": "D",
    "markersize": 5,
    "linestyle": "none",
    "color": "white",
    "markeredgecolor": INK,
}


@styled
def validity(results: Sequence[Result]) -> Figure:
    """A row a method, the best above: its seeds below each other, and the paper's number."""
    runs: dict[str, list[Estimate]] = {}
    for result in ordered(results):
        runs.setdefault(result["method"], []).append(Estimate(**result["metrics"]["validity"]))
    whole = {method: _of_all(found) for method, found in runs.items()}
    methods = sorted(runs, key=lambda method: whole[method].value)
    figure = canvas(0.45 * len(runs) + 1.0)
    ax = figure.subplots()
    for row, method in enumerate(methods):
        n = len(runs[method])
        for k, run in enumerate(runs[method]):
            height = row + 0.22 * ((n - 1) / 2 - k)
            marks(ax, method, [(run, exactly(height))], markersize=4, capsize=4.5)
        if method in PAPER:
            ax.plot(PAPER[method], row, **PAPER_MARK)
        text = in_percent(whole[method].to_dict()) + (f", {n} seeds" if n > 1 else "")
        ax.text(1.02, row, text, transform=ax.get_yaxis_transform(), va="center")
    ax.set_yticks(range(len(methods)), [look(method).name for method in methods])
    ax.set(xlim=(0, 1), ylim=(-0.6, len(methods) - 0.4), xlabel="valid samples")
    ax.xaxis.set_major_formatter(PERCENT)
    quiet(ax, "x")
    header = {"transform": ax.get_yaxis_transform(), "fontsize": 9}
    ax.text(1.02, len(methods) - 0.4, "%, with 95 % interval", **header)
    handle = Line2D([], [], label="the paper's number", **PAPER_MARK)
    ax.legend(handles=[handle], loc="lower left", bbox_to_anchor=(0, 1), frameon=False)
    return figure


def _of_all(runs: Sequence[Estimate]) -> Estimate:
    """Over seeds where there are several, else over the samples of the only run."""
    several = len(runs) > 1
    return over_seeds([run.value for run in runs]).within(0, 1) if several else runs[0]


# ------------------------------------------------------------------ learning

CURVES = {
    "loss": "Denoiser: loss, nats per token",
    "leader/reference_loss": "Under reference noise: L_ref",
    "leader/entropy_mean": "Noise: mean row entropy, nats",
    "leader/reward": "Leader: reward",
}
DASHES = ("-", "--", ":", "-.")


class Run(NamedTuple):
    name: str
    method: str
    rows: Sequence[Row]
    """Of its metrics.jsonl."""


@styled
def learning(runs: Sequence[Run]) -> Figure:
    """Several runs against seconds, smoothed; a panel for whatever any of them logged."""
    curves = {key: [series(run.rows, key, "seconds") for run in runs] for key in CURVES}
    shown = [key for key in CURVES if any(np.isfinite(y).any() for _, y in curves[key])]
    lines = max(math.ceil(len(shown) / 2), 1)
    figure = canvas(2.4 * lines + 0.6)
    axes = list(figure.subplots(lines, 2, squeeze=False).flat)
    strokes = _strokes(runs)
    for ax, key in zip(axes, shown, strict=False):
        for own, (seconds, values) in zip(strokes, curves[key], strict=True):
            ax.plot(seconds, smooth(values), markevery=0.3, **own)
        log_if_far(ax, np.concatenate([values for _, values in curves[key]]))
        ax.set(title=CURVES[key], xlabel="seconds")
        quiet(ax)
    for ax in axes[len(shown) :]:
        ax.set_axis_off()
    handles = [Line2D([], [], label=r.name, **s) for r, s in zip(runs, strokes, strict=True)]
    figure.legend(handles=handles, loc="outside lower center", frameon=False, ncols=4)
    return figure


def _strokes(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """The look of each run's line; runs of one method differ in their dashes."""
    before = [[run.method for run in runs[:n]].count(run.method) for n, run in enumerate(runs)]
    return [
        stroke(run.method) | {"linestyle": DASHES[n % len(DASHES)]}
        for run, n in zip(runs, before, strict=True)
    ]


# ------------------------------------------------------------------ what they share


def levels(result: Result, measure: str) -> dict[int, Estimate]:
    """A measure by the N of its names, `measure@N`, in ascending order."""
    named = ((name.partition("@"), metric) for name, metric in result["metrics"].items())
    found = {int(n): Estimate(**metric) for (name, _, n), metric in named if n and name == measure}
    return dict(sorted(found.items()))


def exactly(value: float) -> Estimate:
    return Estimate(value, value, value)


def ordered(results: Iterable[Result]) -> list[Result]:
    """By method, those that stand first in the table of looks last, and so on top; then by seed."""
    ranks = {method: n for n, method in enumerate(reversed(LOOKS))}
    return sorted(results, key=lambda r: (ranks.get(r["method"], -1), r["method"], r["seed"]))


def canvas(height: float) -> Figure:
    """With a margin, for pages that are not white."""
    return Figure(figsize=(WIDTH, height), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1))


HOLLOW: dict[str, Any] = {"markerfacecolor": "white", "markeredgewidth": 1.4}


def stroke(method: str) -> dict[str, Any]:
    _, colour, marker = look(method)
    return {
        "color": colour,
        "marker": marker,
        "markersize": 6,
        "markeredgewidth": 0.8,
        "linewidth": 1.6,
    }


def marks(ax: Axes, method: str, points: Sequence[tuple[Estimate, Estimate]], **more: Any) -> None:
    """Points with their intervals to both sides, joined by a line."""
    x, y = np.array(points, float).reshape(-1, 2, 3).transpose(1, 2, 0)  # each (3, n)
    bars = {"xerr": _margins(x), "yerr": _margins(y), "elinewidth": 1.2}
    ax.errorbar(x[0], y[0], **bars, **(stroke(method) | more))


def _margins(interval: np.ndarray) -> np.ndarray:
    """How far the ends are from the value, (2, n)."""
    value, low, high = interval
    return np.maximum([value - low, high - value], 0)


def quiet(ax: Axes, lines: Literal["x", "y"] = "y") -> None:
    """A pale grid behind everything."""
    ax.grid(axis=lines, color="#E6E6E6")
    ax.set_axisbelow(True)
    ax.tick_params(color=GREY)
