"""The documentation as a site that is read offline: python scripts/make_site.py, or make site.

Pages and all files that they link to become HTML under build/site: notebooks and sources as pages,
images as they are. The look is that of redraft report. markdown-it-py and Pygments come with rich.
"""

import json
import os
import re
import shutil
from collections import Counter
from html import escape
from itertools import pairwise
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

ROOT = Path(__file__).resolve().parents[1]
INDEX = ROOT / "docs" / "index.md"
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
STYLES = (ROOT / "src" / "redraft" / "report" / "page.css", ROOT / "scripts" / "site.css")
IMAGES = (".png", ".svg")

Contents = list[tuple[str, list[tuple[str, Path]]]]


def coloured(code: str, kind: str, _: str) -> str:
    try:
        return highlight(code, get_lexer_by_name(kind), HtmlFormatter(nowrap=True))
    except ClassNotFound:
        return escape(code)


def without_comments(_: Any, tokens: list[Token], i: int, *__: Any) -> str:
    return re.sub(r"<!--.*?-->", "", tokens[i].content, flags=re.DOTALL)


MARKDOWN = MarkdownIt("commonmark", {"highlight": coloured}).enable(["table", "strikethrough"])
MARKDOWN.add_render_rule("html_block", without_comments)
MARKDOWN.add_render_rule("html_inline", without_comments)
MARKDOWN.add_render_rule("table_open", lambda *_: '<div class="scroll" tabindex="0"><table>\n')
MARKDOWN.add_render_rule("table_close", lambda *_: "</table></div>\n")


def tokens_of(source: Path) -> list[Token]:
    """Of Markdown; a notebook is its cells, any other file its name and its text."""
    text = source.read_text(encoding="utf-8")
    if source.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        fence = {"markdown": "{}", "code": "~~~~ python\n{}\n~~~~"}
        text = "\n\n".join(
            fence[cell["cell_type"]].format("".join(cell["source"])) for cell in cells
        )
    elif source.suffix != ".md":
        text = f"# {source.name}\n\n~~~~ {source.suffix[1:]}\n{text.rstrip()}\n~~~~"
    return MARKDOWN.parse(text)


def placed(source: Path) -> Path:
    """Where a file of the repository lies in the site; what docs/ has is at the top."""
    path = Path(source.relative_to(ROOT).as_posix().removeprefix("docs/"))
    return path if path.suffix in IMAGES else path.with_suffix(".html")


def path_to(target: Path, source: Path) -> str:
    """From one file to another, in the site."""
    return Path(os.path.relpath(placed(target), placed(source).parent)).as_posix()


def relink(tokens: list[Token], source: Path) -> list[Path]:
    """Links and images lead to places in the site; returns the files that have to be there."""
    linked = []
    for child in (child for token in tokens for child in token.children or ()):
        for name in child.attrs.keys() & {"href", "src"}:
            link = urlsplit(str(child.attrs[name]))
            if link.path and not link.scheme:
                target = (source.parent / link.path).resolve()
                if not target.is_file():
                    raise SystemExit(f"{source.name} links to {link.path}, which is no file")
                linked.append(target)
                child.attrs[name] = link._replace(path=path_to(target, source)).geturl()
    return linked


def anchor(tokens: list[Token]) -> list[tuple[str, str, str]]:
    """Headings get the ids that code hosts give them, and a link; their tags, ids and words."""
    headings, times = [], Counter()
    for opening, inline in pairwise(tokens):
        if opening.type == "heading_open" and inline.children is not None:
            words = "".join(child.content for child in inline.children)
            name = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
            times[name] += 1
            unique = name if times[name] == 1 else f"{name}-{times[name] - 1}"
            opening.attrSet("id", unique)
            link = f'<a class="anchor" href="#{unique}" aria-label="Link to this heading">#</a>'
            inline.children.append(Token("html_inline", "", 0, content=link))
            headings.append((opening.tag, unique, words))
    return headings


def contents() -> Contents:
    """What the index links to, under its headings and in its order."""
    sections: Contents = [("redraft", [("Contents", INDEX)])]
    for opening, inline in pairwise(tokens_of(INDEX)):
        if opening.type == "heading_open" and opening.tag == "h2":
            sections.append((inline.content, []))
        for link, words in pairwise(inline.children or ()):
            if link.type == "link_open":
                target = (INDEX.parent / str(link.attrs["href"])).resolve()
                sections[-1][1].append((words.content, target))
    return sections


def sidebar(sections: Contents, source: Path, below: str) -> str:
    """The contents, with the page itself marked, and `below` below it."""
    lines = []
    for title, entries in sections:
        lines.append(f"<p>{escape(title)}</p>\n<ul>")
        for words, target in entries:
            mark, more = (' aria-current="page"', below) if target == source else ("", "")
            lines.append(f'<li><a href="{path_to(target, source)}"{mark}>{escape(words)}</a>{more}')
        lines.append("</ul>")
    return "\n".join(lines)


def page(source: Path, sections: Contents) -> tuple[dict[str, str], list[Path]]:
    """What the template asks for, and the files that the page links to."""
    tokens = tokens_of(source)
    linked, headings = relink(tokens, source), anchor(tokens)
    body = MARKDOWN.renderer.render(tokens, MARKDOWN.options, {})
    body = body.replace("<pre>", '<pre tabindex="0">')  # scrolled by keys, as tables are
    parts = [
        f'<li><a href="#{name}">{escape(words)}</a>' for tag, name, words in headings if tag == "h2"
    ]
    around = re.search(r'<p><a href="[^"]*">Contents</a>.*?</p>', body)
    fields = {
        "title": escape(" · ".join(dict.fromkeys((headings[0][2], "redraft")))),
        "contents": sidebar(sections, source, f"<ul>{''.join(parts)}</ul>" if parts else ""),
        "body": body,
        "around": around[0] if around else "",
        "source": source.relative_to(ROOT).as_posix(),
    }
    return fields, linked


def build(site: Path) -> None:
    template = Template((ROOT / "scripts" / "site.html").read_text(encoding="utf-8"))
    style = "".join(path.read_text(encoding="utf-8") for path in STYLES)
    sections = contents()
    sources = [*sorted(INDEX.parent.glob("*.md")), *PAGES]
    for source in sources:  # which grows by what its pages link to
        place = site / placed(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix in IMAGES:
            shutil.copyfile(source, place)
        else:
            fields, linked = page(source, sections)
            place.write_text(template.substitute(fields, style=style), encoding="utf-8")
            sources += dict.fromkeys(path for path in linked if path not in sources)


if __name__ == "__main__":
    build(ROOT / "build" / "site")
    print("Open build/site/index.html in a browser.")
