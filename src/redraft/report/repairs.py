"""Repairs as they come: for people, for tables, for other programs."""

import json
from collections import Counter
from typing import TYPE_CHECKING, Self

from redraft.repair import Repaired
from redraft.terminal import diff, new_console
from redraft.tokenizers.base import Tokenizer, shorten

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


class RepairWriter:
    """Repairs on standard output, one a line as they come; what became of all on standard error."""

    COLUMNS = ("result", "status", "edits", "sure", "given", "remark")

    def __init__(self, form: str, tokenizer: Tokenizer):
        self.form, self.tokenizer = form, tokenizer
        self.counts: Counter[str] = Counter()

    def __enter__(self) -> Self:
        from rich.console import Console

        self.console, self.aside = new_console(), Console(stderr=True, highlight=False)
        return self

    def write(self, repaired: Repaired) -> None:
        if not self.counts and self.form == "tsv" and not self.console.is_terminal:
            print("\t".join(self.COLUMNS))
        self.counts[repaired.status] += 1
        row = dict(zip(self.COLUMNS, (getattr(repaired, c) for c in self.COLUMNS), strict=True))
        if self.form == "json":
            print(json.dumps(row), flush=True)
        elif self.form == "smiles":
            self._tell_of_failure(repaired)
            if repaired.result is not None:
                print(repaired.result, flush=True)
        elif self.console.is_terminal:
            self.console.print(told(repaired, self.tokenizer, self.console), soft_wrap=True)
        else:
            row |= {"result": repaired.result or "", "sure": f"{repaired.sure:.3f}"}
            print("\t".join(str(cell).replace("\t", " ") for cell in row.values()), flush=True)

    def _tell_of_failure(self, repaired: Repaired) -> None:
        if repaired.result is None:
            given = shorten(repaired.given)
            self.aside.print(f"not repaired: {given}, {repaired.remark}", markup=False)

    def __exit__(self, *_: object) -> None:
        total = sum(self.counts.values())
        if total > 1:
            told = ", ".join(f"{n:,} {status}" for status, n in self.counts.most_common())
            self.aside.print(f"{total:,} lines: {told}", markup=False, style="dim")


def told(repaired: Repaired, tokenizer: Tokenizer, console: "Console") -> "Text":
    """For a person: the result, how many edits, how sure, and what changed."""
    from rich.text import Text

    if repaired.result is None:
        return Text(f"not repaired: {shorten(repaired.given)}, {repaired.remark}", "red")
    if not repaired.edits:
        return Text(f"{repaired.result}   valid as it is", "dim")
    before, after = (tokenizer.ids(x) for x in (repaired.given, repaired.result))
    edits = f"{repaired.edits} edit{'s' * (repaired.edits > 1)}"
    changes = diff(before, after, tokenizer.tokens, plain=console.color_system is None)
    return Text.assemble(
        Text(repaired.result, "bold green"), f"   {edits}, {repaired.sure:.0%} sure   ", changes
    )
