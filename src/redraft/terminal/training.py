"""How training goes."""

import math
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from redraft.terminal.console import in_ascii, new_console, takes_blocks
from redraft.terminal.numbers import Curve, clock, number, sparkline

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


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
        return in_ascii("  ".join(parts))

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
            table.add_row(name, value if blocks else in_ascii(value))
        if curve in self.curves and blocks:
            line = sparkline(self.curves[curve].values, log=log)
            table.add_row(f"{curve.rpartition('/')[2]} so far", f"[not bold {colour}]{line}[/]")
        height = 7 if self._leader() else None  # both alike
        return Panel(table, title=title, title_align="left", border_style=colour, height=height)

    def _pace(self) -> list[str]:
        if not self.step:  # data are read, and blocks compiled
            return [f"getting ready, {clock(time.monotonic() - self.started)}"]
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
