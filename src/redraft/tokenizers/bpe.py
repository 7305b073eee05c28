"""Byte-level byte-pair encoding: any text there and back, exactly.

A token carries the space before its word, so in "had a [MASK] ball" the mask hides " red".
"""

import json
from collections.abc import Iterable
from itertools import groupby
from typing import Any, Self

import numpy as np

from redraft.errors import UserError
from redraft.tokenizers.base import EOS, MASK, SPECIALS, Tokenizer, content, shorten, visible

_PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
_OTHERS = sorted(set(range(256)) - set(_PRINTABLE))
_BYTE = {chr(b): b for b in _PRINTABLE} | {chr(256 + i): b for i, b in enumerate(_OTHERS)}
"""Byte-level BPE writes each byte as one printable character; this is the way back."""

SMALLEST = len(SPECIALS) + len(_BYTE)


class BPETokenizer(Tokenizer):
    name = "bpe"
    gap = " "

    def __init__(self, stored: dict[str, Any]):
        from tokenizers import Tokenizer as Backend

        # The specials stay in the table, but text that merely spells one is ordinary text.
        self._stored = stored | {"added_tokens": []}
        self._backend = Backend.from_str(json.dumps(self._stored))
        vocabulary = self._backend.get_vocab()
        tokens = sorted(vocabulary, key=vocabulary.__getitem__)
        if tuple(tokens[: EOS + 1]) != SPECIALS:
            raise UserError(f"a BPE table starts with {SPECIALS}, got {tokens[: EOS + 1]}")
        super().__init__(_readable(token) for token in tokens[EOS + 1 :])

    @classmethod
    def fit(cls, texts: Iterable[str], size: int = 2048) -> Self:
        """Learn at most `size` tokens, specials and the 256 bytes included."""
        from tokenizers import Tokenizer as Backend
        from tokenizers import decoders, models, pre_tokenizers, trainers

        if size < SMALLEST:
            raise UserError(f"a BPE vocabulary needs at least {SMALLEST} tokens, got {size}")
        backend = Backend(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore
        backend.decoder = decoders.ByteLevel()  # pyright: ignore
        trainer = trainers.BpeTrainer(
            vocab_size=size,
            special_tokens=list(SPECIALS),
            initial_alphabet=sorted(_BYTE),
            show_progress=False,
        )
        backend.train_from_iterator(texts, trainer)
        return cls(json.loads(backend.to_str()))

    def ids(self, item: str | np.ndarray) -> list[int]:
        """An array holds the ids already: of a story that was prepared."""
        if isinstance(item, np.ndarray):
            return item.tolist()
        try:
            return self._backend.encode(item).ids
        except TypeError:
            raise UserError(f"text that UTF-8 can hold is needed, got {shorten(item)}") from None

    def decode(self, ids: Iterable[int]) -> str:
        text = ""
        for masked, run in groupby(content(ids), lambda i: i == MASK):
            if masked:
                shown = self.gap.join(SPECIALS[MASK] for _ in run)
                text += self.gap + shown if text else shown
            else:
                text += self._backend.decode(list(run), skip_special_tokens=False)
        return text

    def require_single_tokens(self, words: Iterable[str]) -> None:
        """Swapping one word for another keeps a text's length only if each is one token."""
        split = [word for word in words if len(self.ids(self.gap + word)) != 1]
        if split:
            raise UserError(f"each word must be one token, got several for: {', '.join(split)}")

    def to_dict(self) -> dict[str, Any]:
        """As it was given, so that two versions of the library agree on what it is."""
        return self._stored

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Self:
        return cls(stored)


def _readable(token: str) -> str:
    """A token's name for figures.

    >>> _readable("Ġred")
    '␣red'
    """
    return visible(bytes(_BYTE[c] for c in token).decode(errors="backslashreplace"))
