"""A molecule as SVG that may stand in any page: paths alone, and the page's own ink."""

import re
from xml.etree import ElementTree

from redraft.data.molecules import parse

WIDTH, HEIGHT = 300, 220
INK = "#000000"
PALETTE = {
    0: "#888888",  # unknown
    7: "#0072B2",
    8: "#D55E00",
    9: "#009E73",
    15: "#E69F00",
    16: "#B58900",
    17: "#009E73",
    35: "#A0522D",
    53: "#A45A8B",
}
"""Colours of atoms that colour-blind readers can tell apart, on white and on black."""

_PATH = re.compile(r"[MLHVQCZ\d\s.,-]+")
_COLOUR = re.compile(r"none|#[0-9A-F]{6}")
_WIDTH = re.compile(r"(\d+(?:\.\d+)?)(?:px)?")


def structure(smiles: str) -> str | None:
    """None for what does not parse, or has no atoms."""
    from rdkit import rdBase
    from rdkit.Chem.Draw import rdMolDraw2D

    if (molecule := parse(smiles)) is None:
        return None
    with rdBase.BlockLogs():
        drawer = rdMolDraw2D.MolDraw2DSVG(WIDTH, HEIGHT)
        options = drawer.drawOptions()
        options.clearBackground = False
        options.fixedBondLength = 30  # pixels at most: a small molecule does not fill its frame
        options.padding = 0.04
        options.setAtomPalette({-1: _rgb(INK)} | {z: _rgb(c) for z, c in PALETTE.items()})
        rdMolDraw2D.PrepareAndDrawMolecule(drawer, molecule)
    drawer.FinishDrawing()
    return cleaned(drawer.GetDrawingText())


def placed(drawing: str, x: float, y: float) -> str:
    """The same as a part of a larger drawing."""
    return drawing.replace("<svg ", f'<svg x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" ', 1)


def cleaned(drawing: str) -> str:
    """RDKit's drawing with nothing but paths, whose attributes are what they should be."""
    root = ElementTree.fromstring(drawing.encode("iso-8859-1"))
    paths = "".join(_path(e) for e in root.iter() if e.tag.endswith("}path"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}">'
        + paths
        + "</svg>"
    )


def _path(element: ElementTree.Element) -> str:
    style = dict(part.split(":", 1) for part in element.get("style", "").split(";") if ":" in part)
    look = {name: style.get(name) or element.get(name) for name in ("fill", "stroke")}
    d, width = element.get("d", ""), _WIDTH.fullmatch(style.get("stroke-width", "0").strip())
    colours = {name: (value or "none").strip() for name, value in look.items()}
    if not _PATH.fullmatch(d) or not width or not all(map(_COLOUR.fullmatch, colours.values())):
        return ""
    fill, stroke = (c.replace(INK, "currentColor") for c in colours.values())
    return f'<path d="{d}" fill="{fill}" stroke="{stroke}" stroke-width="{width[1]}"/>'


def _rgb(colour: str) -> tuple[float, ...]:
    return tuple(int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5))
