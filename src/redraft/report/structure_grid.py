"""Molecules of a page, each by itself, so that their rows are as long as the page is wide."""

import html
import math
from pathlib import Path

from redraft.data.molecules import rdkit_version
from redraft.report.grid import molecule_grid
from redraft.report.markup import Album, Html, tag
from redraft.report.structure import HEIGHT, WIDTH, placed, structure
from redraft.report.style import GREY, shortened

COLUMNS = 4


def structure_grid(album: Album, name: str, smiles: list[str], caption: str) -> Html:
    """Structures above their SMILES; without RDKit the SMILES alone."""
    there = rdkit_version() is not None
    drawings = [structure(text) if there else None for text in smiles]
    if there:
        album.keep(name, whole(smiles, drawings), lambda path: png(path, smiles))
    items = (
        tag(
            "li",
            tag("div", Html(drawing) if drawing else "not valid" * there, class_="structure"),
            tag("code", text),
        )
        for text, drawing in zip(smiles, drawings, strict=True)
    )
    return tag("figure", tag("ul", *items, class_="molecules"), tag("figcaption", caption))


def png(path: Path, smiles: list[str]) -> None:
    molecule_grid(smiles, COLUMNS, smiles).save(path)


def whole(smiles: list[str], drawings: list[str | None]) -> str:
    """All of them in one drawing, of a fixed number of columns."""
    lines = math.ceil(len(smiles) / COLUMNS)
    cells = (
        cell(text, drawing, n % COLUMNS * WIDTH, n // COLUMNS * HEIGHT)
        for n, (text, drawing) in enumerate(zip(smiles, drawings, strict=True))
    )
    size = f'width="{COLUMNS * WIDTH}" height="{lines * HEIGHT}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{"".join(cells)}</svg>\n'


def cell(text: str, drawing: str | None, x: int, y: int) -> str:
    if drawing is not None:
        return placed(drawing, x, y)
    at = f'x="{x + WIDTH / 2}" y="{y + HEIGHT / 2}" text-anchor="middle"'
    look = f'font-family="monospace" font-size="12" fill="{GREY}"'
    return f"<text {at} {look}>{html.escape(shortened(text, 36))}</text>"
