"""Tables of speed and memory."""

from collections.abc import Callable

from cells import rows_of, table


def train(name: str) -> str:
    """Steps of training, one row a method."""
    titles = ("method", "ms a step", "over MDLM", "sequences/s", "of a matrix product", "GB")
    cells = (
        (
            row["method"],
            f"{row['value']:.1f}",
            f"{row['ratio_to_mdlm']:.2f}",
            f"{row['sequences_per_second']:,.0f}",
            f"{100 * row['mfu']:.0f} %",
            f"{row['peak_gb']:.0f}" if "peak_gb" in row else "",
        )
        for row in rows_of(name)
    )
    return table(titles, cells)


def parts(name: str) -> str:
    """Milliseconds by part; FLDD's noise is a network of its own, so that its parts are others."""
    rows = [row for row in rows_of(name) if row["parts_ms"]["posterior + bound"] >= 0]
    names = list(rows[0]["parts_ms"])
    cells = ((r["method"], *(f"{max(r['parts_ms'][n], 0):.2f}" for n in names)) for r in rows)
    return table(("ms", *names), cells)


def sample(name: str) -> str:
    titles = ("method", "sequences/s", "steps", "batch")
    cells = (
        (row["method"], f"{row['value']:,.0f}", str(row["steps"]), f"at most {row['batch']:,}")
        for row in rows_of(name)
    )
    return table(titles, cells)


TABLES: dict[str, Callable[[], str]] = {
    "train-tiny": lambda: train("bench/train-tiny"),
    "train-molecules": lambda: train("bench/train-molecules"),
    "parts-molecules": lambda: parts("bench/train-molecules"),
    "train-stories": lambda: train("bench/train-stories"),
    "parts-stories": lambda: parts("bench/train-stories"),
    "sample-molecules": lambda: sample("bench/sample-molecules"),
}
