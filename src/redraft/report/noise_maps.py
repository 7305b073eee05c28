"""What the noise puts in a token's place, as maps."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from redraft.report.style import PALE, Names, styled, token_name
from redraft.terminal import times_uniform
from redraft.tokenizers.base import EOS


class Shown(NamedTuple):
    """The part of a kernel that maps show."""

    times: list[int]
    states: np.ndarray
    """(n,) valid states, as numbers from 0 at EOS."""
    ratios: np.ndarray
    """(times, n, n) how many times as likely as under uniform noise; NaN on the diagonal."""
    valid: int
    """V', of all."""

    @property
    def bits(self) -> np.ndarray:
        return in_bits(self.ratios)


def shown_part(
    M: Any, times: Sequence[int] | None = None, frequency: Any = None, largest: int = 24
) -> Shown:
    """The `largest` most frequent tokens, without frequencies those that are furthest from uniform.

    Tokens that are replaced by the same ones stand together.
    """
    T = len(M)
    times = sorted({1, (T + 1) // 2, T}) if times is None else list(times)
    ratios = times_uniform(np.stack([np.asarray(M[t - 1]) for t in times]))
    states = shown_states(in_bits(ratios), frequency, largest)
    return Shown(times, states, ratios[:, states][:, :, states], ratios.shape[-1])


@styled
def noise_maps(
    M: Any,
    tokens: Names,
    times: Sequence[int] | None = None,
    frequency: Any = None,
    largest: int = 24,
    columns: int | None = None,
) -> Figure:
    """M_t relative to uniform noise, log2(M_t[i, j] (V' - 1)), at several t; M is (T, V, V).

    Shows what `shown_part` chooses, in as many `columns`, else in one line. Q may stand for M.
    """
    part = shown_part(M, times, frequency, largest)
    names = [token_name(tokens[EOS + i]) for i in part.states]
    bits, limit = part.bits, _symmetric_limit(part.bits)
    columns = min(columns or len(bits), len(bits))
    lines = math.ceil(len(bits) / columns)

    side = min(max(0.2 * len(names), 2.2), 6.0)
    size = max(side * columns + 2.0, 6.0), (side + 0.75) * lines + 1.0
    figure = Figure(figsize=size, layout="compressed")
    axes = figure.subplots(lines, columns, squeeze=False, sharey=True)
    for ax in axes.flat[len(bits) :]:
        ax.set_axis_off()
    shown = axes.flat[: len(bits)]
    images = [_heat_map(ax, own, names, limit) for ax, own in zip(shown, bits, strict=True)]
    for ax, t in zip(shown, part.times, strict=True):
        ax.set(title=f"t = {t} of {len(M)}", xlabel="to")
    for ax in axes[:, 0]:
        ax.set_ylabel("from")
    _ratio_bar(
        figure, images[-1], axes.ravel(), limit, beyond=bool(np.nanmax(np.abs(bits)) > limit)
    )
    kind = "most frequent" if frequency is not None else "least uniform"
    whole = len(names) == part.valid
    which = f"all {part.valid}" if whole else f"the {len(names)} {kind} of {part.valid}"
    figure.suptitle(
        f"What the noise puts in a token's place ({which} tokens)\n"
        "red: more often than uniform noise would; blue: less often",
        fontsize=11,
    )
    return figure


def in_bits(ratios: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log2(ratios)


def shown_states(bits: np.ndarray, frequency: Any, largest: int) -> np.ndarray:
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


def power_of_two(k: int) -> str:
    """
    >>> power_of_two(3), power_of_two(-2)
    ('8x', '1/4x')
    """
    return f"{2**k}x" if k >= 0 else f"1/{2**-k}x"


def _ratio_bar(
    figure: Figure, image: AxesImage, axes: np.ndarray, limit: int, beyond: bool
) -> None:
    """A colour bar whose ticks are ratios: 1/4x, 1x, 4x."""
    every = 1 if limit <= 3 else 2
    ticks = [k for k in range(-limit, limit + 1) if k % every == 0]
    bar = figure.colorbar(
        image, ax=list(axes), extend="both" if beyond else "neither", shrink=0.85, pad=0.02
    )
    bar.set_ticks(ticks, labels=list(map(power_of_two, ticks)))
    bar.set_label("times uniform")
    bar.outline.set_visible(False)  # pyright: ignore
