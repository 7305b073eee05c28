"""The site that make site builds: what it links to is there, and it needs nothing else."""

import re
import runpy
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).parents[1]
site = runpy.run_path(str(ROOT / "scripts" / "make_site.py"))


class Read(HTMLParser):
    """A page as a browser meets it."""

    def __init__(self, path: Path):
        super().__init__()
        self.path = path
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[str] = []
        self.prose, self.title, self.comments = "", "", ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.inside.append(tag)

    def handle_endtag(self, tag):
        while self.inside and self.inside.pop() != tag:
            pass

    def handle_data(self, data):
        if self.inside[-1:] == ["title"]:
            self.title += data
        elif not {"code", "style"} & {*self.inside}:
            self.prose += data

    def handle_comment(self, data):
        self.comments += data

    def all(self, name: str) -> list[str]:
        return [attrs[name] or "" for _, attrs in self.tags if name in attrs]

    def links(self) -> list[str]:
        """Those that stay within the site."""
        return [link for link in self.all("href") + self.all("src") if not urlsplit(link).scheme]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Read]:
    folder = tmp_path_factory.mktemp("site")
    site["build"](folder)
    return {path.relative_to(folder).as_posix(): Read(path) for path in folder.rglob("*.html")}


def test_every_page_is_there(pages: dict[str, Read]):
    docs = {f"{path.stem}.html" for path in (ROOT / "docs").glob("*.md")}
    notebooks = {f"notebooks/{path.stem}.html" for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert {"README.html", "CONTRIBUTING.html", "CHANGELOG.html"} | docs | notebooks <= pages.keys()
    for name, page in pages.items():
        assert page.title.endswith("redraft") and "h1" in dict(page.tags), name


def test_links_and_images_lead_somewhere(pages: dict[str, Read]):
    at = {page.path: page for page in pages.values()}
    for name, page in pages.items():
        assert len(set(page.all("id"))) == len(page.all("id")), name
        for link in page.links():
            path, _, anchor = link.partition("#")
            target = (page.path.parent / path).resolve() if path else page.path
            assert target.is_file() and target.suffix != ".md", f"{name}: {link}"
            assert not anchor or anchor in at[target].all("id"), f"{name}: {link}"


def test_nothing_comes_from_a_network(pages: dict[str, Read]):
    for name, page in pages.items():
        assert not {"link", "script", "iframe"} & {tag for tag, _ in page.tags}, name
        assert not [source for source in page.all("src") if urlsplit(source).scheme], name
    style = "".join(path.read_text(encoding="utf-8") for path in site["STYLES"])
    assert not re.search(r"url\(|@import", style)


def test_the_page_itself_is_marked_in_the_contents(pages: dict[str, Read]):
    listed = {site["placed"](path) for _, entries in site["contents"]() for _, path in entries}
    assert {Path("index.html"), Path("README.html"), Path("notebooks/molecules.html")} <= listed
    for name, page in pages.items():
        marked = [attrs.get("href") for _, attrs in page.tags if "aria-current" in attrs]
        assert marked == [page.path.name] * (Path(name) in listed), name


def test_the_contents_are_those_of_the_index(pages: dict[str, Read]):
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    expected = re.findall(r"^## (.*)|\[(.*?)\]\(", text, re.M)
    sections = site["contents"]()
    told = [
        part for title, entries in sections for part in (title, *(words for words, _ in entries))
    ]
    assert told == ["redraft", "Contents", *(title or words for title, words in expected)]
    around = re.findall(r"before: \w+|next: \w+", pages["noise.html"].prose)
    assert around == ["before: Tokenizers", "next: Denoiser"] * 2, "at the top and at the foot"


def test_no_comment_shows(pages: dict[str, Read]):
    for name, page in pages.items():
        assert not page.comments and "<!--" not in page.prose, name
    assert "&lt;!-- table" in site["MARKDOWN"].render("but in code: `<!-- table -->`")


def test_tables_scroll_and_code_is_coloured(pages: dict[str, Read]):
    tags = pages["experiments.html"].tags
    before = [tags[i - 1] for i, (tag, _) in enumerate(tags) if tag == "table"]
    scrolls = {"class": "scroll", "tabindex": "0"}  # by keys, too
    assert before and all(each == ("div", scrolls) for each in before)
    assert all(own == {"tabindex": "0"} for tag, own in tags if tag == "pre")
    assert '<span class="kn">import</span>' in pages["data.html"].path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("Tokens drawn anew", "tokens-drawn-anew"),
        ("The paper's size: 450 s (one `H200`)", "the-papers-size-450-s-one-h200"),
        ("[0.1.0] - [not](x.md) *yet*", "010---not-yet"),
        ("Fréchet_distance", "fréchet_distance"),
    ],
)
def test_anchors_are_those_of_code_hosts(heading: str, anchor: str):
    tokens = site["MARKDOWN"].parse(f"# {heading}\n\n## {heading}")
    assert [name for _, name, _ in site["anchor"](tokens)] == [anchor, f"{anchor}-1"]
    assert f'<h1 id="{anchor}">' in site["MARKDOWN"].renderer.render(tokens, {}, {})


def test_a_link_to_nothing_is_one_sentence():
    tokens = site["MARKDOWN"].parse("[here](nothing.md)")
    with pytest.raises(SystemExit, match=r"README\.md links to nothing\.md, which is no file"):
        site["relink"](tokens, ROOT / "README.md")


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_code_can_be_read(scheme: int):
    style = "".join(path.read_text(encoding="utf-8") for path in site["STYLES"])

    def bright(name: str) -> float:
        return luminance(re.findall(rf"--{name}: (#\w{{6}})", style)[scheme])

    colours = {"ink", *re.findall(r"^pre .*\{ color: var\(--(\w+)\)", style, re.M)}
    assert len(colours) == 4 and "pre, :not(pre) > code { background: var(--card)" in style
    for colour in colours:
        low, high = sorted([bright(colour), bright("card")])
        assert (high + 0.05) / (low + 0.05) >= 4.5, colour
