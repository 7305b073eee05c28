"""Numbers, times and curves in a few characters."""

import math
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass


def number(value: float) -> str:
    """Three digits or more; `nan` and `inf` as they are.

    >>> number(1.23456), number(0.0001236), number(float("nan"))
    ('1.235', '0.000124', 'nan')
    """
    return f"{value:.3f}" if 0.1 <= abs(value) < 1000 else f"{value:.3g}"


def clock(seconds: float | None) -> str:
    """Hours, minutes and seconds.

    >>> clock(3725), clock(None)
    ('1:02:05', '-:--:--')
    """
    if seconds is None or not math.isfinite(seconds):
        return "-:--:--"
    minutes, s = divmod(round(max(seconds, 0)), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{s:02}"


def times(ratio: float) -> str:
    """How many times as often, in two digits.

    >>> times(6.13), times(0.25), times(41.7)
    ('6.1x', '0.25x', '42x')
    """
    return f"{ratio:.0f}x" if ratio >= 9.95 else f"{ratio:.1f}x" if ratio >= 1 else f"{ratio:.2g}x"


def mean(values: Sequence[float]) -> float:
    """The mean of the finite ones; NaN where there is none."""
    finite = [v for v in values if math.isfinite(v)]
    return sum(finite) / len(finite) if finite else math.nan


def sparkline(values: Sequence[float], width: int = 20, log: bool = False) -> str:
    """A curve as a line of blocks, the whole of it in at most `width` of them; gaps for NaN.

    >>> sparkline([0, 1, 2, 3, float("nan"), 7])
    '▁▂▃▄ █'
    """
    n = min(width, len(values))
    y = [mean(values[len(values) * k // n : len(values) * (k + 1) // n]) for k in range(n)]
    if log and all(v > 0 for v in y if math.isfinite(v)):
        y = [math.log(v) for v in y]
    finite = [v for v in y if math.isfinite(v)]
    low, span = min(finite, default=0.0), max(finite, default=0.0) - min(finite, default=0.0)
    blocks = "▁▂▃▄▅▆▇█"
    return "".join(
        blocks[round(7 * (v - low) / span) if span > 0 else 0] if math.isfinite(v) else " "
        for v in y
    )


class Curve:
    """A metric since the start, in bounded memory: a full curve merges its neighbours."""

    def __init__(self, size: int = 256):
        self.size, self.stride = size, 1
        self.values: list[float] = []
        self.pending: list[float] = []
        self.last = math.nan
        self.smooth = math.nan

    def add(self, value: float, decay: float = 0.9) -> None:
        self.last = value
        if math.isfinite(value):
            known = math.isfinite(self.smooth)
            self.smooth = decay * self.smooth + (1 - decay) * value if known else value
        self.pending.append(value)
        if len(self.pending) < self.stride:
            return
        self.values.append(mean(self.pending))
        self.pending = []
        if len(self.values) >= self.size:
            pairs = zip_longest(self.values[::2], self.values[1::2], fillvalue=math.nan)
            self.values = [mean(pair) for pair in pairs]
            self.stride *= 2
