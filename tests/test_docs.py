"""The documentation tells the truth: its Python runs, its commands exist, its links lead somewhere.

A block under `<!-- not run: why -->` is not run. Lines of a block that begin with `#>` are what it
prints, all of it, in that order.
"""

import doctest
import importlib
import io
import itertools
import json
import re
import runpy
import shlex
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

import pytest

import redraft
from redraft import cli, commands, methods

ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [*DOCS, *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

FENCED = re.compile(
    r"^(?P<mark><!-- not run: .+ -->\n)?```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.M | re.S
)


class Block(NamedTuple):
    kind: str
    text: str
    line: int
    """Of the page, where it begins."""
    runs: bool


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(m["kind"], m["text"], text[: m.start("text")].count("\n"), m["mark"] is None)
        for m in FENCED.finditer(text)
    ]


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# ------------------------------------------------------------------ Python

SOURCES = [
    path.relative_to(ROOT / "src")
    for path in sorted((ROOT / "src").rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_examples_of_docstrings_are_true(source: Path):
    module = importlib.import_module(".".join(source.with_suffix("").parts))
    assert doctest.testmod(module).failed == 0


@pytest.fixture
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder and a table of methods that nobody else sees."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRAFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(methods, "METHODS", dict(methods.METHODS))


def run(code: str, where: str, names: dict[str, Any]) -> str:
    """What it prints."""
    said = io.StringIO()
    with redirect_stdout(said):
        exec(compile(code, where, "exec"), names)
    return said.getvalue()


def run_page(page: Path) -> None:
    """From its top to its end; what a block promises to print, it prints."""
    names: dict[str, Any] = {"__name__": page.stem}
    for block in blocks_of(page):
        if block.kind == "python" and block.runs:
            said = run("\n" * block.line + block.text, str(page), names).splitlines()
            promised = re.findall(r"^ *#> (.*)$", block.text, re.M)
            assert said == promised or not promised, f"{page.name}, line {block.line + 1}"


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize("page", [ROOT / "README.md", *DOCS], ids=lambda page: page.stem)
def test_python_runs(page: Path):
    run_page(page)


def test_most_python_is_run_and_prints_what_it_says():
    blocks = [block for page in DOCS for block in blocks_of(page) if block.kind == "python"]
    assert sum(not block.runs for block in blocks) <= 2 < len(blocks)
    assert sum("#> " in block.text for block in blocks) >= 10


def test_a_page_that_lies_is_seen(tmp_path: Path):
    page = tmp_path / "page.md"
    true = (
        "```python\nx = 2\nprint(x)\n#> 2\n```\n\n<!-- not run: slow -->\n```python\n1 / 0\n```\n"
    )
    page.write_text(true, encoding="utf-8")
    run_page(page)
    page.write_text(true.replace("#> 2", "#> 3"), encoding="utf-8")
    with pytest.raises(AssertionError):
        run_page(page)
    page.write_text(true.replace("<!-- not run: slow -->\n", ""), encoding="utf-8")
    with pytest.raises(ZeroDivisionError):
        run_page(page)


def test_a_process_of_your_own_has_thirty_lines():
    first = blocks_of(ROOT / "docs" / "own-process.md")[0].text
    own = first[first.index("\nclass ") :]
    assert sum(bool(line.strip()) for line in first.splitlines()) <= 30
    assert "DenseProcess" in own and "METHODS[" in own


# ------------------------------------------------------------------ commands

COMMAND = re.compile(r"(?:^|[|\s])redraft ([a-z][a-z|]*(?: .*)?)$")


def said_on(page: Path) -> Iterator[str]:
    """What follows `redraft` in every line of code, fenced or indented."""
    shell = [block.text for block in blocks_of(page) if block.kind == "sh"]
    rest = FENCED.sub("", page.read_text(encoding="utf-8"))
    indented = [line[4:] for line in rest.splitlines() if line.startswith("    ")]
    for line in itertools.chain(*(text.splitlines() for text in shell), indented):
        if found := COMMAND.search(re.sub(r"\s#\s.*$", "", line).rstrip()):
            yield found[1]


def arguments(said: str) -> Iterator[list[str]]:
    """The words before a pipe or a file; `sample|infill` is two commands, RECIPE any one."""
    said = re.sub(r'RECIPE|"\$\{[^}]*\}"|\$[A-Z]+', "tiny/vsdd", said)
    words = itertools.takewhile(lambda word: word not in ("|", ">", "<", "&&"), shlex.split(said))
    quoted = re.findall(r"\"[^\"]*\"", said)
    options = [[word] if f'"{word}"' in quoted else word.split("|") for word in words]
    return map(list, itertools.product(*options))


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that are understood, and do nothing."""
    for command in commands.COMMANDS.values():
        monkeypatch.setattr(command, "run", lambda self: None)


@pytest.mark.usefixtures("idle", "apart")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_are_understood(page: Path, capsys: pytest.CaptureFixture[str]):
    Path("my-recipe.toml").write_text('method = "vsdd"\n', encoding="utf-8")
    for said in dict.fromkeys(said_on(page)):
        for words in arguments(said):
            assert cli.main(words) == 0, f"redraft {said}\n{capsys.readouterr().err}"


@pytest.mark.usefixtures("idle", "apart")
@pytest.mark.parametrize("wrong", ["trian tiny/vsdd", "sample --vaild", "train tiny/nothing"])
def test_a_command_that_is_not_there_is_seen(wrong: str):
    (words,) = arguments(wrong)
    assert cli.main(words) == 2


def test_pipes_files_and_choices_are_told_from_arguments():
    assert list(arguments('repair "a|b" x.smi > y.tsv')) == [["repair", "a|b", "x.smi"]]
    assert list(arguments("sample|infill -n 3 | head")) == [
        ["sample", "-n", "3"],
        ["infill", "-n", "3"],
    ]


FLAG = re.compile(r"(?<![\w-])--?[a-z][\w.-]*")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_in_the_text_exist(
    page: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "200")
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    for said in dict.fromkeys(re.findall(r"`redraft ([a-z][^`]*)`", text)):
        for words in arguments(said):
            inner = words[1:2] if words[0] == "playlist" else []
            assert cli.main([words[0], *inner, "--help"]) == 0, f"redraft {said}"
            known = FLAG.findall(capsys.readouterr().out)
            assert set(FLAG.findall(" ".join(words))) <= set(known), f"redraft {said}"


def test_make_knows_what_pages_ask_of_it():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        asked = set(re.findall(r"(?:^    |`|\n)make ([a-z-]+)(?=[`\s])", text))
        assert asked <= targets, f"{named(page)}: {asked - targets}"


# ------------------------------------------------------------------ links


def links_of(page: Path) -> list[str]:
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    found = re.findall(r"\]\(([^)\s]+)\)", text)
    return [link for link in found if not re.match(r"\w+:", link)]


def anchors_of(page: Path) -> set[str]:
    """As code hosts make them from headings."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path):
    for link in links_of(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{named(page)}: {link}"
        assert not anchor or anchor in anchors_of(target), f"{named(page)}: {link}"


def test_every_page_is_in_the_contents():
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in links_of(index)}
    assert {*DOCS, *NOTEBOOKS} - {index} <= linked


def test_one_version_is_told():
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^## \[(\d.*?)\]", changes, re.M)[0] == redraft.__version__
    assert re.findall(r"^version: (.*)$", citation, re.M) == [redraft.__version__]


# ------------------------------------------------------------------ make dist


def test_a_wheel_that_lacks_a_file_is_refused(tmp_path: Path):
    smoke = runpy.run_path(str(ROOT / "scripts" / "smoke.py"))
    package = [f"redraft/{name}" for name in smoke["files_under"](ROOT / "src/redraft")]
    recipes = [f"redraft/recipes/{name}" for name in smoke["files_under"](ROOT / "recipes")]
    assert {"redraft/web/static/index.html", "redraft/report/page.html"} <= set(package)
    wheel = tmp_path / "redraft-1-py3-none-any.whl"

    def hold(names: list[str]) -> None:
        with ZipFile(wheel, "w") as archive:
            for name in names:
                archive.writestr(name, "")

    hold(package + recipes)
    smoke["look_into"](wheel)
    hold(package + recipes[1:])
    with pytest.raises(SystemExit, match=re.escape(recipes[0])):
        smoke["look_into"](wheel)


# ------------------------------------------------------------------ notebooks


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path: Path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    names: dict[str, Any] = {"__name__": path.stem}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    for number, cell in enumerate(cells, 1):
        assert cell["outputs"] == [] and cell["execution_count"] is None, "saved without outputs"
        run("".join(cell["source"]), f"{named(path)}, cell {number}", names)
