"""SMILES: bracket atoms, two-letter halogens, two-digit ring bonds, else single characters."""

import re

from redraft.tokenizers.base import TableTokenizer

_PIECE = re.compile(r"\[[^\]]+\]|Br|Cl|%\d\d|.", re.DOTALL)


class SmilesTokenizer(TableTokenizer):
    """
    >>> SmilesTokenizer.split("C[C@H](Cl)C%12")
    ['C', '[C@H]', '(', 'Cl', ')', 'C', '%12']
    """

    name = "smiles"

    @staticmethod
    def split(text: str) -> list[str]:
        return _PIECE.findall(text)

    @staticmethod
    def join(pieces: list[str]) -> str:
        return "".join(pieces)
