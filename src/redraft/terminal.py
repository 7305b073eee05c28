"""What a terminal shows: how training goes, how a sequence is re-drafted, what noise does.

On a terminal this is live and in colour. Anywhere else (a pipe, a file, a batch job) it is plain
lines without control codes, in which curly brackets stand for colour.
"""

import math
import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from difflib import SequenceMatcher
from itertools import takewhile, zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from redraft import wording
from redraft.tokenizers.base import EOS, MASK, PAD, Tokenizer

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

    from redraft.likelihood import Alternative

Frames = Sequence[tuple[int, Sequence[int]]]
"""A sequence while it is being re-drafted: pairs of a time t and ids."""

SPACE = "␣"
"""How tables of tokens write a space."""
CHANGED, CORRECTED, WRONG = "bold underline magenta", "bold underline green", "red"
REMOVED = "strike red"


# ------------------------------------------------------------------ numbers and curves


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


# ------------------------------------------------------------------ training


class TrainingDisplay:
    """Both players while they learn, live on a terminal; elsewhere a line every tenth of the run.

    >>> with TrainingDisplay(total_steps=1000, total_seconds=None, method="vsdd") as display:
    ...     display.update(100, 0.1, {"loss": 2.0}, rate=50.0)
    vsdd   10 %  step 100/1,000  50 steps/s  0:00:18 left  loss 2.000  smoothed 2.000
    vsdd: trained for 100 steps in 0:00:00 (loss 2.000)
    """

    def __init__(
        self,
        total_steps: int | None,
        total_seconds: float | None,
        method: str,
        console: "Console | None" = None,
    ):
        self.total_steps, self.total_seconds, self.method = total_steps, total_seconds, method
        self.console = console or new_console()
        self.curves: dict[str, Curve] = {}
        self.step, self.progress, self.rate = 0, 0.0, math.nan
        self.next_line = 0.0
        self.live = None

    def __enter__(self) -> Self:
        self.started = time.monotonic()
        if self.console.is_interactive and self.console.file.isatty():
            from rich.live import Live

            self.live = Live(
                get_renderable=self.view,
                console=self.console,
                refresh_per_second=4,
                transient=True,
            )
            self.live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.live is not None:
            self.live.stop()
        if kind is None:
            self._print(self._outcome("trained for"))
        elif self.step:  # else it never began
            with suppress(BrokenPipeError):
                self._print(self._outcome("stopped after"))

    def _outcome(self, what: str) -> str:
        words = [f"{self.method}: {what} {self.step:,} steps"]
        words += [f"in {clock(time.monotonic() - self.started)}"]
        if "loss" in self.curves:
            words += [f"(loss {number(self.curves['loss'].smooth)})"]
        return " ".join(words)

    def update(self, step: int, progress: float, metrics: dict[str, float], rate: float) -> None:
        """After `step` steps, a share `progress` of the run, at `rate` steps a second.

        Metrics that are not given keep their last value: the leader moves seldom.
        """
        self.step, self.rate = step, rate
        self.progress = min(max(progress, 0.0), 1.0) if math.isfinite(progress) else self.progress
        for name, value in metrics.items():
            self.curves.setdefault(name, Curve()).add(float(value))
        if self.live is None and self.progress >= self.next_line:
            self.next_line = math.floor(10 * self.progress + 1 + 1e-9) / 10
            self._print(self.line())

    def remaining(self) -> float | None:
        """Seconds to go, where that can be told."""
        if self.total_seconds is not None:
            return self.total_seconds * (1 - self.progress)
        if self.total_steps is not None and self.rate > 0:
            return (self.total_steps - self.step) / self.rate
        return None

    def line(self) -> str:
        """All there is to say, in one line of ASCII."""
        parts = [f"{self.method}  {100 * self.progress:3.0f} %", *self._pace()]
        parts += [f"{name} {value}" for name, value in self._denoiser()]
        parts += [f"{name} {value}" for name, value in self._leader()]
        return _ascii("  ".join(parts))

    def view(self) -> "RenderableType":
        """Progress above, the players side by side below."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        head = Table.grid(padding=(0, 2), expand=True)
        head.add_column(no_wrap=True)
        head.add_column(ratio=1)
        head.add_column(no_wrap=True, justify="right")
        bar = ProgressBar(total=1.0, completed=self.progress)
        head.add_row(f"[bold]{self.method}[/]", bar, f"{100 * self.progress:.0f} %")
        players = Table.grid(expand=True)
        players.add_column(ratio=1)
        panels = [self._panel("denoiser", self._denoiser(), "loss", "cyan", log=True)]
        if self._leader():
            players.add_column(ratio=1)
            panels += [self._panel("leader", self._leader(), "leader/reward", "magenta")]
        players.add_row(*panels)
        return Group(head, Text("  ".join(self._pace()), "dim"), players)

    def _panel(
        self, title: str, facts: list[tuple[str, str]], curve: str, colour: str, log: bool = False
    ) -> "RenderableType":
        from rich.panel import Panel
        from rich.table import Table

        blocks = takes_blocks(self.console)
        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim", no_wrap=True)
        table.add_column(style="bold", no_wrap=True)
        for name, value in facts:
            table.add_row(name, value if blocks else _ascii(value))
        if curve in self.curves and blocks:
            line = sparkline(self.curves[curve].values, log=log)
            table.add_row(f"{curve.rpartition('/')[2]} so far", f"[not bold {colour}]{line}[/]")
        height = 7 if self._leader() else None  # both alike
        return Panel(table, title=title, title_align="left", border_style=colour, height=height)

    def _pace(self) -> list[str]:
        steps = f"step {self.step:,}" + (f"/{self.total_steps:,}" if self.total_steps else "")
        speed = [f"{self.rate:.3g} steps/s"] if math.isfinite(self.rate) else []
        return [steps, *speed, f"{clock(self.remaining())} left"]

    def _denoiser(self) -> list[tuple[str, str]]:
        if "loss" not in self.curves:
            return []
        loss = self.curves["loss"]
        return [("loss", number(loss.last)), ("smoothed", number(loss.smooth))]

    def _leader(self) -> list[tuple[str, str]]:
        """Its metrics, as far as there are any; the reward with its spread between probes."""
        known = {
            name.removeprefix("leader/"): curve.last
            for name, curve in self.curves.items()
            if name.startswith("leader/")
        }
        spread = f" ± {number(known['reward_spread'])}" if "reward_spread" in known else ""
        written = {
            "reward": ("reward", lambda v: number(v) + spread),
            "reference_loss": ("L_ref", number),
            "entropy_share": ("row entropy", lambda v: f"{100 * v:.3g} % of uniform's"),
            "largest_transition": ("top transition", lambda v: f"{v:.2g}"),
        }
        return [(name, write(known[key])) for key, (name, write) in written.items() if key in known]

    def _print(self, line: str) -> None:
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)


# ------------------------------------------------------------------ sequences


class Piece(NamedTuple):
    """A token in a line, and how it is marked there."""

    token: str
    style: str = ""
    sign: str | None = None
    """Without colour `{N}` for the sign "" and `{+N}` for "+"; None leaves the token bare."""


def show_revision(
    frames: Frames,
    tokenizer: Tokenizer,
    clean: Sequence[int] | None = None,
    console: "Console | None" = None,
) -> None:
    """One sequence being re-drafted, a line a step: `t=25  C C ( = O ) ...`, with changes marked.

    Changed tokens are bold, and green where they are now what they are in `clean`; those that
    still differ from it are red. The first frame is compared with `clean`.
    """
    console = console or new_console()
    plain = console.color_system is None
    lines: list[tuple[str, list[Piece]]] = []
    if clean is not None:
        lines.append(("clean", [Piece(tokenizer.tokens[i]) for i in _shown(clean)]))
    before = clean
    for t, ids in frames:
        lines.append((f"t={t}", _redrafted(ids, before, clean, tokenizer.tokens)))
        before = ids
    width = max((len(label) for label, _ in lines), default=0) + 2
    for label, pieces in lines:
        _print_hanging(console, label.ljust(width), _join(pieces, tokenizer.tokens, plain))


def diff(
    before_ids: Sequence[int], after_ids: Sequence[int], tokens: Sequence[str], plain: bool = False
) -> "Text":
    """What came of `before`: replaced and inserted tokens bold, those left out struck through.

    `plain` writes them as {N}, {+N} and {-N}, for output without colour.

    >>> tokens = ["[PAD]", "[MASK]", "[EOS]", "C", "N", "O"]
    >>> print(diff([3, 3, 4], [3, 5, 4], tokens, plain=True))
    C {O} N
    >>> print(diff([3, 3, 4], [3, 4], tokens, plain=True))
    {-C} C N
    """
    return _join(_aligned(_shown(before_ids), _shown(after_ids), tokens), tokens, plain)


def show_alternatives(
    found: "Sequence[Alternative]", template: Sequence[int], tokenizer: Tokenizer
) -> None:
    """Ways to fill the masks of a template: how likely each is a token, how often it was drawn."""
    console, places = new_console(), [n for n, i in enumerate(template) if i == MASK]
    often = any(one.drawn > 1 for one in found)
    for one in found:
        label = f"{100 * one.likelihood:3.0f} %  " + (f"{one.drawn:2d} x  " if often else "")
        ids = list(takewhile(lambda i: i != EOS, one.ids))
        if isinstance(one.text, str):
            parts = wording.filled(wording.pieces(tokenizer, ids), places)
        else:
            parts = [("same", " ".join(map(str, one.text)))]
        _print_hanging(console, label, marked(parts, console.color_system is None))


def show_changes(before: str, after: str, tokenizer: Tokenizer) -> None:
    """What has changed in a text: word by word, or, where it has none, in its tokens."""
    from rich.text import Text

    console = new_console()
    both = [wording.pieces(tokenizer, tokenizer.ids(text)) for text in (before, after)]
    running = any(piece.startswith(" ") for said in both for piece in said)
    parts = wording.compared(*(wording.spoken(said) if running else said for said in both))
    changes = marked(parts, console.color_system is None)
    line = changes if running else Text.assemble(Text(after, "bold"), "   ", changes)
    console.print(line, soft_wrap=True)


def marked(parts: Iterable[wording.Part], plain: bool = False) -> "Text":
    """New parts bold, those that are gone struck through; `plain` writes {new} and {-gone}.

    >>> print(marked([("same", "Tom"), ("gone", " ran"), ("new", " sat")], plain=True))
    Tom {-ran} {sat}
    """
    from rich.text import Text

    styles, signs = {"new": CORRECTED, "gone": REMOVED}, {"new": "", "gone": "-"}
    text = Text()
    for kind, piece in parts:
        words = piece.lstrip(" ")
        text.append(" " * (len(piece) - len(words)))
        if plain and kind in signs:
            text.append(f"{{{signs[kind]}{words}}}")
        else:
            text.append(words, styles.get(kind, ""))
    return text


def _redrafted(
    ids: Sequence[int],
    before: Sequence[int] | None,
    clean: Sequence[int] | None,
    tokens: Sequence[str],
) -> list[Piece]:
    """One frame, marked against the frame before it and against the clean sequence."""
    pieces = []
    others = [() if x is None else x for x in (before, clean)]  # arrays have no truth value
    for i, old, truth in zip_longest(_shown(ids), *others):
        if i is None:
            break
        right = clean is not None and i == truth
        if before is not None and i != old:
            pieces.append(Piece(tokens[i], CORRECTED if right else CHANGED, ""))
        else:
            pieces.append(Piece(tokens[i], "" if right or clean is None else WRONG))
    return pieces


def _aligned(before: list[int], after: list[int], tokens: Sequence[str]) -> list[Piece]:
    """Position by position where the length was kept, else by the longest common runs."""
    if len(before) == len(after):
        return [
            Piece(tokens[new]) if old == new else Piece(tokens[new], CHANGED, "")
            for old, new in zip(before, after, strict=True)
        ]
    pieces = []
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for action, b, b_end, a, a_end in matcher.get_opcodes():
        if action == "equal":
            pieces += [Piece(tokens[i]) for i in after[a:a_end]]
            continue
        replaced = min(b_end - b, a_end - a)
        pieces += [Piece(tokens[i], REMOVED, "-") for i in before[b + replaced : b_end]]
        pieces += [Piece(tokens[i], CHANGED, "") for i in after[a : a + replaced]]
        pieces += [Piece(tokens[i], CHANGED, "+") for i in after[a + replaced : a_end]]
    return pieces


def _shown(ids: Sequence[int]) -> list[int]:
    """The ids without padding."""
    return [i for i in map(int, ids) if i != PAD]


def _join(pieces: Sequence[Piece], tokens: Sequence[str], plain: bool) -> "Text":
    """A line of tokens; tokens of running text carry their own spaces, others are set apart."""
    from rich.text import Text

    running = any(token.startswith(SPACE) for token in tokens)
    text = Text()
    for n, (token, style, sign) in enumerate(pieces):
        word = visible(token)
        if running and word.startswith(SPACE):
            text.append(" ")
            word = word[1:].replace(SPACE, " ") or SPACE
        elif n and not running:
            text.append(" ")
        if plain and sign is not None:
            text.append(f"{{{sign}{word}}}")
        else:
            text.append(word, style)
    return text


def visible(token: str) -> str:
    """A token in which nothing is invisible and nothing moves the cursor.

    >>> visible("a\\tb"), visible(" red"), visible("C")
    ('a\\\\tb', '␣red', 'C')
    """
    token = token.replace(" ", SPACE)
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in token)


def _print_hanging(console: "Console", label: str, text: "Text") -> None:
    """A labelled line; on a terminal its continuation lines begin below the text."""
    from rich.table import Table
    from rich.text import Text

    if not console.is_terminal:
        console.print(Text(label) + text, soft_wrap=True)
        return
    grid = Table.grid()
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(label, text)
    console.print(grid)


# ------------------------------------------------------------------ noise


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


def _ascii(text: str) -> str:
    return text.replace("±", "+-")


def takes_blocks(console: "Console") -> bool:
    """Whether the output can hold more than ASCII."""
    return not console.options.ascii_only


def new_console() -> "Console":
    """Standard output; when its reader leaves, that is a BrokenPipeError, as it is for print."""
    from rich.console import Console

    class Piped(Console):
        def on_broken_pipe(self) -> None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())  # for what is left
            raise BrokenPipeError

    return Piped()
