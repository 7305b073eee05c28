"""How every figure looks: colours, fonts, one look a method, and how it is saved.

Figures belong to no window: pyplot is never imported, and a user's own settings are neither used
nor changed. Colours are Okabe and Ito's, which colour-blind readers can tell apart; the background
is white and opaque, so that ink stays readable on a dark page.
"""

import io
from pathlib import Path
from typing import NamedTuple

from matplotlib import style
from matplotlib.figure import Figure

from redraft.tokenizers.base import visible

BLUE, SKY, GREEN, PINE = "#0072B2", "#56B4E9", "#009E73", "#004D38"
ORANGE, VERMILLION, PURPLE = "#E69F00", "#D55E00", "#CC79A7"
INK, GREY, PALE = "#222222", "#888888", "#D9D9D9"
STYLE = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "text.color": INK,
    "axes.labelcolor": INK,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.hashsalt": "redraft",  # the same figure is the same file
    "text.parse_math": False,  # a token may be a dollar sign
}
styled = style.context(["default", STYLE])


class Look(NamedTuple):
    """A method, the same in every figure."""

    name: str
    colour: str
    marker: str


LOOKS = {
    "vsdd": Look("VSDD", VERMILLION, "o"),
    "mdlm": Look("MDLM", INK, "s"),
    "fldd": Look("FLDD", ORANGE, "P"),
    "d3pm-uniform": Look("D3PM uniform", BLUE, "^"),
    "d3pm-reinforce": Look("D3PM reinforce", PURPLE, "v"),
    "d3pm-semantic": Look("D3PM semantic", SKY, "D"),
    "d3pm-confusion": Look("D3PM confusion", GREEN, "X"),
    "d3pm-confusion-symmetric": Look("D3PM confusion, symmetric", PINE, "*"),
}


def look(method: str) -> Look:
    """One that has no row above is grey, under its own name."""
    return LOOKS.get(method, Look(method, GREY, "*"))


Names = list[str] | tuple[str, ...]
DOTS = 150
"""An inch."""
DRAWINGS = (".svg", ".png")
"""What a figure can be written as."""


@styled
def save(figure: Figure, path: str | Path) -> Path:
    """Written as SVG where the name ends so, else as PNG at 150 dots an inch."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix.lower() == ".svg":
        path.write_text(svg(figure), encoding="utf-8")
    else:
        figure.savefig(path, format="png", dpi=DOTS)
    return path


@styled
def svg(figure: Figure) -> str:
    """The same figure is the same text; only what is marked as `rasterized` has dots."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None}, dpi=DOTS)
    return text.getvalue()


def token_name(token: str, width: int = 10) -> str:
    """Of at most so many characters, all of them visible."""
    return shortened(visible(token), width)


def shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
