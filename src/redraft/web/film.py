"""The steps of a computation as a page shows them: tokens, what changed, and what they say."""

from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from typing import Any

from redraft.sampler import Step
from redraft.tokenizers.base import EOS, MASK, PAD
from redraft.web.desk import Job

Row = dict[str, Any]
Look = Callable[[list[Any], Row], Row]
"""What a domain sees in ids: `tokens` as they are shown, the `text` that they say, and more of its
own. It is given what it saw in the row before, some of which may still hold."""


class Film:
    """Says frames: rows of tokens side by side, marked against the frame before.

    Of a row only what has changed is told; the page keeps the rest.
    """

    def __init__(self, job: Job, look: Look):
        self.job, self.look = job, look
        self.before: list[list[Any]] = []
        self.ids: list[list[Any]] = []
        self.last: list[Row] = []

    def show(self, label: str, rows: Sequence[Sequence[Any]], fixed: bool = False) -> None:
        """`fixed` keeps marking against the same frame."""
        self.ids = [[i for i in row if i != PAD] for row in rows]
        before = self.before or self.ids
        known = self.last or [{}] * len(rows)
        self.last = [self._row(*at) for at in zip(self.ids, before, known, strict=True)]
        self.before = before if fixed else self.ids
        told = [
            dict(fact for fact in row.items() if fact not in old.items())
            for row, old in zip(self.last, known, strict=True)
        ]
        self.job.say("frame", label=label, rows=told)

    def step(self, step: Step) -> None:
        """As a callback of the sampler."""
        self.show(told(step), step.x.tolist())

    def _row(self, ids: list[Any], before: list[Any], known: Row) -> Row:
        changed, cut = marks(before, ids)
        return {
            "end": ids.index(EOS) if EOS in ids else len(ids),
            "masked": [n for n, i in enumerate(ids) if i == MASK],
            "changed": changed,
            "cut": cut,
            **self.look(ids, known),
        }


def told(step: Step) -> str:
    return f"t = {step.to}, {step.n} to go"


def marks(before: Sequence[Any], after: Sequence[Any]) -> tuple[list[int], list[int]]:
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
