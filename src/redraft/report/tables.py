"""Numbers as tables of text."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from redraft.terminal import new_console

if TYPE_CHECKING:
    from rich.console import Console


def metrics_table(result: Mapping[str, Any], unit: str) -> None:
    """A result's numbers with their intervals, one a line; n counts `unit`."""
    console = new_console()
    title = f"{result['method']}, {result['experiment']}: {result['n']:,} {unit}"
    console.print(title, style="bold", highlight=False)
    rows = [
        {"metric": name, "value": m["value"], "interval": f"({m['low']:.3f} to {m['high']:.3f})"}
        for name, m in result["metrics"].items()
    ]
    columns = {"metric": ("metric", "{}"), "value": ("value", "{:.3f}"), "interval": ("95 %", "{}")}
    _grid(console, rows, columns)


def comparison_table(report: Mapping[str, Any]) -> None:
    """One row a recipe, numbers with their intervals, and how far validity is from the first's."""
    console = new_console()
    apart = {row["recipe"]: row for row in report["differences"] if row["metric"] == "validity"}
    rows = []
    for recipe, result in zip(report["recipes"], report["results"], strict=True):
        row = {"recipe": recipe, "steps": result["steps"]}
        row |= {name: in_percent(m) for name, m in result["metrics"].items()}
        row["difference"] = in_percent(apart[recipe], sign="+") if recipe in apart else ""
        rows.append(row)
    columns = {"recipe": ("recipe", "{}"), "steps": ("steps", "{:,}")}
    names = dict.fromkeys(name for result in report["results"] for name in result["metrics"])
    columns |= {name: (f"{name}, %", "{}") for name in names}
    columns["difference"] = ("validity less the first's", "{}")
    _grid(console, rows, columns)
    console.print("95 % intervals over samples; training runs differ more than that", style="dim")


def in_percent(metric: Mapping[str, float], sign: str = "") -> str:
    """
    >>> in_percent({"value": 0.8432, "low": 0.837, "high": 0.849})
    '84.3 (83.7 to 84.9)'
    """
    value, low, high = (f"{100 * metric[key]:{sign}.1f}" for key in ("value", "low", "high"))
    return f"{value} ({low} to {high})"


def bench_table(rows: Sequence[dict[str, Any]], console: "Console | None" = None) -> None:
    """Measurements as a table; columns that no row fills are left out, parts of steps go below."""
    console = console or new_console()
    shown = {
        "method": ("method", "{}"),
        "what": ("what", "{}"),
        "value": ("value", "{:.4g}"),
        "unit": ("unit", "{}"),
        "ratio_to_mdlm": ("x mdlm", "{:.2f}"),
        "sequences_per_second": ("sequences/s", "{:,.0f}"),
        "tokens_per_second": ("tokens/s", "{:,.0f}"),
        "mfu": ("of a matrix product", "{:.0%}"),
        "peak_gb": ("GB", "{:.1f}"),
        "first_step_seconds": ("first step, s", "{:.1f}"),
    }
    filled = {key for row in rows for key, value in row.items() if value is not None}
    _grid(console, rows, {key: column for key, column in shown.items() if key in filled})
    split = [{"method": row["method"], **row["parts_ms"]} for row in rows if "parts_ms" in row]
    if split:
        names = list(dict.fromkeys(name for row in split for name in row))
        console.print("milliseconds by part", style="dim")
        _grid(console, split, {n: (n, "{}" if n == "method" else "{:.2f}") for n in names})


LEFT = ("method", "what", "unit", "metric", "recipe")
"""Columns of words."""


def _grid(
    console: "Console", rows: Sequence[dict[str, Any]], columns: dict[str, tuple[str, str]]
) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for key, (title, _) in columns.items():
        table.add_column(title, justify="left" if key in LEFT else "right")
    for row in rows:
        values = ((row.get(key), form) for key, (_, form) in columns.items())
        table.add_row(*("" if value is None else form.format(value) for value, form in values))
    console.print(table)
