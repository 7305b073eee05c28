"""What noise does to tokens."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from redraft.terminal.console import new_console, takes_blocks
from redraft.terminal.numbers import times
from redraft.tokenizers.base import EOS, visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


def times_uniform(M: Any) -> np.ndarray:
    """How many times as likely as under uniform noise, (..., V', V') from M (..., V, V).

    PAD and MASK are left out. The diagonal is NaN: what is not replaced does not count, so that
    Q_t = alpha_t I + (1 - alpha_t) M_t gives the same.
    """
    ratio = np.array(M, dtype=np.float64)[..., EOS:, EOS:]
    states = np.arange(ratio.shape[-1])
    ratio[..., states, states] = 0
    mass = np.maximum(ratio.sum(-1, keepdims=True), np.finfo(float).tiny)
    ratio = ratio / mass * (len(states) - 1)
    ratio[..., states, states] = np.nan
    return ratio


def show_noise(
    M_t: Any,
    tokens: Sequence[str],
    frequency: Any,
    top: int = 5,
    rows: int = 8,
    console: "Console | None" = None,
) -> None:
    """What the most frequent tokens are replaced by, and how many times as often as by chance.

    M_t is (V, V), frequency (V,) in any unit.
    """
    from rich.text import Text

    console = console or new_console()
    ratio = times_uniform(M_t)  # (V', V')
    share = np.asarray(frequency, dtype=np.float64)[EOS:]
    share = share / max(share.sum(), np.finfo(float).tiny)
    names = [visible(token) for token in tokens[EOS:]]
    frequent = np.argsort(-share, kind="stable")[:rows]
    ranked = np.argsort(-np.nan_to_num(ratio[frequent], nan=-1), kind="stable")
    columns = [_column([names[i] for i in frequent])]
    columns.append([Text(f"{100 * share[i]:4.1f} % ->", "dim") for i in frequent])
    for js in ranked.T[: min(top, len(names) - 1)]:  # js are the k-th most likely of each token
        ratios = [float(ratio[i, j]) for i, j in zip(frequent, js, strict=True)]
        columns.append(
            _column([names[j] for j in js], ratios, ascii_only=not takes_blocks(console))
        )
    if console.is_terminal:  # as many as fit, one at least
        ends = np.cumsum([column[0].cell_len + 2 for column in columns]) - 2
        columns = columns[: max(int(np.searchsorted(ends, console.width, side="right")), 3)]
    console.print(Text("replaced by, and how many times as often as under uniform noise", "dim"))
    for row in zip(*columns, strict=True):
        console.print(Text("  ").join(row), soft_wrap=True)


def _column(
    names: Sequence[str], ratios: Sequence[float] | None = None, ascii_only: bool = False
) -> "list[Text]":
    """Tokens in a column of equal width, each with its ratio and a bar on a logarithmic scale."""
    from rich.cells import cell_len, set_cell_size
    from rich.text import Text

    width = min(max(map(cell_len, names)), 12)
    texts = [Text(set_cell_size(name, width), "bold") for name in names]
    if ratios is not None:
        room = max(len(times(ratio)) for ratio in ratios)
        for text, ratio in zip(texts, ratios, strict=True):
            text.append(f" {times(ratio):>{room}} ", "not bold")
            text.append(_bar(math.log2(max(ratio, 1)) / 4, ascii_only=ascii_only), "not bold cyan")
    return texts


def _bar(share: float, width: int = 3, ascii_only: bool = False) -> str:
    """A horizontal bar of at most `width` characters, in eighths of one.

    >>> _bar(0.5), _bar(1.0, ascii_only=True)
    ('█▌ ', '###')
    """
    eighths = round(8 * width * min(max(share, 0.0), 1.0))
    if ascii_only:
        return ("#" * round(eighths / 8)).ljust(width)
    return ("█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8]).rstrip().ljust(width)
