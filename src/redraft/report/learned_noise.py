"""The learned noise in a page: maps that answer to a pointer, embeddings, collapse."""

import json
import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from redraft.experiments.noise import Kernel, row_entropies, times_of
from redraft.report import paper
from redraft.report.markup import Album, Html, joined, slug, table, tag
from redraft.report.noise_maps import noise_maps, shown_part
from redraft.report.noise_scatter import noise_scatter
from redraft.report.numbers import measured
from redraft.report.runs import Reported, Told
from redraft.report.style import token_name
from redraft.tokenizers.base import EOS

MAPS = (
    "{name}: what the noise puts in a token's place, relative to uniform noise. Red cells are "
    "substitutions that were learned, blue ones are avoided; hover over a cell, or touch it, for "
    "its probability."
)
SCATTER = (
    "{name}: a dot a pair of tokens that occur in the data. Where dots rise to the right, the "
    "noise prefers what the denoiser holds alike; the dotted line is uniform noise."
)
PAPER = " The paper has a Spearman of {:.2f}, at a t that it does not say."
COLLAPSE = (
    "An entropy near 0, or a probability near 1, is noise that has collapsed: a token with a fixed "
    "partner, which teaches nothing. Uniform noise has entropy {largest:.2f} nats, and {least:.2g} "
    "for each partner."
)


def learned_noise(told: Told) -> Html:
    known = [(run, run.kernel) for run in told.runs if run.kernel is not None]
    parts = (
        joined(
            [
                tag("h3", run.name),
                maps(told.album, run.name, kernel),
                scatter(told.album, run, kernel),
                collapse(run, kernel),
            ]
        )
        for run, kernel in known
    )
    return joined([measured(told, "noise"), *parts])


def maps(album: Album, name: str, kernel: Kernel) -> Html:
    """What the page's script tells of a cell stands in `data-noise`."""
    T = len(kernel)
    times = sorted({1, max(T // 4, 1), max(T // 2, 1), T})
    figure = noise_maps(kernel, kernel.tokens, times, kernel.counts, columns=2)
    figure.draw_without_rendering()  # so that every map is where it will be
    part = shown_part(kernel, times, kernel.counts)
    known = {
        "names": [token_name(kernel.tokens[EOS + i]) for i in part.states],
        "times": times,
        "ratios": [[[short(x) for x in row] for row in own] for own in part.ratios],
        "uniform": 1 / (part.valid - 1),
    }
    return album.add(
        f"noise-{slug(name)}",
        figure,
        MAPS.format(name=name),
        over=joined(cells(figure, ax) for ax in figure.axes if ax.images),
        data_noise=json.dumps(known, separators=(",", ":")),
    )


def short(ratio: float) -> float | None:
    """Three digits; None on the diagonal."""
    return None if math.isnan(ratio) else float(f"{ratio:.3g}")


def cells(figure: Figure, ax: Axes) -> Html:
    """Where a map lies in its drawing, in points from the upper left corner, and a mark for it."""
    width, height = 72 * figure.get_size_inches()
    left, bottom, wide, high = ax.get_position().bounds
    numbers = (left * width, (1 - bottom - high) * height, wide * width, high * height)
    x, y, w, h = (f"{number:.2f}" for number in numbers)
    place = tag("rect", class_="cells", x=x, y=y, width=w, height=h)
    return joined([place, tag("rect", class_="mark", width=0, height=0)])


def scatter(album: Album, run: Reported, kernel: Kernel) -> Html:
    metrics, every = run.results["noise"]["metrics"], times_of(len(kernel))
    times = sorted({every[0], every[len(every) // 2], every[-1]})
    known = {t: metrics.get(f"spearman@{t}") for t in times}
    ranks = {t: f"{metric['value']:.2f}" for t, metric in known.items() if metric is not None}
    theirs = paper.beside(run.results["noise"]).get("spearman")
    beside = "" if theirs is None else PAPER.format(theirs)
    caption = SCATTER.format(name=run.name) + beside
    return album.add(f"scatter-{slug(run.name)}", noise_scatter(kernel, times, ranks), caption)


def collapse(run: Reported, kernel: Kernel) -> Html:
    """The most frequent tokens: their share, their row entropies, their likeliest partners."""
    names = [kernel.tokens[EOS + i] for i in kernel.valid]
    entropies = dict(zip(names, row_entropies(kernel.M[0]), strict=True))
    rows = [
        [
            tag("code", token_name(row["token"])),
            f"{100 * row['share']:.1f} %",
            f"{entropies[row['token']]:.3f}",
            *(joined([tag("code", token_name(to)), f" {p:.3f}"]) for to, p in row["becomes"]),
        ]
        for row in run.results["noise"]["collapse"]
    ]
    others = kernel.M.shape[-1] - 1
    note = COLLAPSE.format(largest=math.log(others), least=1 / others)
    partners = ["becomes", *["or"] * (max(map(len, rows)) - 4)]
    head = ["token", "share of data", "row entropy", *partners]
    return table(head, rows, f"{run.name}: collapse, at t = 1.", note)
