"""How a sequence is re-drafted, what has changed in it, and what might stand in it."""

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from itertools import takewhile, zip_longest
from typing import TYPE_CHECKING, NamedTuple

from redraft import wording
from redraft.terminal.console import new_console
from redraft.tokenizers.base import EOS, MASK, PAD, SPACE, Tokenizer, visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from redraft.likelihood import Alternative


Frames = Sequence[tuple[int, Sequence[int]]]
"""A sequence while it is being re-drafted: pairs of a time t and ids."""

CHANGED, CORRECTED, WRONG = "bold underline magenta", "bold underline green", "red"
REMOVED = "strike red"


class Piece(NamedTuple):
    """A token in a line, and how it is marked there."""

    token: str
    style: str = ""
    sign: str | None = None
    """Without colour `{N}` for the sign "" and `{+N}` for "+"; None leaves the token bare."""


def show_revision(
    frames: Frames,
    tokenizer: Tokenizer,
    clean: Sequence[int] | None = None,
    console: "Console | None" = None,
) -> None:
    """One sequence being re-drafted, a line a step: `t=25  C C ( = O ) ...`, with changes marked.

    Changed tokens are bold, and green where they are now what they are in `clean`; those that
    still differ from it are red. The first frame is compared with `clean`.
    """
    console = console or new_console()
    plain = console.color_system is None
    lines: list[tuple[str, list[Piece]]] = []
    if clean is not None:
        lines.append(("clean", [Piece(tokenizer.tokens[i]) for i in _shown(clean)]))
    before = clean
    for t, ids in frames:
        lines.append((f"t={t}", _redrafted(ids, before, clean, tokenizer.tokens)))
        before = ids
    width = max((len(label) for label, _ in lines), default=0) + 2
    for label, pieces in lines:
        _print_hanging(console, label.ljust(width), _join(pieces, tokenizer.tokens, plain))


def diff(
    before_ids: Sequence[int], after_ids: Sequence[int], tokens: Sequence[str], plain: bool = False
) -> "Text":
    """What came of `before`: replaced and inserted tokens bold, those left out struck through.

    `plain` writes them as {N}, {+N} and {-N}, for output without colour.

    >>> tokens = ["[PAD]", "[MASK]", "[EOS]", "C", "N", "O"]
    >>> print(diff([3, 3, 4], [3, 5, 4], tokens, plain=True))
    C {O} N
    >>> print(diff([3, 3, 4], [3, 4], tokens, plain=True))
    {-C} C N
    """
    return _join(_aligned(_shown(before_ids), _shown(after_ids), tokens), tokens, plain)


def show_alternatives(
    found: "Sequence[Alternative]", template: Sequence[int], tokenizer: Tokenizer
) -> None:
    """Ways to fill the masks of a template: how likely each is a token, how often it was drawn."""
    console, places = new_console(), [n for n, i in enumerate(template) if i == MASK]
    often = any(one.drawn > 1 for one in found)
    for one in found:
        label = f"{100 * one.likelihood:3.0f} %  " + (f"{one.drawn:2d} x  " if often else "")
        ids = list(takewhile(lambda i: i != EOS, one.ids))
        if isinstance(one.text, str):
            parts = wording.filled(wording.pieces(tokenizer, ids), places)
        else:
            parts = [("same", " ".join(map(str, one.text)))]
        _print_hanging(console, label, marked(parts, console.color_system is None))


def show_changes(before: str, after: str, tokenizer: Tokenizer) -> None:
    """What has changed in a text: word by word, or, where it has none, in its tokens."""
    from rich.text import Text

    console = new_console()
    both = [wording.pieces(tokenizer, tokenizer.ids(text)) for text in (before, after)]
    running = any(piece.startswith(" ") for said in both for piece in said)
    parts = wording.compared(*(wording.spoken(said) if running else said for said in both))
    changes = marked(parts, console.color_system is None)
    line = changes if running else Text.assemble(Text(after, "bold"), "   ", changes)
    console.print(line, soft_wrap=True)


def marked(parts: Iterable[wording.Part], plain: bool = False) -> "Text":
    """New parts bold, those that are gone struck through; `plain` writes {new} and {-gone}.

    >>> print(marked([("same", "Tom"), ("gone", " ran"), ("new", " sat")], plain=True))
    Tom {-ran} {sat}
    """
    from rich.text import Text

    styles, signs = {"new": CORRECTED, "gone": REMOVED}, {"new": "", "gone": "-"}
    text = Text()
    for kind, piece in parts:
        words = piece.lstrip(" ")
        text.append(" " * (len(piece) - len(words)))
        if plain and kind in signs:
            text.append(f"{{{signs[kind]}{words}}}")
        else:
            text.append(words, styles.get(kind, ""))
    return text


def _redrafted(
    ids: Sequence[int],
    before: Sequence[int] | None,
    clean: Sequence[int] | None,
    tokens: Sequence[str],
) -> list[Piece]:
    """One frame, marked against the frame before it and against the clean sequence."""
    pieces = []
    others = [() if x is None else x for x in (before, clean)]  # arrays have no truth value
    for i, old, truth in zip_longest(_shown(ids), *others):
        if i is None:
            break
        right = clean is not None and i == truth
        if before is not None and i != old:
            pieces.append(Piece(tokens[i], CORRECTED if right else CHANGED, ""))
        else:
            pieces.append(Piece(tokens[i], "" if right or clean is None else WRONG))
    return pieces


def _aligned(before: list[int], after: list[int], tokens: Sequence[str]) -> list[Piece]:
    """Position by position where the length was kept, else by the longest common runs."""
    if len(before) == len(after):
        return [
            Piece(tokens[new]) if old == new else Piece(tokens[new], CHANGED, "")
            for old, new in zip(before, after, strict=True)
        ]
    pieces = []
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for action, b, b_end, a, a_end in matcher.get_opcodes():
        if action == "equal":
            pieces += [Piece(tokens[i]) for i in after[a:a_end]]
            continue
        replaced = min(b_end - b, a_end - a)
        pieces += [Piece(tokens[i], REMOVED, "-") for i in before[b + replaced : b_end]]
        pieces += [Piece(tokens[i], CHANGED, "") for i in after[a : a + replaced]]
        pieces += [Piece(tokens[i], CHANGED, "+") for i in after[a + replaced : a_end]]
    return pieces


def _shown(ids: Sequence[int]) -> list[int]:
    """The ids without padding."""
    return [i for i in map(int, ids) if i != PAD]


def _join(pieces: Sequence[Piece], tokens: Sequence[str], plain: bool) -> "Text":
    """A line of tokens; tokens of running text carry their own spaces, others are set apart."""
    from rich.text import Text

    running = any(token.startswith(SPACE) for token in tokens)
    text = Text()
    for n, (token, style, sign) in enumerate(pieces):
        word = visible(token)
        if running and word.startswith(SPACE):
            text.append(" ")
            word = word[1:].replace(SPACE, " ") or SPACE
        elif n and not running:
            text.append(" ")
        if plain and sign is not None:
            text.append(f"{{{sign}{word}}}")
        else:
            text.append(word, style)
    return text


def _print_hanging(console: "Console", label: str, text: "Text") -> None:
    """A labelled line; on a terminal its continuation lines begin below the text."""
    from rich.table import Table
    from rich.text import Text

    if not console.is_terminal:
        console.print(Text(label) + text, soft_wrap=True)
        return
    grid = Table.grid()
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(label, text)
    console.print(grid)
