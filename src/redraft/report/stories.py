"""Stories in figures, from files of results.

variety   how surprised the judge is, against how varied the words are
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from redraft.evaluation.statistics import Estimate
from redraft.report.comparisons import (
    HOLLOW,
    QUALITY,
    Result,
    canvas,
    levels,
    marks,
    ordered,
    quiet,
    stroke,
)
from redraft.report.learning import logarithmic
from redraft.report.style import GREY, INK, look, styled

CAPTIONS = {
    "variety": (
        "Quality against variety: a lower perplexity at the same entropy is better, a lower one "
        "with less entropy is mere sharpening; lines lead from plain samples, the large marks, to "
        "other ways to sample, and sets of different sizes have panels of their own, since the "
        "entropy of more stories is higher by their number alone; bars are 95 % intervals over "
        "stories."
    )
}
"""One sentence each: what to see."""


Point = tuple[Estimate, Estimate]
"""Entropy and perplexity."""


class Way(NamedTuple):
    """How stories are sampled."""

    label: str
    plain: int
    """The setting that is the plain way."""
    stroke: dict[str, Any]


SMALL, LARGE = 4, 9
WAYS = {
    "generation": Way("plain", 0, {"linestyle": "none", "markersize": LARGE}),
    "renewal": Way("more steps renewed", 0, {"linestyle": "-", "markersize": SMALL}),
    "temperature": Way(
        "lower temperatures", 100, {"linestyle": "--", "markersize": SMALL} | HOLLOW
    ),
}
"""By experiment."""
ANY: dict[str, Any] = {"color": GREY, "marker": "o"}
"""Of whatever method."""
REAL: dict[str, Any] = {"color": INK, "marker": "d", "markersize": LARGE, "linestyle": ":"} | HOLLOW


@styled
def variety(results: Sequence[Result]) -> Figure:
    """A panel for each size of a set: a large mark a run, and a line for each other way."""
    found = [result for result in ordered(results) if points(result["metrics"])]
    sizes = sorted({result["n"] for result in found}, reverse=True)
    real = real_points(found)
    figure = canvas(4.4)
    axes = figure.subplots(1, len(sizes), sharey=True, squeeze=False)[0]
    for ax, n in zip(axes, sizes, strict=True):
        if real:
            _, perplexity = real.get(n) or real[max(real)]
            ax.axhline(perplexity.value, color=GREY, linestyle=":")
        for result in found:
            if result["n"] == n:
                line(ax, result)
        marks(ax, "real", [real[n]] if n in real else [], **REAL)
        ax.set(title=f"{n:,} stories each", xlabel="entropy of all words, nats")
        logarithmic(ax, subs=(1, 1.5, 2, 3, 5, 7))
        quiet(ax)
    axes[0].set_ylabel(QUALITY["judge_perplexity"])
    figure.legend(handles=handles(found, bool(real)), loc="outside right center", frameon=False)
    return figure


def line(ax: Axes, result: Result) -> None:
    """By one way, and its plain setting large."""
    method, way, found = result["method"], WAYS[result["experiment"]], points(result["metrics"])
    marks(ax, method, list(found.values()), **way.stroke)
    marks(ax, method, [found[n] for n in found if n == way.plain], markersize=LARGE)


def points(metrics: Mapping[str, Any]) -> dict[int, Point]:
    """By setting, which is 0 where there is but one."""
    named = {name if "@" in name else f"{name}@0": own for name, own in metrics.items()}
    x, y = (levels({"metrics": named}, name) for name in ("unigram_entropy", "judge_perplexity"))
    return {n: (x[n], y[n]) for n in x if n in y}


def real_points(results: Sequence[Result]) -> dict[int, Point]:
    """Those of real stories, by how many these are."""
    scales = [result["scale"] for result in results if "scale" in result]
    return {own["n"]: point for own in scales for point in points(own["real"]).values()}


def handles(results: Sequence[Result], real: bool) -> list[Line2D]:
    """Methods, ways, and what is real."""
    there = {result["experiment"] for result in results}
    methods = {look(own["method"]).name: stroke(own["method"]) for own in reversed(results)}
    ways = {way.label: ANY | way.stroke for name, way in WAYS.items() if name in there}
    named = methods | ways | ({"real stories": REAL} if real else {})
    return [Line2D([], [], label=name, **own) for name, own in named.items()]
