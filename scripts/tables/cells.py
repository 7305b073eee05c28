"""What tables are made of: results as read, numbers as written; and what two domains share."""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def rows_of(name: str) -> Any:
    return json.loads((ROOT / "results" / f"{name}.json").read_text(encoding="utf-8"))


def by_name(paths: Iterable[Path]) -> list[Path]:
    """A method before its variants."""
    return sorted(paths, key=lambda path: path.stem)


def table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(titles), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def where_told(titles: Iterable[str], rows: Sequence[Sequence[str]]) -> str:
    """The same without columns in which nothing stands."""
    told = [any(column) for column in zip(*rows, strict=True)]
    return table(compress(titles, told), (compress(row, told) for row in rows))


def with_interval(metric: dict[str, float], form: str, scale: float = 1) -> str:
    value, low, high = (format(scale * metric[key], form) for key in ("value", "low", "high"))
    return f"{value} ({low} to {high})"


def collapse(domain: str, titles: Mapping[str, str]) -> str:
    """What the most frequent tokens become, by run."""
    found = {name: rows_of(f"{domain}/noise-{name}")["collapse"] for name in titles}
    first, *_ = found.values()
    cells = (
        (
            *(f"`{row['token']}`", f"{100 * row['share']:.0f}"),
            *(
                ", ".join(f"`{token}` {p:.2f}" for token, p in rows[i]["becomes"][:3] if p >= 0.005)
                for rows in found.values()
            ),
        )
        for i, row in enumerate(first)
    )
    return table(("token", "of all, %", *titles.values()), cells)
