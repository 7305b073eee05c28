"""A report as one HTML file that needs nothing else: no network, no server.

page.html   the frame, with places for what follows
page.css    light, dark, on paper, on a telephone
page.js     tells the probability of a cell of a noise map
"""

import base64
import hashlib
from importlib.resources import files
from string import Template
from typing import NamedTuple

from redraft import __version__
from redraft.report import paper
from redraft.report.markup import Album, Html, joined, tag
from redraft.report.runs import Reported, Told, comparisons_of
from redraft.report.sections import SECTIONS

FOOTER = f"Made by redraft {__version__}. The paper is “{paper.TITLE}”."


class Page(NamedTuple):
    text: str
    album: Album


def page(runs: list[Reported], shown: int) -> Page:
    """All that there is to tell of some runs; `shown` samples of each."""
    told = Told(runs, list(comparisons_of(runs)), Album(), shown)
    parts = {name: (title, tell(told)) for name, (title, tell) in SECTIONS.items()}
    there = {name: part for name, part in parts.items() if part[1]}
    links = (tag("li", tag("a", title, href=f"#{name}")) for name, (title, _) in there.items())
    bodies = (
        tag("section", tag("h2", title), content, id=name)
        for name, (title, content) in there.items()
    )
    style, script = Html(part("page.css")), Html(part("page.js"))
    text = Template(part("page.html")).substitute(
        policy=policy(script),
        title=joined([title_of(told)]),
        lead=joined([lead(told)]),
        style=style,
        contents=tag("ol", *links),
        body=joined(bodies),
        footer=joined([FOOTER]),
        script=script,
    )
    return Page(text, told.album)


def part(name: str) -> str:
    return (files("redraft.report") / name).read_text(encoding="utf-8")


def policy(script: str) -> str:
    """Nothing is ever fetched, and no other script than the page's own runs."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = f"style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
    return f"default-src 'none'; {allowed}"


def title_of(told: Told) -> str:
    return f"{told.domain.capitalize()}: a report of {count(len(told.runs), 'run')}"


def lead(told: Told) -> str:
    names = "; ".join(run.name for run in told.runs)
    machines = dict.fromkeys(str(run.summary.get("hardware", "")) for run in told.runs)
    return f"{names}. Trained on {' and '.join(filter(None, machines)) or 'an unknown machine'}."


def count(n: int, what: str) -> str:
    return f"{n} {what}{'s' * (n != 1)}"
