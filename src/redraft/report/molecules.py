"""Molecules as people pass them on: SMILES, CSV, SDF, or a drawn grid."""

import csv
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from redraft.data.molecules import molecule_of, require_rdkit
from redraft.errors import UserError
from redraft.report.figures import molecule_grid
from redraft.report.style import DRAWINGS

CELL = (250, 220)
"""Width and height of each structure of a grid."""


def check_ending(path: Path, accepted: Collection[str]) -> None:
    if path.suffix not in accepted:
        raise UserError(f"molecules are written to {', '.join(accepted)}, got {path.name}")


def write(path: Path, smiles: Sequence[str]) -> None:
    """A file in the format that its ending names."""
    check_ending(path, WRITERS)
    path.parent.mkdir(parents=True, exist_ok=True)
    WRITERS[path.suffix](path, smiles)


def write_smiles(path: Path, smiles: Sequence[str]) -> None:
    path.write_text("".join(f"{s}\n" for s in smiles), encoding="utf-8")


def write_csv(path: Path, smiles: Sequence[str]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["smiles"])
        rows.writerows([s] for s in smiles)


def write_sdf(path: Path, smiles: Sequence[str]) -> None:
    """With coordinates in the plane, and the SMILES as name."""
    require_rdkit(f"to write {path.name}")
    from rdkit import Chem
    from rdkit.Chem import AllChem

    molecules = list(map(molecule_of, smiles))
    with path.open("w", encoding="utf-8") as file, Chem.SDWriter(file) as rows:
        for text, molecule in zip(smiles, molecules, strict=True):
            AllChem.Compute2DCoords(molecule)  # pyright: ignore[reportAttributeAccessIssue]
            molecule.SetProp("_Name", text)
            rows.write(molecule)


def draw(path: Path, smiles: Sequence[str], columns: int = 4) -> None:
    """A grid of structures, each above its SMILES."""
    check_ending(path, DRAWINGS)
    require_rdkit(f"to draw {path.name}")
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".png":
        molecule_grid(list(smiles), min(columns, len(smiles))).save(path)
    else:
        path.write_text(as_svg(smiles, columns), encoding="utf-8")


def as_svg(smiles: Sequence[str], columns: int) -> str:
    from rdkit.Chem.Draw import rdMolDraw2D

    columns, (width, height) = min(columns, len(smiles)), CELL
    rows = -(-len(smiles) // columns)
    drawer = rdMolDraw2D.MolDraw2DSVG(columns * width, rows * height, width, height)
    legends = [s if len(s) <= 34 else f"{s[:31]}..." for s in smiles]
    drawer.DrawMolecules(list(map(molecule_of, smiles)), legends=legends)
    drawer.FinishDrawing()
    return drawer.GetDrawingText()


WRITERS: dict[str, Callable[[Path, Sequence[str]], None]] = {
    ".smi": write_smiles,
    ".smiles": write_smiles,
    ".csv": write_csv,
    ".sdf": write_sdf,
}
