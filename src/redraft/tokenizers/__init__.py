"""Stage 2: items to ids and back.

base.py         specials, endings, masks; tables of pieces
smiles.py       molecules
text.py         characters; words
bpe.py          stories
semantic_id.py  playlists
"""

from typing import Any

from redraft.errors import unknown
from redraft.tokenizers.base import EOS, MASK, PAD, SPECIALS, Tokenizer, UnknownToken
from redraft.tokenizers.bpe import BPETokenizer
from redraft.tokenizers.semantic_id import SemanticIdTokenizer
from redraft.tokenizers.smiles import SmilesTokenizer
from redraft.tokenizers.text import CharacterTokenizer, WordTokenizer

__all__ = [
    "EOS",
    "MASK",
    "PAD",
    "SPECIALS",
    "TOKENIZERS",
    "BPETokenizer",
    "CharacterTokenizer",
    "SemanticIdTokenizer",
    "SmilesTokenizer",
    "Tokenizer",
    "UnknownToken",
    "WordTokenizer",
    "load",
    "save",
]

TOKENIZERS: dict[str, type[Tokenizer]] = {
    kind.name: kind
    for kind in (
        SmilesTokenizer,
        CharacterTokenizer,
        WordTokenizer,
        BPETokenizer,
        SemanticIdTokenizer,
    )
}


def save(tokenizer: Tokenizer) -> dict[str, Any]:
    """The tokenizer with its name, ready for JSON."""
    return {"name": tokenizer.name, **tokenizer.to_dict()}


def load(stored: dict[str, Any]) -> Tokenizer:
    """The tokenizer that `save` stored."""
    settings = dict(stored)
    name = settings.pop("name", "")
    if name not in TOKENIZERS:
        raise unknown("tokenizer", name, TOKENIZERS)
    return TOKENIZERS[name].from_dict(settings)
