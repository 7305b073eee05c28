"""Texts as people see them: words, what each token adds to them, and what has changed.

A part of a text is (kind, piece), with the kind same, new or gone.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import groupby, pairwise

from redraft.tokenizers.base import EOS, Tokenizer

WORD = re.compile(r"[^\S\n]*(?:\n+|\w+(?:['’-]\w+)*|([^\w\s])\1*)")
"""With the space before it; a mark is a word, and so are line breaks."""

Part = tuple[str, str]


def pieces(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """What each token adds to the text, with the space before it.

    A letter of several tokens comes with the last of them; ends are silent, and begin anew.
    """
    found: list[str] = []
    for ends, run in groupby(ids, lambda i: i == EOS):
        own, before = list(run), ""
        whole = tokenizer.decode(own)
        for n in range(1, len(own) + 1):
            text = "" if ends else tokenizer.decode(own[:n])
            text = text if whole.startswith(text) else before
            found.append(text[len(before) :])
            before = text
    return found


def words(said: Sequence[str]) -> list[range]:
    """The tokens of each word, by what each token adds to the text.

    >>> words(["Tom", " ha", "d", " a", " ball", "."])
    [range(0, 1), range(1, 3), range(3, 4), range(4, 5), range(5, 6)]
    """
    starts = {0, *(word.start() for word in WORD.finditer("".join(said)))}
    first, at = [], 0
    for n, piece in enumerate(said):
        if at in starts:
            starts.remove(at)  # half a letter adds nothing, and begins no second word
            first.append(n)
        at += len(piece)
    return [range(*both) for both in pairwise([*first, len(said)])]


def spoken(said: Sequence[str]) -> list[str]:
    return ["".join(said[n] for n in word) for word in words(said)]


def filled(said: Sequence[str], places: Iterable[int]) -> list[Part]:
    """
    >>> filled(["Tom", " had", " a", " ball"], [1, 2])
    [('same', 'Tom'), ('new', ' had a'), ('same', ' ball')]
    """
    new = frozenset(places)
    marked = groupby(range(len(said)), lambda n: "new" if n in new else "same")
    return [(kind, "".join(said[n] for n in run)) for kind, run in marked]


def compared(before: Sequence[str], after: Sequence[str]) -> list[Part]:
    """
    >>> compared(["Tom", " ran", "."], ["Tom", " sat", "."])
    [('same', 'Tom'), ('gone', ' ran'), ('new', ' sat'), ('same', '.')]
    """
    return list(_compared(before, after))


def _compared(before: Sequence[str], after: Sequence[str]) -> Iterator[Part]:
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for action, i, j, k, l in matcher.get_opcodes():
        if action == "equal":
            yield "same", "".join(after[k:l])
            continue
        if i < j:
            yield "gone", "".join(before[i:j])
        if k < l:
            yield "new", "".join(after[k:l])
