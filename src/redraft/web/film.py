"""The steps of a computation as a page shows them: tokens, what changed, what parses, drawn."""

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

from redraft.terminal import visible
from redraft.tokenizers.base import EOS, PAD, Tokenizer
from redraft.web.desk import Job
from redraft.web.structure import structure

Row = dict[str, Any]


class Film:
    """Says frames: rows of tokens side by side, marked against the frame before.

    A structure is drawn where a row parses and has changed; the page keeps the one it has.
    """

    def __init__(self, job: Job, tokenizer: Tokenizer):
        self.job, self.tokenizer = job, tokenizer
        self.before: list[list[int]] = []
        self.last: list[Row] = []

    def show(self, label: str, rows: Sequence[Sequence[int]], fixed: bool = False) -> None:
        """`fixed` keeps marking against the same frame."""
        ids = [[i for i in row if i != PAD] for row in rows]
        before = self.before or ids
        known = self.last or [{}] * len(ids)
        self.last = [self._row(*at) for at in zip(ids, before, known, strict=True)]
        self.before = before if fixed else ids
        told = [
            {k: v for k, v in row.items() if k != "svg" or v != old.get("svg")}
            for row, old in zip(self.last, known, strict=True)
        ]
        self.job.say("frame", label=label, rows=told)

    def _row(self, ids: list[int], before: list[int], known: Row) -> Row:
        smiles = self.tokenizer.decode(ids)
        same = known.get("smiles") == smiles
        drawn = known.get("svg") if same else structure(smiles)
        changed, cut = marks(before, ids)
        return {
            "tokens": [visible(self.tokenizer.tokens[i]) for i in ids],
            "end": ids.index(EOS) if EOS in ids else len(ids),
            "changed": changed,
            "cut": cut,
            "smiles": smiles,
            "svg": drawn,
        }


def marks(before: Sequence[int], after: Sequence[int]) -> tuple[list[int], list[int]]:
    """Positions of `after` that are new, and those before which something was left out.

    >>> marks("abc", "abd"), marks("abc", "ac"), marks("abc", "abxc")
    (([2], []), ([], [1]), ([2], []))
    """
    if len(before) == len(after):
        return [n for n, pair in enumerate(zip(before, after, strict=True)) if len({*pair}) > 1], []
    changed: list[int] = []
    cut: list[int] = []
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for action, _, _, start, end in matcher.get_opcodes():
        if action == "delete":
            cut.append(start)
        elif action != "equal":
            changed += range(start, end)
    return changed, cut
