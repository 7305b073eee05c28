"""Whether tokens that the denoiser holds alike are put in each other's place."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from redraft.experiments.noise import Kernel, among_seen
from redraft.report.noise_maps import power_of_two
from redraft.report.style import BLUE, GREY, styled


def pairs(kernel: Kernel, t: int) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and how many times as likely as under uniform noise, of all pairs i != j."""
    cosine, M = among_seen(kernel, t)
    off = ~np.eye(len(M), dtype=bool)
    return cosine[off], M[off] * (kernel.M.shape[-1] - 1)


@styled
def noise_scatter(kernel: Kernel, times: Sequence[int], told: Mapping[int, str]) -> Figure:
    """A dot a pair of tokens, a panel a time; `told` is the rank correlation at each of them."""
    figure = Figure(figsize=(3.3 * len(times) + 0.6, 3.2), layout="constrained")
    axes = figure.subplots(1, len(times), squeeze=False, sharex=True, sharey=True)[0]
    found = [pairs(kernel, t) for t in times]
    ratios = np.concatenate([ratio[ratio > 0] for _, ratio in found])
    low, high = np.log2([ratios.min(initial=0.5), ratios.max(initial=2)])  # an octave at least
    ticks = range(int(np.ceil(low)), int(high) + 1, max(int((high - low) / 6), 1))
    size = float(np.clip(3e4 / max(len(found[0][0]), 1), 2, 14))
    look = {"s": size, "alpha": 0.3, "linewidths": 0, "color": BLUE, "rasterized": True}
    for ax, t, (cosine, ratio) in zip(axes, times, found, strict=True):
        ax.scatter(cosine, np.log2(np.maximum(ratio, 2**low)), **look)
        ax.axhline(0, color=GREY, linewidth=0.8, linestyle=":")
        ax.set_title(f"t = {t}: Spearman {told[t]}" if t in told else f"t = {t}", fontsize=10)
        ax.set(xlabel="cosine of embeddings")
        ax.set_yticks(ticks, list(map(power_of_two, ticks)))
    axes[0].set_ylabel("transition, times uniform")
    return figure
