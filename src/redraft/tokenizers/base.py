"""What every tokenizer is: a table of token names, and the way to ids and back.

Three specials have the same ids everywhere: `PAD` fills, `MASK` hides, `EOS` ends. Every id from
`EOS` on is a *valid* state, one that noise may reach and a model may predict.
"""

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Any, ClassVar, Self

from redraft.errors import UserError

PAD, MASK, EOS = 0, 1, 2
SPECIALS = ("[PAD]", "[MASK]", "[EOS]")

SPACE = "␣"
"""How names of tokens write a space."""
MOST_MASKS = 10_000


class UnknownToken(UserError):
    """A piece of the input is not in the tokenizer's table."""


class Tokenizer(ABC):
    """Items to ids and back; an item is a string, or a list of tracks for playlists.

    A member says how it turns an item without masks into ids (`ids`) and back (`decode`), and how
    it is stored (`to_dict`, `from_dict`); endings and masks are the same for all.
    """

    name: ClassVar[str]
    """Its name in the table of tokenizers and in saved files."""
    ending: ClassVar[tuple[int, ...]] = (EOS,)
    """What closes every sequence."""
    gap: ClassVar[str] = ""
    """What stands before a mask in text, but belongs to the token that the mask hides."""
    width: int = 1
    """How many tokens one mask hides."""

    def __init__(self, tokens: Iterable[str]):
        self.tokens = [*SPECIALS, *tokens]
        valid = self.tokens[EOS:]
        if len(valid) < 3:
            raise UserError(f"needs at least 3 valid tokens, got {len(valid)}: {', '.join(valid)}")

    def __len__(self) -> int:
        return len(self.tokens)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.to_dict() == other.to_dict()  # pyright: ignore

    def encode(self, item: Any) -> list[int]:
        return [*self.ids(item), *self.ending]

    def template(self, text: str) -> list[int]:
        """Ids of a text in which `[MASK]` hides one token and `[MASK:9]` nine in a row."""
        ids: list[int] = []
        for piece, masks in _split_at_masks(text, self.gap):
            ids += self.ids(self.parse(piece)) + [MASK] * masks * self.width
        return [*ids, *self.ending]

    def cut(self, ids: list[int], length: int) -> list[int]:
        """The beginning of an encoded sequence, `length` tokens at most, closed as it was."""
        room = length - len(self.ending)
        if room < self.width:
            least = self.width + len(self.ending)
            raise UserError(f"a cut sequence needs at least {least} tokens, got {length}")
        return [*ids[: room - room % self.width], *self.ending] if len(ids) > length else ids

    def parse(self, text: str) -> Any:
        """The item that a text without masks stands for."""
        return text

    @abstractmethod
    def ids(self, item: Any) -> list[int]:
        """The ids of an item, before the ending."""

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> Any:
        """The item up to the first `EOS`, without `PAD`, with `MASK` shown."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Everything `from_dict` needs to build the same tokenizer, ready for JSON."""

    @classmethod
    @abstractmethod
    def from_dict(cls, stored: dict[str, Any]) -> Self: ...


class TableTokenizer(Tokenizer):
    """A table of pieces, with a way to split a text into pieces and to join them again."""

    def __init__(self, pieces: Sequence[str]):
        super().__init__(pieces)
        self._id = {piece: i for i, piece in enumerate(self.tokens) if i > EOS}
        twice = [piece for piece, n in Counter(self.tokens).items() if n > 1]
        if twice:
            raise UserError(f"every token may stand once in a table, got twice: {twice[0]!r}")

    @classmethod
    def fit(cls, items: Iterable[str], size: int | None = None) -> Self:
        """The table of all pieces in the items, or of the `size` most frequent ones."""
        if size is not None and size < 1:
            raise UserError(f"the number of tokens to keep must be at least 1, got {size}")
        counts = Counter(piece for item in items for piece in cls.split(item))
        frequent = sorted(counts, key=lambda piece: (-counts[piece], piece))[:size]
        return cls(sorted(frequent))

    @staticmethod
    @abstractmethod
    def split(text: str) -> list[str]: ...

    @staticmethod
    @abstractmethod
    def join(pieces: list[str]) -> str: ...

    def ids(self, item: str) -> list[int]:
        try:
            return [self._id[piece] for piece in self.split(item)]
        except KeyError as error:
            piece = error.args[0]
            raise UnknownToken(
                f"{piece!r} in {shorten(item)} is none of the {len(self._id)} known tokens"
            ) from None

    def decode(self, ids: Iterable[int]) -> str:
        return self.join([self.tokens[i] for i in content(ids)])

    def to_dict(self) -> dict[str, Any]:
        return {"pieces": self.tokens[EOS + 1 :]}

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Self:
        pieces = stored["pieces"]
        if not isinstance(pieces, list) or not all(isinstance(p, str) for p in pieces):
            raise UserError("the pieces of a tokenizer must be a list of strings")
        return cls(pieces)


def content(ids: Iterable[int]) -> list[int]:
    """What a sequence says: the ids before the first `EOS`, without `PAD`."""
    return [i for i in takewhile(lambda i: i != EOS, map(int, ids)) if i != PAD]


def shorten(text: object, width: int = 60) -> str:
    """A quotation for one line of a message."""
    text = str(text)
    return repr(text if len(text) <= width else text[: width - 1] + "…")


def visible(token: str) -> str:
    """A token in which nothing is invisible and nothing moves the cursor.

    >>> visible("a\\tb"), visible(" red"), visible("C")
    ('a\\\\tb', '␣red', 'C')
    """
    token = token.replace(" ", SPACE)
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in token)


def _split_at_masks(text: str, gap: str) -> Iterator[tuple[str, int]]:
    """Each piece of text with the number of masks that follow it."""
    start = 0
    for found in re.finditer(rf"(?:{re.escape(gap)})?\[MASK(?::([^\]]*))?\]", text):
        count = found[1] if found[1] is not None else "1"
        if not re.fullmatch(r"\d{1,5}", count) or not 1 <= int(count) <= MOST_MASKS:
            raise UserError(
                f"a mask is [MASK] or [MASK:n] with n from 1 to {MOST_MASKS}, "
                f"got {shorten(found[0].strip())}"
            )
        yield text[start : found.start()], int(count)
        start = found.end()
    yield text[start:], 0
