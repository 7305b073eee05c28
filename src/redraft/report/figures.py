"""Figures of noise, learning, re-drafting and molecules.

Each function returns a matplotlib `Figure` that belongs to no window: pyplot is never imported, and
a user's own settings are neither used nor changed. Colours are Okabe and Ito's, which colour-blind
readers can tell apart.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib import colormaps, font_manager, style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from redraft.terminal import Frames, times_uniform, visible
from redraft.tokenizers.base import EOS, PAD

if TYPE_CHECKING:
    from PIL.Image import Image

BLUE, VERMILLION, GREEN, ORANGE, PURPLE = "#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7"
INK, PALE = "#222222", "#D9D9D9"
STYLE = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "text.color": INK,
    "axes.labelcolor": INK,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.hashsalt": "redraft",  # the same figure is the same file
    "text.parse_math": False,  # a token may be a dollar sign
}
styled = style.context(["default", STYLE])

Row = Mapping[str, float]
Names = list[str] | tuple[str, ...]


@styled
def save(figure: Figure, path: str | Path) -> Path:
    """Written as SVG where the name ends so, else as PNG at 150 dots an inch."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix.lower() == ".svg":
        figure.savefig(path, format="svg", metadata={"Date": None})
    else:
        figure.savefig(path, format="png", dpi=150)
    return path


# ------------------------------------------------------------------ noise


