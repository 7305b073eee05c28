"""Numbers as tables of text."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from redraft.terminal import new_console

if TYPE_CHECKING:
    from rich.console import Console


def metrics_table(result: Mapping[str, Any], unit: str) -> None:
    """A result's numbers with their intervals, one a line, then its baselines'; n counts `unit`."""
    console = new_console()
    title = f"{result['method']}, {result['experiment']}: {result['n']:,} {unit}"
    console.print(title, style="bold", highlight=False)
    shown = dict(result["metrics"])
    for other, own in result.get("baselines", {}).items():
        shown |= {f"{name} of {other}": m for name, m in own.items()}
    rows = [{"metric": name, "value": with_interval(m)} for name, m in shown.items()]
    _grid(console, rows, {"metric": ("metric", "{}"), "value": ("value (95 %)", "{}")})


def comparison_table(report: Mapping[str, Any]) -> None:
    """Metric by metric, a line a recipe: its number, and how far it is from the first."""
    console = new_console()
    names = dict(zip(report["recipes"], shortened(report["recipes"]), strict=True))
    numbers: dict[str, dict[str, dict[str, str]]] = {"training": {}}
    measured = zip(report["recipes"], report["results"], report["others"], strict=True)
    for recipe, generation, others in measured:
        numbers["training"][recipe] = {"steps": f"{generation['steps']:,}"}
        for result in (generation, *others):
            for metric, estimate in result["metrics"].items():
                title = f"{result['experiment']}: {metric}"
                numbers.setdefault(title, {})[recipe] = {"value": with_interval(estimate)}
    for row in report["differences"]:
        cells = numbers.setdefault(f"{row['experiment']}: {row['metric']}", {})
        apart = ("over", "") if is_ratio(row["metric"]) else ("less", "+")
        cells.setdefault(row["recipe"], {})[apart[0]] = with_interval(row, sign=apart[1])
    first = next(iter(names.values()))
    for title, cells in numbers.items():
        rows = [{"recipe": names[recipe], **found} for recipe, found in cells.items()]
        titles = {
            "recipe": title,
            "steps": "steps",
            "value": "value (95 %)",
            "less": f"less {first} (95 %)",
            "over": f"over {first} (95 %)",
        }
        _grid(console, rows, filled(rows, {key: (text, "{}") for key, text in titles.items()}))
        console.print()
    console.print("95 % intervals over samples; training runs differ more than that", style="dim")


def is_ratio(metric: str) -> bool:
    """Whether two models are told apart by what one has over the other, and not less it."""
    return metric.endswith("_ratio")


def shortened(recipes: Sequence[str]) -> list[str]:
    """Without the folder that all of them share.

    >>> shortened(["molecules/vsdd", "molecules/mdlm"]), shortened(["tiny/vsdd", "molecules/vsdd"])
    (['vsdd', 'mdlm'], ['tiny/vsdd', 'molecules/vsdd'])
    """
    folders = {recipe.rpartition("/")[0] for recipe in recipes}
    return [recipe.rpartition("/")[2] for recipe in recipes] if len(folders) == 1 else [*recipes]


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
    _grid(console, rows, filled(rows, shown))
    split = [{"method": row["method"], **row["parts_ms"]} for row in rows if "parts_ms" in row]
    if split:
        names = list(dict.fromkeys(name for row in split for name in row))
        console.print("milliseconds by part", style="dim")
        _grid(console, split, {n: (n, "{}" if n == "method" else "{:.2f}") for n in names})


def filled(
    rows: Sequence[Mapping[str, Any]], columns: Mapping[str, tuple[str, str]]
) -> dict[str, tuple[str, str]]:
    """Columns that any row has something for."""
    found = {key for row in rows for key, value in row.items() if value is not None}
    return {key: column for key, column in columns.items() if key in found}


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
