"""Playlists in figures, from files of results and from what is known of prepared tracks.

next_tracks   how often what comes next is told, by methods and by simpler ways
repair        how a playlist sounds before and after, and whether what stood there comes back
neighbours    tags that a track shares with its nearest, against chance
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from redraft.data import tracks
from redraft.data.playlists import RARE, Prepared
from redraft.data.tracks import Neighbours
from redraft.evaluation.playlists import CORRUPTIONS
from redraft.evaluation.statistics import Estimate
from redraft.report.comparisons import (
    HOLLOW,
    PERCENT,
    Result,
    canvas,
    exactly,
    marks,
    ordered,
    quiet,
)
from redraft.report.style import BLUE, GREEN, GREY, INK, look, styled
from redraft.report.tables import in_percent
from redraft.terminal import times

CAPTIONS = {
    "next-tracks": (
        "The last three tracks of unseen windows, told from those before them: full marks are "
        "single draws, as in the paper, hollow ones the vote of many, grey stars simpler ways; "
        "bars are 95 % intervals over groups of playlists."
    ),
    "playlist-repair": (
        "Unseen windows in which one track was put wrong and then drawn anew: above how smooth "
        "they are now, between what they were and what they had become, below how often the very "
        "track came back; bars are 95 % intervals over groups of playlists, and since all marks "
        "are of the same windows, they would move together."
    ),
    "neighbours": (
        "Tracks that have a tag in common with the nearest of another artist, among all and among "
        "those that are played as often; bars are 95 % intervals over tracks."
    ),
}
"""One sentence each: what to see."""

SIMPLE = {
    "popularity": "most played",
    "frequent": "most frequent so far",
    "markov": "Markov, first order",
    "neighbours": "item neighbours",
    "random": "random track",
}
"""Ways without a model, as results name them."""

Runs = Mapping[str, Sequence[Estimate]]
"""The runs of each method, or the one number of a simpler way."""


def runs_of(results: Sequence[Result], measure: str) -> dict[str, list[Estimate]]:
    """A measure of every method, a number a run; and of the simpler ways, which all runs share."""
    found: dict[str, list[Estimate]] = {}
    for name, metrics in results[0].get("baselines", {}).items():
        if measure in metrics:
            found[name] = [Estimate(**metrics[measure])]
    for result in ordered(results):
        if measure in result["metrics"]:
            own = Estimate(**result["metrics"][measure])
            found.setdefault(result["method"], []).append(own)
    return found


def best_last(runs: Runs) -> list[str]:
    """By the mean over runs."""
    return sorted(runs, key=lambda method: np.mean([run.value for run in runs[method]]))


# ------------------------------------------------------------------ next tracks

MEASURES = {"hitrate@3": "any of three is right (HitRate@3)", "ndcg@3": "NDCG@3"}


@styled
def next_tracks(results: Sequence[Result]) -> Figure:
    """A row a method, the best above: its runs by one draw, and by the vote of many."""
    methods = best_last(runs_of(results, "hitrate@3"))
    figure = canvas(0.38 * len(methods) + 1.4)
    axes = figure.subplots(1, len(MEASURES), sharey=True)
    for ax, (measure, label) in zip(axes, MEASURES.items(), strict=True):
        _rows(ax, methods, runs_of(results, f"{measure}_combined"), **HOLLOW)
        _rows(ax, methods, runs_of(results, measure))
        ax.set_xlim(left=min(ax.get_xlim()[0], 0))
        ax.set_xlabel(label)
    draws = max(result["draws"] for result in results)
    _legend(figure, _mark("one draw", INK), _mark(f"the vote of {draws} draws", INK, **HOLLOW))
    return figure


# ------------------------------------------------------------------ repair

STATES: dict[str, dict[str, Any]] = {
    "original": {"color": GREEN, "linewidth": 1.6},
    "corrupted": {"color": GREY, "linewidth": 1.6, "linestyle": "--"},
}


@styled
def repair(results: Sequence[Result]) -> Figure:
    """A column a corruption: above how the repaired playlist sounds, below what came back."""
    methods = best_last(runs_of(results, f"exact_recovery@{next(iter(CORRUPTIONS))}"))
    figure = canvas(0.6 * len(methods) + 2.2)
    above, below = figure.subplots(2, len(CORRUPTIONS), sharey=True, sharex="row")
    for sound, back, corruption in zip(above, below, CORRUPTIONS, strict=True):
        sound.set_title(corruption)
        for state, stroke in STATES.items():
            runs = runs_of(results, f"smoothness_{state}@{corruption}")
            sound.axvline(next(iter(runs.values()))[0].value, **stroke)
        _rows(sound, methods, runs_of(results, f"smoothness_repaired@{corruption}"))
        _rows(back, methods, runs_of(results, f"exact_recovery@{corruption}"))
        sound.set_xlabel("smoothness, repaired")
        back.set_xlabel("came back exactly")
        back.xaxis.set_major_formatter(PERCENT)
    for ax in (above[0], below[0]):
        ax.locator_params(axis="x", nbins=4, steps=(1, 2, 5, 10))
    _legend(figure, *(Line2D([], [], label=state, **stroke) for state, stroke in STATES.items()))
    return figure


# ------------------------------------------------------------------ neighbours

BANDS = ((1, RARE - 1), (RARE, 19), (20, 99), (100, None))
"""Plays to learn from, from and to."""


def sanity(prepared: Prepared) -> dict[str, Neighbours]:
    """What preparing has found of all tracks, and the same among those that are played as often."""
    catalogue, (rows, source) = prepared.catalogue(), prepared.embeddings()
    plays = np.bincount(np.concatenate(prepared.sequences("train")), minlength=len(source))
    known = prepared.counts["neighbours"]
    found = {"all tracks": known and Neighbours(**known)}
    for low, high in BANDS:
        band = (source == 0) & (plays >= low) & (plays <= (high or plays.max()))
        name = f"{low} to {high} plays" if high else f"{low} plays or more"
        found[name] = tracks.neighbours(rows, catalogue, band)
    return {name: own for name, own in found.items() if own}


@styled
def neighbours(found: Mapping[str, Neighbours]) -> Figure:
    """A row for each kind of tracks: how many share a tag, and how many would by chance."""
    figure = canvas(0.4 * len(found) + 1.2)
    ax = figure.subplots()
    names = list(found)[::-1]
    for row, own in enumerate(found[name] for name in names):
        share = Estimate(own.share, own.low, own.high)
        marks(ax, "nearest", [(share, exactly(row))], color=BLUE, marker="o", capsize=4)
        ax.plot(own.chance, row, color=GREY, marker="o", **HOLLOW)
        text = f"{in_percent(share.to_dict())}, {times(own.share / own.chance)} chance"
        ax.text(1.02, row, text, transform=ax.get_yaxis_transform(), va="center")
    ax.set_yticks(range(len(names)), names)
    ax.set(xlim=(0, 1), ylim=(-0.6, len(found) - 0.4), xlabel="tracks with a tag in common")
    ax.xaxis.set_major_formatter(PERCENT)
    quiet(ax, "x")
    _legend(
        figure,
        _mark("with the nearest of another artist", BLUE),
        _mark("with any of another artist", GREY, **HOLLOW),
    )
    return figure


# ------------------------------------------------------------------ what they share


def _rows(ax: Axes, methods: Sequence[str], runs: Runs, **more: Any) -> None:
    """A named row a method, its runs below each other."""
    for row, method in enumerate(methods):
        own = runs.get(method, ())
        for k, run in enumerate(own):
            height = row + 0.2 * ((len(own) - 1) / 2 - k)
            marks(ax, method, [(run, exactly(height))], markersize=5, **more)
    ax.set_yticks(range(len(methods)), [SIMPLE.get(m) or look(m).name for m in methods])
    ax.set_ylim(-0.6, len(methods) - 0.4)
    quiet(ax, "x")


def _mark(label: str, colour: str, **more: Any) -> Line2D:
    return Line2D([], [], label=label, color=colour, marker="o", linestyle="none", **more)


def _legend(figure: Figure, *handles: Line2D) -> None:
    figure.legend(handles=list(handles), loc="outside upper left", frameon=False, ncols=2)