@styled
def noise_maps(
    M: Any,
    tokens: Names,
    times: Sequence[int] | None = None,
    frequency: Any = None,
    largest: int = 24,
) -> Figure:
    """M_t relative to uniform noise, log2(M_t[i, j] (V' - 1)), at several t; M is (T, V, V).

    Shows the `largest` most frequent tokens, without frequencies those whose rows are furthest from
    uniform; tokens that are replaced by the same ones stand together. Q may stand for M.
    """
    T, V = len(M), len(tokens)
    times = sorted({1, (T + 1) // 2, T}) if times is None else list(times)
    with np.errstate(divide="ignore"):
        bits = np.log2(times_uniform(np.stack([np.asarray(M[t - 1]) for t in times])))
    shown = _shown_states(bits, frequency, largest)
    names = [_label(tokens[EOS + i]) for i in shown]
    bits = bits[:, shown][:, :, shown]  # (times, n, n)
    limit = _symmetric_limit(bits)

    side = min(max(0.2 * len(names), 2.2), 6.0)
    figure = Figure(figsize=(max(side * len(times) + 2.0, 6.0), side + 1.75), layout="compressed")
    axes = figure.subplots(1, len(times), squeeze=False, sharey=True)[0]
    images = [_heat_map(ax, values, names, limit) for ax, values in zip(axes, bits, strict=True)]
    for ax, t in zip(axes, times, strict=True):
        ax.set(title=f"t = {t} of {T}", xlabel="to")
    axes[0].set_ylabel("from")
    _ratio_bar(figure, images[-1], axes, limit, beyond=bool(np.nanmax(np.abs(bits)) > limit))
    kind = "most frequent" if frequency is not None else "least uniform"
    which = f"all {V - EOS}" if len(shown) == V - EOS else f"the {len(shown)} {kind} of {V - EOS}"
    figure.suptitle(
        f"What the noise puts in a token's place ({which} tokens)\n"
        "red: more often than uniform noise would; blue: less often",
        fontsize=11,
    )
    return figure


def _shown_states(bits: np.ndarray, frequency: Any, largest: int) -> np.ndarray:
    """Which valid states to show, in the order of a tree of similar rows and columns."""
    from scipy.cluster.hierarchy import leaves_list, linkage

    profile = np.nan_to_num(np.clip(bits, -6, 6)).mean(0)  # (V', V'), the diagonal as if uniform
    weight = np.abs(profile).mean(1) if frequency is None else np.asarray(frequency, float)[EOS:]
    chosen = np.sort(np.argsort(-weight, kind="stable")[:largest])
    if len(chosen) < 3:
        return chosen
    block = profile[np.ix_(chosen, chosen)]
    tree = linkage(np.hstack([block, block.T]), "average", optimal_ordering=True)
    return chosen[leaves_list(tree)]


def _symmetric_limit(bits: np.ndarray) -> int:
    """The end of the colour range: nearly all of what is shown lies within."""
    finite = np.abs(bits[np.isfinite(bits)])
    return int(np.clip(np.ceil(np.quantile(finite, 0.99)), 1, 6)) if finite.size else 1


def _heat_map(ax: Axes, values: np.ndarray, names: Names, limit: int) -> AxesImage:
    colours = colormaps["RdBu_r"].with_extremes(bad=PALE)  # the diagonal is NaN
    image = ax.imshow(values, cmap=colours, vmin=-limit, vmax=limit, interpolation="nearest")
    every = math.ceil(len(names) / 32)  # more labels than that would touch
    ticks = range(0, len(names), every)
    labels = [names[i] for i in ticks]
    ax.set_xticks(ticks, labels, fontsize=8)
    for text in ax.get_xticklabels():
        text.set_rotation(0 if len(text.get_text()) <= 2 else 90)
    ax.set_yticks(ticks, labels, fontsize=8)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return image


def _ratio_bar(
    figure: Figure, image: AxesImage, axes: np.ndarray, limit: int, beyond: bool
) -> None:
    """A colour bar whose ticks are ratios: 1/4x, 1x, 4x."""
    every = 1 if limit <= 3 else 2
    ticks = [k for k in range(-limit, limit + 1) if k % every == 0]
    bar = figure.colorbar(
        image, ax=list(axes), extend="both" if beyond else "neither", shrink=0.85, pad=0.02
    )
    bar.set_ticks(ticks, labels=[f"{2**k}x" if k >= 0 else f"1/{2**-k}x" for k in ticks])
    bar.set_label("times uniform")
    bar.outline.set_visible(False)  # pyright: ignore


def _label(token: str, width: int = 10) -> str:
    return _shortened(visible(token), width)


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


# ------------------------------------------------------------------ learning


class Panel(NamedTuple):
    key: str
    """The metric without which there is nothing to draw."""
    title: str
    draw: Callable[[Axes, Sequence[Row]], None]


@styled
def learning_curves(rows: Sequence[Row]) -> Figure:
    """Both players over time, from the rows of metrics.jsonl; a panel for whatever was logged."""
    panels = [p for p in PANELS if np.isfinite(_series(rows, p.key)[1]).any()]
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
        figure.text(0.5, 0.5, "no metrics were logged", ha="center", color="#888888")
    return figure


def _series(rows: Sequence[Row], key: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps and values of the rows that have this metric; NaN for what is not finite."""
    pairs = [(row["step"], row[key]) for row in rows if row.get(key) is not None]
    steps, values = np.array(pairs, dtype=float).reshape(-1, 2).T
    return steps, np.where(np.isfinite(values), values, np.nan)


def _smooth(values: np.ndarray) -> np.ndarray:
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


def _curve(
    ax: Axes, steps: np.ndarray, values: np.ndarray, colour: str, label: str | None = None
) -> None:
    """The raw curve, pale, and the smoothed one over it."""
    ax.plot(steps, values, color=colour, alpha=0.3, linewidth=0.8)
    ax.plot(steps, _smooth(values), color=colour, linewidth=1.8, label=label)


def _plain(key: str, colour: str) -> Callable[[Axes, Sequence[Row]], None]:
    """One curve, on a logarithmic scale where it falls a long way."""

    def draw(ax: Axes, rows: Sequence[Row]) -> None:
        steps, values = _series(rows, key)
        _curve(ax, steps, values, colour)
        if np.nanmin(values) > 0 and np.nanmax(values) > 8 * np.nanmin(values):
            ax.set_yscale("log")
            ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            ax.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
            ax.yaxis.set_minor_formatter(NullFormatter())

    return draw


def _reward(ax: Axes, rows: Sequence[Row]) -> None:
    steps, reward = _series(rows, "leader/reward")
    _curve(ax, steps, reward, VERMILLION, "mean of the probes")
    complete = [row for row in rows if row.get("leader/reward") is not None]
    steps, spread = _series(complete, "leader/reward_spread")
    if len(spread) == len(reward):
        middle, around = _smooth(reward), _smooth(spread)
        ax.fill_between(
            steps,
            middle - around,
            middle + around,
            color=ORANGE,
            alpha=0.25,
            linewidth=0,
            label="± spread between them",
        )
    ax.axhline(0, color="#888888", linewidth=0.8)


def _entropy(ax: Axes, rows: Sequence[Row]) -> None:
    """Mean and smallest row entropy, as shares of ln(V' - 1) where the share was logged."""
    has_share = np.isfinite(_series(rows, "leader/entropy_share")[1]).any()
    if has_share:
        rows = [row for row in rows if row.get("leader/entropy_share")]
    steps, average = _series(rows, "leader/entropy_mean")
    steps_low, lowest = _series(rows, "leader/entropy_min")
    if has_share:
        largest = np.nanmax(average / _series(rows, "leader/entropy_share")[1])
        average, lowest = average / largest, lowest / largest
        ax.yaxis.set_major_formatter(lambda y, _: f"{100 * y:g} %")
        ax.axhline(1, color="#888888", linewidth=0.8, linestyle=":")
    _curve(ax, steps, average, GREEN, "mean row")
    if len(lowest):
        _curve(ax, steps_low, lowest, PURPLE, "lowest row")
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


# ------------------------------------------------------------------ re-drafting

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
    texts = [["" if i == PAD else _label(tokens[i], 12) for i in ids] for ids in x]
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


# ------------------------------------------------------------------ molecules

CELL = (300, 240)  # pixels, of which the legend takes the lowest


def molecule_grid(smiles: Names, columns: int = 4, legends: Names | None = None) -> "Image":
    """Drawn molecules, row by row; a string that is no molecule is a frame around its text."""
    from PIL import Image

    width, height = CELL
    columns = max(min(columns, len(smiles)), 1)
    lines = max(math.ceil(len(smiles) / columns), 1)
    picture = Image.new("RGB", (columns * width, lines * height), "white")
    for n, text in enumerate(smiles):
        legend = None if legends is None else legends[n]
        line, column = divmod(n, columns)
        picture.paste(_molecule(text, legend), (column * width, line * height))
    return picture


def _molecule(smiles: str, legend: str | None) -> "Image":
    """One cell: a drawing, or the text of what cannot be drawn, with its legend below."""
    from PIL import Image, ImageDraw

    width, height = CELL
    cell = Image.new("RGB", CELL, "white")
    pen = ImageDraw.Draw(cell)
    below = 8 if legend is None else 28
    drawing = _drawing(smiles, (width - 16, height - below - 8))
    if drawing is not None:
        cell.paste(drawing, (8, 8))
    else:
        pen.rectangle((8, 8, width - 8, height - below), outline="#BBBBBB", width=2)
        text = "\n".join(_wrapped(smiles or "(empty)", 28, 8))
        pen.multiline_text(
            (width / 2, (height - below) / 2),
            text,
            fill="#777777",
            font=_font(14, mono=True),
            anchor="mm",
            align="center",
        )
    font = _font(14)
    legend = legend or ""
    room = int(len(legend) * (width - 12) / max(font.getlength(legend), width - 12))
    pen.text((width / 2, height - 14), _shortened(legend, room), INK, font, anchor="mm")
    return cell


def _drawing(smiles: str, size: tuple[int, int]) -> "Image | None":
    """RDKit's picture; None for what does not parse, or has no atoms."""
    import io

    from PIL import Image
    from rdkit import Chem, rdBase
    from rdkit.Chem.Draw import rdMolDraw2D

    with rdBase.BlockLogs():
        molecule = Chem.MolFromSmiles(smiles)
    if molecule is None or molecule.GetNumAtoms() == 0:
        return None
    canvas = rdMolDraw2D.MolDraw2DCairo(*size)
    options = canvas.drawOptions()
    options.fixedBondLength = 28  # pixels at most: a small molecule does not fill its cell
    options.padding = 0.06
    rdMolDraw2D.PrepareAndDrawMolecule(canvas, molecule)
    canvas.FinishDrawing()
    return Image.open(io.BytesIO(canvas.GetDrawingText())).convert("RGB")


def _wrapped(text: str, width: int, most: int) -> list[str]:
    """Lines of at most `width` characters; SMILES have no spaces to break at."""
    lines = [text[n : n + width] for n in range(0, len(text), width)]
    return lines if len(lines) <= most else [*lines[: most - 1], "…"]


def _font(size: int, mono: bool = False) -> Any:
    """The font that comes with matplotlib."""
    from PIL import ImageFont

    family = "DejaVu Sans Mono" if mono else "DejaVu Sans"
    return ImageFont.truetype(font_manager.findfont(family), size)
