"""Molecules drawn in rows and columns."""

import math
from typing import TYPE_CHECKING, Any

from matplotlib import font_manager

from redraft.data.molecules import parse
from redraft.report.style import INK, Names, shortened

if TYPE_CHECKING:
    from PIL.Image import Image

CELL = (300, 240)  # pixels, of which the legend takes the lowest


def molecule_grid(smiles: Names, columns: int = 4, legends: Names | None = None) -> "Image":
    """Drawn molecules, row by row; a string that is no molecule is a frame around its text."""
    from PIL import Image

    width, height = CELL
    columns = max(min(columns, len(smiles)), 1)
    lines = max(math.ceil(len(smiles) / columns), 1)
    picture = Image.new("RGB", (columns * width, lines * height), "white")
    for n, text in enumerate(smiles):
        legend = None if legends is None else legends[n]
        line, column = divmod(n, columns)
        picture.paste(_molecule(text, legend), (column * width, line * height))
    return picture


def _molecule(smiles: str, legend: str | None) -> "Image":
    """One cell: a drawing, or the text of what cannot be drawn, with its legend below."""
    from PIL import Image, ImageDraw

    width, height = CELL
    cell = Image.new("RGB", CELL, "white")
    pen = ImageDraw.Draw(cell)
    below = 8 if legend is None else 28
    drawing = _drawing(smiles, (width - 16, height - below - 8))
    if drawing is not None:
        cell.paste(drawing, (8, 8))
    else:
        pen.rectangle((8, 8, width - 8, height - below), outline="#BBBBBB", width=2)
        text = "\n".join(_wrapped(smiles or "(empty)", 28, 8))
        pen.multiline_text(
            (width / 2, (height - below) / 2),
            text,
            fill="#777777",
            font=_font(14, mono=True),
            anchor="mm",
            align="center",
        )
    font = _font(14)
    legend = legend or ""
    room = int(len(legend) * (width - 12) / max(font.getlength(legend), width - 12))
    pen.text((width / 2, height - 14), shortened(legend, room), INK, font, anchor="mm")
    return cell


def _drawing(smiles: str, size: tuple[int, int]) -> "Image | None":
    """RDKit's picture; None for what does not parse, or has no atoms."""
    import io

    from PIL import Image
    from rdkit.Chem.Draw import rdMolDraw2D

    if (molecule := parse(smiles)) is None:
        return None
    canvas = rdMolDraw2D.MolDraw2DCairo(*size)
    options = canvas.drawOptions()
    options.fixedBondLength = 28  # pixels at most: a small molecule does not fill its cell
    options.padding = 0.06
    rdMolDraw2D.PrepareAndDrawMolecule(canvas, molecule)
    canvas.FinishDrawing()
    return Image.open(io.BytesIO(canvas.GetDrawingText())).convert("RGB")


def _wrapped(text: str, width: int, most: int) -> list[str]:
    """Lines of at most `width` characters; SMILES have no spaces to break at."""
    lines = [text[n : n + width] for n in range(0, len(text), width)]
    return lines if len(lines) <= most else [*lines[: most - 1], "…"]


def _font(size: int, mono: bool = False) -> Any:
    """The font that comes with matplotlib."""
    from PIL import ImageFont

    family = "DejaVu Sans Mono" if mono else "DejaVu Sans"
    return ImageFont.truetype(font_manager.findfont(family), size)
