"""Make the bundled molecules: python scripts/make_molecule_sample.py PATH/zinc250k.smiles"""

import gzip
import sys
from pathlib import Path

from redraft.data import molecules
from redraft.tokenizers import SmilesTokenizer

LONGEST = 28


def make(source: Path, target: Path) -> int:
    """Canonical, distinct, short, sorted; the same bytes every time."""
    canonical = {molecules.canonical(smiles) for smiles in molecules.read(source)}
    short = sorted(smiles for smiles in canonical if len(SmilesTokenizer.split(smiles)) <= LONGEST)
    text = "".join(f"{smiles}\n" for smiles in short)
    target.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))
    return len(short)


if __name__ == "__main__":
    count = make(Path(sys.argv[1]), molecules.SAMPLE)
    print(f"{count} molecules in {molecules.SAMPLE.name}")
