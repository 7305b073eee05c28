"""HTML, in which plain text is escaped wherever it stands, and figures that stand in a page."""

import html
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, count
from pathlib import Path

from matplotlib.figure import Figure

from redraft.report import style


class Html(str):
    """Text that is marked up already; any other text is escaped."""


def tag(name: str, *content: str, **attributes: object) -> Html:
    """
    >>> tag("p", "a < b ", tag("b", "c"), class_="note")
    '<p class="note">a &lt; b <b>c</b></p>'
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
    )
    return Html(f"<{name}{given}>{joined(content)}</{name}>")


def joined(parts: Iterable[str]) -> Html:
    return Html("".join(part if isinstance(part, Html) else html.escape(part) for part in parts))


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    caption: str,
    note: str = "",
    kind: str = "table",
) -> Html:
    """Rows by their first cell; it scrolls by itself where it is wider than the page.

    Cells are text, or marked up as cells already. In a slim one, intervals are beside numbers.
    """
    titles = tag("tr", *(tag("th", title, scope="col") for title in head))
    body = (
        tag("tr", tag("th", first, scope="row"), *map(_cell, others)) for first, *others in rows
    )
    inner = tag("table", tag("thead", titles), tag("tbody", *body))
    scroll = tag("div", inner, class_="scroll", tabindex=0, role="region", aria_label=caption)
    text = tag("figcaption", tag("b", caption), f" {note}" if note else "")
    return tag("figure", text, scroll, class_=kind)


def _cell(content: str) -> Html:
    done = isinstance(content, Html) and content.startswith("<td")
    return Html(content) if done else tag("td", content)


def slug(text: str) -> str:
    """A part of a file's name.

    >>> slug("VSDD, molecules/vsdd")
    'vsdd-molecules-vsdd'
    """
    return "-".join(re.findall(r"[a-z0-9]+", text.lower()))


def commands(lines: Iterable[str]) -> Html:
    return tag("pre", tag("code", "\n".join(lines)), tabindex=0)


# ------------------------------------------------------------------ figures


class Album:
    """The figures of a page, which can be saved as files, too."""

    def __init__(self):
        self.svg: dict[str, str] = {}
        self.png: dict[str, Callable[[Path], object]] = {}

    def add(self, name: str, figure: Figure, caption: str, over: str = "", **more: str) -> Html:
        """A drawing above what is to be seen in it; `over` lies on it, in points."""
        name = self.keep(name, style.svg(figure), lambda path: style.save(figure, path))
        drawing = inline(self.svg[name], name, caption, over)
        scroll = tag("div", drawing, class_="scroll plot")
        return tag("figure", scroll, tag("figcaption", caption), id=f"figure-{name}", **more)

    def keep(self, name: str, svg: str, png: Callable[[Path], object]) -> str:
        """The name under which it was kept: another one where this one was taken."""
        names = chain([name], (f"{name}-{n}" for n in count(2)))
        free = next(own for own in names if own not in self.svg)
        self.svg[free], self.png[free] = svg, png
        return free

    def save(self, folder: Path) -> list[Path]:
        """Every figure as NAME.svg and NAME.png."""
        folder.mkdir(parents=True, exist_ok=True)
        paths = []
        for name, text in self.svg.items():
            svg, png = (folder / f"{name}.{ending}" for ending in ("svg", "png"))
            svg.write_text(text, encoding="utf-8")
            self.png[name](png)
            paths += [svg, png]
        return paths


def inline(svg: str, name: str, label: str, over: str) -> Html:
    """A drawing of matplotlib's as a part of a page: its ids are its own, its size is the page's.

    Its text is drawn as paths; what it says stands in comments, which go.
    """
    inner = svg[svg.index("<svg") :]
    inner = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", "", inner, flags=re.S)
    inner = re.sub(r'(\bid="|href="#|url\(#)', rf"\1{name}-", inner)
    width, height = map(float, re.findall(r'(?:width|height)="([\d.]+)pt"', inner)[:2])
    body = inner[inner.index(">") + 1 : inner.rindex("</svg>")]
    box = f'viewBox="0 0 {width:g} {height:g}" style="max-width: {width / 72:.2f}in"'
    links = 'xmlns:xlink="http://www.w3.org/1999/xlink"'
    label = html.escape(label)
    return Html(f'<svg {box} {links} role="img" aria-label="{label}">{body}{over}</svg>')
