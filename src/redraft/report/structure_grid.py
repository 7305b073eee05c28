"""Molecules of a page, each by itself, so that their rows are as long as the page is wide."""

import math
from collections.abc import Mapping, Sequence

from redraft.report.grid import molecule_grid
from redraft.report.markup import Album, Html, tag
from redraft.report.structure import HEIGHT, WIDTH, placed, structure

COLUMNS = 4


def first_valid(samples: Sequence[str], n: int) -> tuple[dict[str, str], int]:
    """The first n different ones that are molecules, drawn, and how many samples that took."""
    found: dict[str, str] = {}
    for seen, smiles in enumerate(samples, 1):
        if drawing := structure(smiles):
            found[smiles] = drawing
        if len(found) == n:
            return found, seen
    return found, len(samples)


def structure_grid(album: Album, name: str, drawings: Mapping[str, str], caption: str) -> Html:
    """Structures above their SMILES."""
    smiles = list(drawings)
    album.keep(
        name,
        whole(list(drawings.values())),
        lambda path: molecule_grid(smiles, COLUMNS, smiles).save(path),
    )
    items = (
        tag("li", tag("div", Html(drawing), class_="structure"), tag("code", text))
        for text, drawing in drawings.items()
    )
    return tag("figure", tag("ul", *items, class_="molecules"), tag("figcaption", caption))


def whole(drawings: list[str]) -> str:
    """All of them in one drawing, of a fixed number of columns."""
    lines = math.ceil(len(drawings) / COLUMNS)
    cells = (
        placed(drawing, n % COLUMNS * WIDTH, n // COLUMNS * HEIGHT)
        for n, drawing in enumerate(drawings)
    )
    size = f'width="{COLUMNS * WIDTH}" height="{lines * HEIGHT}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{"".join(cells)}</svg>\n'
