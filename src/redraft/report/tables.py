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
    rows = {name: {"value (95 %)": with_interval(m)} for name, m in result["metrics"].items()}
    _grid(console, *columned(rows, ["value (95 %)"]))


def comparison_table(report: Mapping[str, Any]) -> None:
    """One column a recipe: how all generate, and how far each is from the first in everything."""
    console = new_console()
    recipes, first = report["recipes"], report["recipes"][0]
    rows: dict[str, dict[str, str]] = {"steps": {}}
    for recipe, result in zip(recipes, report["results"], strict=True):
        rows["steps"][recipe] = f"{result['steps']:,}"
        for name, metric in result["metrics"].items():
            rows.setdefault(name, {})[recipe] = with_interval(metric)
    apart: dict[str, dict[str, str]] = {}
    for row in report["differences"]:
        name = f"{row['experiment']}: {row['metric']}"
        apart.setdefault(name, {})[row["recipe"]] = with_interval(row, sign="+")
    _grid(console, *columned(rows, recipes))
    if apart:
        console.print(f"\nless {first}", style="bold", highlight=False)
        _grid(console, *columned(apart, recipes[1:]))
    console.print("95 % intervals over samples; training runs differ more than that", style="dim")


def columned(
    rows: Mapping[str, Mapping[str, str]], names: Sequence[str]
) -> tuple[list[dict[str, str]], dict[str, tuple[str, str]]]:
    """Rows by their titles, and a column for each name, as a grid takes them."""
    columns = {"metric": ("metric", "{}")} | {name: (name, "{}") for name in names}
    return [{"metric": title, **cells} for title, cells in rows.items()], columns


def with_interval(metric: Mapping[str, float], sign: str = "") -> str:
    """
    >>> with_interval({"value": 0.8432, "low": 0.837, "high": 0.849})
    '0.843 (0.837 to 0.849)'
    >>> with_interval({"value": 23.41, "low": 20.0, "high": 27.33}, sign="+")
    '+23.4 (+20.0 to +27.3)'
    """
    places = 3 if abs(metric["value"]) < 10 else 1
    value, low, high = (f"{metric[key]:{sign}.{places}f}" for key in ("value", "low", "high"))
    return f"{value} ({low} to {high})"


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
