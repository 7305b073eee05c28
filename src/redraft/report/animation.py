"""A sequence that is re-drafted before one's eyes: one SVG that moves by itself, in any page."""

from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import NamedTuple

from redraft.report import structure
from redraft.report.style import GREY, INK, VERMILLION, Names, token_name
from redraft.terminal import Frames
from redraft.tokenizers.base import EOS, PAD

WIDTH, HEIGHT = 880, 260
LEFT, TOP, LINE, LETTER, GAP = 28, 74, 30, 9.7, 9  # pixels, of 16 pixel letters
SECONDS, REST = 0.16, 3.0
"""That a frame is seen, and the last one."""

Draw = Callable[[str], str | None]
"""A picture of a text as `structure` draws it, or None where it is none."""


class Shot(NamedTuple):
    label: str
    tokens: list[str]
    changed: list[bool]
    picture: str | None


def animation(frames: Frames, tokens: Names, draw: Draw, title: str) -> str:
    """Frames (t, ids), one after the other; what has changed is marked."""
    shots = list(shots_of(frames, tokens, draw))
    whole = SECONDS * (len(shots) - 1) + REST
    groups = (group(shot, n, len(shots)) for n, shot in enumerate(shots))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img" color="{INK}">'
        f"<title>{escape(title)}</title><style>{style(len(shots), whole)}</style>"
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="10" fill="#ffffff"/>{"".join(groups)}</svg>\n'
    )


def shots_of(frames: Frames, tokens: Names, draw: Draw) -> Iterator[Shot]:
    before: Sequence[int] = ()
    for t, ids in frames:
        own = [int(i) for i in ids if i != PAD]
        end = own.index(EOS) if EOS in own else len(own)
        changed = [n >= len(before) or i != before[n] for n, i in enumerate(own)]
        text = "".join(tokens[i] for i in own[:end])
        names = [token_name(tokens[i], 12) for i in own]
        yield Shot(f"t = {t}", names, changed if before else [False] * len(own), draw(text))
        before = own


def style(n: int, whole: float) -> str:
    """Each frame is seen in its turn; who wants no motion sees the last one."""
    share, rest = 100 * SECONDS / whole, 100 * REST / whole
    turns = "".join(f".f{i}{{animation-delay:{i * SECONDS:.2f}s}}" for i in range(n))
    return (
        "text{font:16px ui-monospace,Menlo,Consolas,monospace;white-space:pre}"
        f".label{{fill:{GREY}}}.new{{fill:{VERMILLION};font-weight:bold}}"
        f".f{{visibility:hidden;animation:turn {whole:.2f}s step-end infinite}}"
        f"@keyframes turn{{0%{{visibility:visible}}{share:.3f}%,100%{{visibility:hidden}}}}"
        f"@keyframes last{{0%{{visibility:visible}}{rest:.3f}%,100%{{visibility:hidden}}}}"
        f"{turns}.f{n - 1}{{animation-name:last}}"
        "@media(prefers-reduced-motion){.f{animation:none}"
        f".f{n - 1}{{visibility:visible}}}}"
    )


def group(shot: Shot, n: int, of: int) -> str:
    """One frame: the time, how far it is, tokens in lines, and the picture."""
    reach = WIDTH - 2 * LEFT
    bar = f'<rect x="{LEFT}" y="46" height="3" width="{reach * (n + 1) / of:.0f}" fill="{GREY}"/>'
    label = f'<text class="label" x="{LEFT}" y="34">{escape(shot.label)}</text>'
    return f'<g class="f f{n}">{label}{bar}{"".join(words(shot))}{picture(shot.picture)}</g>'


def words(shot: Shot) -> Iterator[str]:
    x, y = float(LEFT), float(TOP + LINE)
    for token, changed in zip(shot.tokens, shot.changed, strict=True):
        width = LETTER * len(token)
        if x + width > WIDTH - structure.WIDTH - LEFT:
            x, y = float(LEFT), y + LINE
        mark = ' class="new"' if changed else ""
        yield f'<text x="{x:.0f}" y="{y:.0f}"{mark}>{escape(token)}</text>'
        x += width + GAP


def picture(drawn: str | None) -> str:
    x, y = WIDTH - structure.WIDTH - 8, 38
    if drawn is None:
        middle = f'x="{x + structure.WIDTH / 2:.0f}" y="{y + structure.HEIGHT / 2:.0f}"'
        return f'<text class="label" {middle} text-anchor="middle">not valid yet</text>'
    return structure.placed(drawn, x, y)
