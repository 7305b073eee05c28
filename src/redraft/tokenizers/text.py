"""Plain text without a learned vocabulary: by characters, or by words and punctuation marks."""

import re

from redraft.tokenizers.base import TableTokenizer

_WORD = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")
_OPENING, _CLOSING = frozenset("([{“"), frozenset(".,;:!?)]}”")


class CharacterTokenizer(TableTokenizer):
    """
    >>> CharacterTokenizer.split("a b")
    ['a', ' ', 'b']
    """

    name = "chars"

    @staticmethod
    def split(text: str) -> list[str]:
        return list(text)

    @staticmethod
    def join(pieces: list[str]) -> str:
        return "".join(pieces)


class WordTokenizer(TableTokenizer):
    """Words and marks; white space is not kept, but `join` puts it where a reader expects it.

    >>> WordTokenizer.split("Don't run!")
    ["Don't", 'run', '!']
    """

    name = "words"

    @staticmethod
    def split(text: str) -> list[str]:
        return _WORD.findall(text)

    @staticmethod
    def join(pieces: list[str]) -> str:
        text, glued, quoted = "", True, False
        for piece in pieces:
            closes = piece in _CLOSING or (piece == '"' and quoted)
            text += piece if glued or closes else " " + piece
            quoted ^= piece == '"'
            glued = piece in _OPENING or (piece == '"' and quoted)
        return text
