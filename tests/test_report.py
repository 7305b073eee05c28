"""`redraft report`: one file that tells what the runs hold, and needs nothing else."""

import base64
import dataclasses
import hashlib
import html
import io
import json
import re
import shutil
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest
import tyro
from hypothesis import given
from hypothesis import strategies as st
from mistakes import message
from PIL import Image
from tiny import on_lines, tiny, write_lines

import redraft
from redraft.cli import main
from redraft.commands.reporting import Report
from redraft.config import Config, read_recipe, recipe_names
from redraft.experiments.drawn import DOMAINS
from redraft.experiments.editing import Draft
from redraft.experiments.noise import Kernel
from redraft.folder import put
from redraft.report import learned_noise, paper, runs, sections, style
from redraft.report.markup import Album, Html, joined, tag
from redraft.report.measures import measure
from redraft.report.noise_maps import noise_maps
from redraft.report.noise_scatter import pairs
from redraft.report.numbers import apart, by_level, differences, measured, named_rows
from redraft.report.page import Page, page
from redraft.report.runs import Comparison, Difference, Reported, Told, gather, is_plain, with_names
from redraft.report.sections import SECTIONS, SHOWN, edited, marked, samples, toml
from redraft.tokenizers.base import EOS

NOWHERE = Path("/nowhere")
METHODS = ("mdlm", "vsdd")
OF_STORIES = ("temperature", "variety")
"""Sections that molecules do not have."""


@pytest.fixture(scope="module")
def compared(tmp_path_factory) -> Path:
    """What `redraft compare` leaves of two recipes, which are tiny and have fewer steps, too."""
    root = tmp_path_factory.mktemp("report")
    for method in METHODS:
        config = tiny(method)
        config = dataclasses.replace(config, noise=dataclasses.replace(config.noise, T=6))
        (root / f"{method}.toml").write_text(toml(config), encoding="utf-8")
    recipes = [str(root / f"{method}.toml") for method in METHODS]
    few = ["-n", "40", "--fewer", "30", "--redrafts", "8"]
    assert main(["compare", *recipes, *few, "--out", str(root / "out")]) == 0
    return root / "out"


@pytest.fixture(scope="module")
def found(compared: Path) -> list[Reported]:
    return gather([compared], NOWHERE, 12)


@pytest.fixture(scope="module")
def made(found: list[Reported]) -> Page:
    return page(found, 12)


@pytest.fixture(scope="module")
def text(made: Page) -> str:
    return made.text


def of_method(found: list[Reported], method: str) -> Reported:
    (run,) = (run for run in found if run.config.method == method)
    return run


class Seen(HTMLParser):
    """Elements with their attributes, and the text that a reader sees."""

    def __init__(self, source: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text, self.scripts, self.inside = "", "", ""
        self.feed(source)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, {key: value or "" for key, value in attrs}))
        self.inside = tag

    def handle_endtag(self, tag):
        self.inside = ""

    def handle_data(self, data):
        if self.inside == "script":
            self.scripts += data
        elif self.inside != "style":
            self.text += data

    def all(self, name: str) -> list[dict[str, str]]:
        return [attributes for tag, attributes in self.elements if tag == name]


# ------------------------------------------------------------------ what it holds


def test_everything_that_was_measured_is_told(found, text):
    seen = Seen(text)
    assert [own["id"] for own in seen.all("section")] == [
        name for name in SECTIONS if name not in OF_STORIES
    ]
    for run in found:
        for result in run.results.values():
            for name, metric in result["metrics"].items():
                value, ends = measure(name).interval(metric)
                assert f"<span>{value}</span> <small>{ends}</small>" in text, name
        assert run.name in seen.text and run.summary["commit"] in seen.text
        assert f"among the first {len(run.samples)} samples" in seen.text  # too few are valid


def test_differences_are_those_of_the_comparison(compared, text):
    rows = json.loads((compared / "comparison.json").read_text())["differences"]
    assert rows
    for row in rows:
        value, ends = measure(row["metric"]).interval(row, "+")
        sure = "b" if row["low"] > 0 or row["high"] < 0 else "span"
        assert f"<td><{sure}>{value}</{sure}> <small>{ends}</small></td>" in text


@pytest.mark.parametrize(
    "metric, ends, told",
    [
        ("validity", (0.1, 0.3), "<b>+20.0</b> <small>+10.0 to +30.0</small>"),
        ("validity", (-0.3, -0.1), "<b>-20.0</b> <small>-30.0 to -10.0</small>"),
        ("diversity", (-0.1, 0.3), "<span>+0.100</span> <small>-0.100 to +0.300</small>"),
        ("judge_perplexity_ratio", (0.5, 1.5), "<span>1.000</span> <small>0.500 to 1.500</small>"),
        ("judge_perplexity_ratio", (0.5, 0.7), "<b>0.600</b> <small>0.500 to 0.700</small>"),
    ],
)
def test_bold_is_what_is_different(metric, ends, told):
    estimate = {"value": sum(ends) / 2, "low": ends[0], "high": ends[1]}
    assert apart(metric, estimate) == f"<td>{told}</td>"


def test_more_runs_make_differences_longer_and_no_wider(found):
    estimate = {"value": 0.1, "low": 0.0, "high": 0.2}

    def shape(n: int) -> tuple[int, int]:
        runs = [dataclasses.replace(found[0], name=f"run {k}") for k in range(n)]
        metrics = ("validity@20", "similarity@20", "validity@40")
        rows = [Difference(run, "redrafting", name, estimate) for run in runs for name in metrics]
        seen = Seen(differences(Comparison([], found[1], rows)))
        scopes = [own["scope"] for own in seen.all("th")]
        return scopes.count("col"), scopes.count("row")

    assert shape(1) == (4, 2) and shape(9) == (4, 18)
    assert differences(Comparison([], found[1], [])) == ""


def test_many_measures_are_in_several_tables(found):
    """Each has the runs that it tells something of."""
    one = {"value": 0.25, "low": 0.125, "high": 0.5}
    result = {
        **found[0].results["generation"],
        "metrics": {f"measure {n}": one for n in range(8)},
        "scale": {"random": {"measure 1": one}},
    }
    told = of_domain(found[0], "molecules", results={"generation": result})
    tables = re.findall(r"<table>(.*?)</table>", measured(told, "generation"), re.DOTALL)
    assert [own.count('scope="col"') for own in tables] == [5, 5]
    assert [own.count("(random)") for own in tables] == [1, 0]


def test_the_paper_s_column_stands_beside_ours(text):
    for method in METHODS:
        row = paper.NUMBERS["molecules", "generation"][method]
        assert f'<td class="paper">{100 * row["validity"]:.1f}</td>' in text
    assert paper.TITLE in text and html.escape(paper.CONDITIONS["molecules"]) in text


def test_another_judge_has_no_perplexity_beside_it():
    result = {"domain": "stories", "experiment": "generation", "method": "vsdd"}
    own = paper.beside({**result, "judge": "gpt2-0123456789abcdef"})
    assert own == paper.NUMBERS["stories", "generation"]["vsdd"]
    for judge in ("smollm2-0123456789abcdef", "gpt2-large-0123456789abcdef"):
        other = paper.beside({**result, "judge": judge})
        assert set(own) - set(other) == {"judge_perplexity"}


def test_every_figure_and_table_says_what_to_see(text):
    figures = text.split("<figure")[1:]
    assert len(figures) > 10
    for figure in figures:
        (caption,) = re.findall(r"<figcaption>(.*?)</figcaption>", figure, re.DOTALL)
        assert len(caption) > 30


def test_a_run_alone_is_told_as_far_as_it_is_known(molecules, tmp_path):
    (run,) = gather([molecules], NOWHERE, 5)
    seen = Seen(page([run], 5).text)
    sections = {own["id"] for own in seen.all("section")}
    assert sections == set(SECTIONS) - {"redrafting", "steps", "renewal", *OF_STORIES}
    assert "Not measured: VSDD" in seen.text
    assert run.samples == redraft.load(molecules, "cpu").sample(5, seed=run.config.seed)
    assert run.summary["commit"] == json.loads((molecules / "config.json").read_text())["commit"]


def test_lines_of_one_s_own_are_told_too(tmp_path):
    redraft.train(on_lines("vsdd", write_lines(tmp_path / "my.txt")), tmp_path / "run")
    (run,) = gather([tmp_path / "run"], NOWHERE, 3)
    text = page([run], 3).text
    assert "\n".join(map(html.escape, run.samples)) in text
    assert "redraft train run.toml --seed 0" in text


def test_the_same_runs_give_the_same_file(compared, text):
    assert page(gather([compared], NOWHERE, 12), 12).text == text


# ------------------------------------------------------------------ one file


def test_nothing_is_fetched(text):
    seen = Seen(text)
    for tag_name, attributes in seen.elements:
        for key in ("src", "href", "xlink:href", "action", "data", "poster", "srcset"):
            target = attributes.get(key, "#")
            assert target.startswith(("#", "data:image/png;base64,")), (tag_name, target)
    outside = re.findall(r"url\((?!#)|@import|https?://", re.sub(r'xmlns(:\w+)?="[^"]*"', "", text))
    assert not outside
    (policy,) = (own["content"] for own in seen.all("meta") if "http-equiv" in own)
    digest = base64.b64encode(hashlib.sha256(seen.scripts.encode()).digest()).decode()
    assert policy.startswith("default-src 'none'") and f"script-src 'sha256-{digest}'" in policy


def test_ids_are_unique_and_links_lead_somewhere(text):
    seen = Seen(text)
    ids = [attributes["id"] for _, attributes in seen.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = [own.get("href") or own.get("xlink:href") or "" for _, own in seen.elements]
    links = [target for target in targets if target[:1] == "#"]
    links += [f"#{name}" for name in re.findall(r"url\(#([^)]+)\)", text)]
    assert len(links) > 100 and {link[1:] for link in links} <= set(ids)


EVIL = "</script><script>alert(1)</script><img src=x onerror='alert(1)'>\"'&$body"


def test_nothing_of_a_run_is_taken_for_markup(found, text):
    run = of_method(found, "vsdd")
    assert run.kernel is not None
    tokens = [EVIL if name == "C" else name for name in run.kernel.tokens]
    noise = json.loads(json.dumps(run.results["noise"]).replace('"C"', json.dumps(EVIL)))
    config = dataclasses.replace(run.config, data=dataclasses.replace(run.config.data, file=EVIL))
    hostile = dataclasses.replace(
        run,
        name=EVIL,
        folder=run.folder.with_name(f"{EVIL.replace('/', '')}"),
        config=config,
        summary=dict.fromkeys(("data", "items", "hardware", "recipe", "commit"), EVIL)
        | {key: run.summary[key] for key in ("steps", "seconds")},
        kernel=dataclasses.replace(run.kernel, tokens=tokens),
        samples=[EVIL],
        results=run.results | {"noise": noise},
    )
    seen = Seen(page([hostile], 1).text)
    assert seen.scripts == Seen(text).scripts and not seen.all("img")
    assert not any(key.startswith("on") for _, own in seen.elements for key in own)
    assert seen.text.count(EVIL) > 8


MARKS = st.text("<>&\"'=/ab")


@given(st.lists(MARKS), MARKS)
def test_text_stays_text(parts, value):
    seen = Seen(tag("p", *parts, title=value))
    assert [name for name, _ in seen.elements] == ["p"]
    assert seen.text == "".join(parts)
    assert seen.elements[0][1]["title"] == value
    assert joined([Html("<b>")]) == "<b>"


# ------------------------------------------------------------------ noise


def test_a_cell_tells_the_kernel_s_probability(found, text):
    kernel = of_method(found, "vsdd").kernel
    assert kernel is not None
    (own,) = (a["data-noise"] for a in Seen(text).all("figure") if "data-noise" in a)
    told = json.loads(own)
    places = [kernel.tokens.index(name) - EOS for name in told["names"]]
    assert told["times"] == [1, 3, 6] and len(places) == len(set(places)) == 24
    for t, ratios in zip(told["times"], told["ratios"], strict=True):
        M = kernel.M[t - 1][np.ix_(places, places)]
        assert all(ratios[i][i] is None for i in range(24))
        given_ = np.array(ratios, dtype=float) * told["uniform"]
        off = ~np.eye(24, dtype=bool)
        np.testing.assert_allclose(given_[off], M[off], rtol=6e-3)


def test_cells_lie_on_the_map(found):
    """The diagonal of a map is grey, and nothing else of it is."""
    kernel = of_method(found, "vsdd").kernel
    assert kernel is not None
    figure = noise_maps(kernel, kernel.tokens, [1, 6], kernel.counts, columns=2)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=144)
    pixels = np.array(Image.open(picture).convert("RGB"))
    grey = tuple(int(style.PALE[n : n + 2], 16) for n in (1, 3, 5))
    maps = [ax for ax in figure.axes if ax.images]
    assert len(maps) == 2
    for ax in maps:
        place = Seen(learned_noise.cells(figure, ax)).all("rect")[0]
        x, y, width, height = (2 * float(place[key]) for key in ("x", "y", "width", "height"))
        middles = (np.arange(24) + 0.5) / 24
        across, down = (x + middles * width).astype(int), (y + middles * height).astype(int)
        colours = pixels[np.ix_(down, across)]
        np.testing.assert_array_equal((colours == grey).all(-1), np.eye(24, dtype=bool))


def test_pairs_are_of_tokens_that_occur():
    rng = np.random.default_rng(0)
    V, T = EOS + 5, 2
    Q = rng.random((T, V, V)) + 0.1
    counts = np.array([0, 0, 3, 4, 0, 5, 6])[:V]
    kernel = Kernel(Q, rng.normal(size=(V, 3)), counts, [str(i) for i in range(V)])
    cosine, ratio = pairs(kernel, 2)
    seen = [i for i in range(EOS, V) if counts[i]]
    e = kernel.embeddings / np.linalg.norm(kernel.embeddings, axis=-1, keepdims=True)
    wanted = [
        (e[i] @ e[j], Q[1, i, j] / (Q[1, i, EOS:].sum() - Q[1, i, i]) * (V - EOS - 1))
        for i in seen
        for j in seen
        if i != j
    ]
    np.testing.assert_allclose(sorted(zip(cosine, ratio, strict=True)), sorted(wanted))


# ------------------------------------------------------------------ which runs, which numbers


def test_a_run_is_found_by_each_of_its_names(compared, found):
    own = of_method(found, "vsdd").folder
    for given_ in (own, own.with_name(f"{own.name}.drawn"), compared):
        again = gather([given_, own], NOWHERE, 1)
        assert [run.folder for run in again].count(own) == 1
        assert of_method(again, "vsdd").results == of_method(found, "vsdd").results


def test_what_was_drawn_is_enough(found, compared, tmp_path):
    """On another machine, without the runs."""
    for folder in compared.iterdir():
        if folder.suffix == ".drawn" or folder.name == "results":
            shutil.copytree(folder, tmp_path / folder.name)
    again = gather([tmp_path], NOWHERE, 1)
    assert [run.results for run in again] == [run.results for run in found]
    assert [run.samples for run in again] == [run.samples for run in found]


def test_results_of_other_runs_and_variants_are_left_out(molecules, tmp_path):
    (run,) = gather([molecules], NOWHERE, 0)
    base = {
        "domain": "molecules",
        "experiment": "generation",
        "method": "vsdd",
        "seed": 0,
        "steps": run.summary["steps"],
        "train_seconds": run.summary["seconds"],
        "n": 5,
    }
    folder = tmp_path / "molecules"
    folder.mkdir()

    def put(name: str, value: float, **other) -> None:
        metrics = {"validity": {"value": value, "low": value, "high": value}}
        (folder / name).write_text(json.dumps(base | other | {"metrics": metrics}))

    put("generation-vsdd.json", 0.5, train_seconds=run.summary["seconds"] + 1)
    put("generation-vsdd-steps-10.json", 0.25)
    (folder / "search.json").write_text("[1, 2]")
    assert set(gather([molecules], tmp_path, 0)[0].results) == {"noise"}
    put("generation-vsdd.json", 0.75)
    (again,) = gather([molecules], tmp_path, 0)
    assert again.results["generation"]["metrics"]["validity"]["value"] == 0.75


def test_a_recipe_that_adds_to_its_method_s_name_is_known_by_it():
    config, recipe = tiny("d3pm-confusion"), "molecules/d3pm-confusion-symmetric"
    folder = Path(f"/x/{recipe.replace('/', '-')}-seed0")
    run = Reported(folder, config, {"recipe": recipe}, [], None, [])
    result = {"experiment": "generation", "method": "d3pm-confusion"}
    names = {"": True, "-symmetric": True, "-steps-10": False, "-metric": False, "-seed1": False}
    for name, plain in names.items():
        assert is_plain(Path(f"generation-d3pm-confusion{name}.json"), result, run) == plain
    plain = dataclasses.replace(run, summary={"recipe": "molecules/d3pm-confusion"})
    names = [own.name for own in with_names([run, plain])]
    assert names == ["D3PM confusion, symmetric", "D3PM confusion"]


@given(
    st.lists(
        st.tuples(st.sampled_from(METHODS), st.integers(0, 2), st.sampled_from(["a", "b"])),
        min_size=1,
        max_size=8,
        unique=True,
    )
)
def test_names_tell_runs_apart_and_say_no_more_than_needed(parts):
    made = [
        Reported(
            Path(f"/x/{label}-seed{seed}"),
            dataclasses.replace(tiny(method), seed=seed),
            {},
            [],
            None,
            [],
        )
        for method, seed, label in parts
    ]
    names = [run.name for run in with_names(made)]
    assert len(set(names)) == len(names)
    for (method, *_), name in zip(parts, names, strict=True):
        alone = [own for own, *_ in parts].count(method) == 1
        assert alone == ("," not in name)


def with_seeds(run: Reported, values: list[float]) -> list[Reported]:
    made = []
    for seed, value in enumerate(values):
        metrics = {"validity": {"value": value, "low": value - 0.1, "high": value + 0.1}}
        result = {**run.results["generation"], "metrics": metrics}
        config, folder = dataclasses.replace(run.config, seed=seed), Path(f"/x/own-seed{seed}")
        own = dataclasses.replace(run, folder=folder, config=config)
        made.append(dataclasses.replace(own, results={"generation": result}))
    return with_names(made)


def test_several_seeds_have_a_mean(found):
    seeds = with_seeds(found[0], [0.5, 0.6, 0.7])
    *single, mean = named_rows(seeds, "generation")
    assert [row.metrics["validity"]["value"] for row in single] == [0.5, 0.6, 0.7]
    assert mean.name == f"{style.look(found[0].config.method).name}: mean of 3 seeds"
    assert mean.metrics["validity"]["value"] == pytest.approx(0.6)
    assert mean.metrics["validity"]["low"] == pytest.approx(0.6 - 4.3027 * 0.1 / 3**0.5, abs=1e-4)
    assert "mean of 3 seeds" in measured(Told(seeds, [], Album(), 0), "generation")


def test_levels_are_rows_in_their_order(found):
    (row,) = named_rows([found[0]], "redrafting")
    rows = list(by_level(row))
    assert [own.level for own in rows] == ["20", "40", "60"]
    for own in rows:
        assert own.metrics["validity"] == row.metrics[f"validity@{own.level}"]
        assert "validity@20" not in own.metrics


@pytest.mark.parametrize("name", recipe_names())
def test_settings_are_a_recipe(name, tmp_path):
    config = dataclasses.replace(read_recipe(name), seed=3)
    assert Config.from_dict(tomllib.loads(toml(config))) == config
    (tmp_path / "again.toml").write_text(toml(config), encoding="utf-8")
    assert read_recipe(str(tmp_path / "again.toml")) == config


def test_the_command_that_is_told_is_the_one_that_was_given(compared, text):
    recipes = " ".join(str(compared.parent / f"{method}.toml") for method in METHODS)
    few = "-n 40 --fewer 30 --redrafts 8"
    assert f"redraft compare {recipes} --seed 0 {few} --out out" in text


def test_data_that_were_prepared_are_told_with_what_they_are(found):
    """Which `redraft data` may have to be given."""
    run = found[0]
    data = dataclasses.replace(run.config.data, file="playlists")
    run = dataclasses.replace(run, config=dataclasses.replace(run.config, data=data))
    run = dataclasses.replace(run, summary=run.summary | {"data": "Lists of a.csv: 3 windows"})
    told = Seen(sections.again(Told([run], [], Album(), 8)))
    assert "redraft data playlists   # Lists of a.csv\n" in told.text


@given(st.lists(st.sampled_from(["a", "b", "<i>", "&"])), st.lists(st.sampled_from("abc")))
def test_edits_are_marked(before, after):
    markup = marked(" ".join(before), " ".join(after))
    for gone, words in (("ins", before), ("del", after)):
        rest = re.sub(f"<{gone}>.*?</{gone}>", "", markup)
        assert Seen(rest).text.split() == words


# ------------------------------------------------------------------ files


def test_figures_are_files_too(made, tmp_path):
    paths = made.album.save(tmp_path / "new" / "figures")
    names = {path.stem for path in paths}
    wanted = {"validity", "learning", "redrafting", "steps", "renewal"}
    wanted |= {"noise-vsdd", "scatter-vsdd", "molecules-vsdd", "molecules-mdlm"}
    assert names == wanted
    for path in paths:
        if path.suffix == ".svg":
            assert ElementTree.parse(path).getroot().tag.endswith("svg")
        else:
            assert Image.open(path).size > (200, 100)


def test_two_figures_never_share_a_name():
    album = Album()
    assert [album.keep("a", str(n), lambda path: None) for n in range(3)] == ["a", "a-2", "a-3"]
    assert list(album.svg.values()) == ["0", "1", "2"]


def test_valid_molecules_are_drawn_where_rdkit_is(found, monkeypatch):
    smiles = ["C(", "CCO", "<b>", "CCO", "CCN", "C(", "CCC"]
    told = of_domain(found[0], "molecules", samples=smiles)._replace(shown=2)
    drawn = Seen(samples(told))
    assert [len(drawn.all(name)) for name in ("li", "svg")] == [2, 2]
    assert "CCO" in drawn.text and "CCN" in drawn.text and "<b>" not in drawn.text
    assert "the first 2 valid ones, among the first 5 samples" in drawn.text
    more = samples(told._replace(shown=9))
    assert "the first 3 valid ones, among the first 7 samples" in more
    monkeypatch.setattr(sections, "rdkit_version", lambda: None)
    plain = Seen(samples(told))
    assert not plain.all("svg") and "C(\nCCO" in plain.text and "<b>" not in plain.text


def test_a_file_is_whole_or_as_it_was(tmp_path, monkeypatch):
    put(tmp_path / "report.html", b"old")

    def full(self, content):
        self.touch()
        raise OSError(28, "No space left on device", str(self))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        put(tmp_path / "report.html", b"new")
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert (tmp_path / "report.html").read_text() == "old"


# ------------------------------------------------------------------ the command


def test_the_command_writes_what_it_says(molecules, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = tyro.cli(
        Report, args=[str(molecules), "-o", "a.html", "--figures", "f", "--samples", "2"]
    )
    command.run()
    said = capsys.readouterr().out
    assert "written to a.html" in said and f"{len(list(Path('f').iterdir()))} figures in f" in said
    assert Path("a.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert tyro.cli(Report, args=["x", "--out", "b.html"]).out == Path("b.html")


def test_mistakes_get_one_sentence(molecules, tmp_path, monkeypatch):
    def of(*paths: Path, out: Path = tmp_path / "report.html", **flags) -> str:
        return message(Report(paths, out=out, **flags).run)

    (tmp_path / "file").write_text("text")
    (tmp_path / "empty").mkdir()
    assert "at least one run" in of()
    assert f"there is no folder {tmp_path / 'none'}" in of(tmp_path / "none")
    assert "there is no folder" in of(tmp_path / "file")
    assert "empty is no run; accepted:" in of(tmp_path / "empty")
    assert "for report.html" in of(molecules, out=tmp_path / "none" / "report.html")
    assert "is a folder" in of(molecules, out=tmp_path / "empty")
    assert "--samples must be at least 0, got -1" in of(molecules, samples=-1)
    assert "is a file" in of(molecules, figures=tmp_path / "file")

    def refuse(self, *_, **__):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "write_bytes", refuse)
    assert "cannot be written: Permission denied" in of(molecules, samples=0)
    monkeypatch.setattr(Path, "iterdir", refuse)
    assert "cannot be read: Permission denied" in of(tmp_path / "empty")


def test_damage_is_told(compared, tmp_path):
    (folder,) = compared.glob("*mdlm*.drawn")
    shutil.copytree(folder, tmp_path / "x.drawn")
    (tmp_path / "x.drawn" / "samples.smi").write_text("C\n")
    assert "x.drawn/samples.smi is damaged" in message(gather, [tmp_path], NOWHERE, 1)
    (tmp_path / "x.drawn" / "manifest.json").unlink()
    assert "is no run" in message(gather, [tmp_path / "x.drawn"], NOWHERE, 1)


def test_a_report_is_of_one_domain(molecules, tmp_path):
    redraft.train(on_lines("mdlm", write_lines(tmp_path / "my.txt"), steps=2), tmp_path / "run")
    said = message(gather, [molecules, tmp_path / "run"], NOWHERE, 1)
    assert "of one domain, got lines and molecules" in said


# ------------------------------------------------------------------ other domains


def of_domain(run: Reported, domain: str, **more) -> Told:
    data = dataclasses.replace(run.config.data, domain=domain)
    config = dataclasses.replace(run.config, data=data)
    return Told([dataclasses.replace(run, config=config, **more)], [], Album(), 8)


def test_samples_look_as_their_domain_has_them(found):
    assert set(runs.SAMPLES) == set(SHOWN) == set(DOMAINS)
    texts = [f"story <{n}>\nends" for n in range(9)]
    stories = Seen(samples(of_domain(found[0], "stories", samples=texts)))
    assert len(stories.all("blockquote")) == 2 and "".join(texts[:2]) in stories.text
    codes = [runs.as_text([(n, 2, 3), (4, 5, 6)]) for n in range(9)]
    playlists = Seen(samples(of_domain(found[0], "playlists", samples=codes)))
    assert "0·2·3  4·5·6\n1·2·3" in playlists.text and "8·2·3" not in playlists.text


def test_a_story_is_told_with_what_was_edited(found):
    drafts = [Draft("The cat.", "The dog.", n, [1], [2], 1, f"The {n} & cat.") for n in range(2)]
    drawn = SimpleNamespace(drafts=lambda experiment: drafts)
    (run,) = of_domain(found[0], "stories", drawn=drawn, results={}).runs
    assert "The <del>dog.</del> <ins>0 &amp; cat.</ins>" in edited(run)
    assert "<ins>1" not in edited(run) and not edited(found[0])


STORY_SWEEPS = {"steps": (5, 6), "renewal": (0, 50, 100), "temperature": (70, 100)}


def judged(experiment: str) -> dict:
    """Made-up results of stories."""
    names = ("judge_perplexity", "nll_per_character", "distinct_1", "distinct_2")
    settings = [f"@{n}" for n in STORY_SWEEPS.get(experiment, ())] or [""]
    values = {f"{name}{at}": 8 + n / 8 for n, at in enumerate(settings) for name in names}
    values |= {f"unigram_entropy{at}": 6 + n / 8 for n, at in enumerate(settings)}
    metrics = {
        name: {"value": value, "low": value - 0.1, "high": value + 0.1}
        for name, value in values.items()
    }
    whole = {} if experiment in STORY_SWEEPS else {"scale": {"n": 900, "real": metrics}}
    return {
        **{"domain": "stories", "experiment": experiment, "method": "vsdd", "seed": 0},
        **{"n": 300 if experiment in STORY_SWEEPS else 900, "judge": "some-0123456789abcdef"},
        **{"metrics": metrics, **whole},
    }


def test_other_ways_to_sample_stories_are_told(found):
    results = {name: judged(name) for name in ("generation", *STORY_SWEEPS)}
    told = of_domain(found[0], "stories", results=results)
    for name, settings in STORY_SWEEPS.items():
        figure, table = SECTIONS[name][1](told).split("</figure>")[:2]
        assert "<svg" in figure and "n = 300 samples" in table and "The judge is some-" in table
        head, *rows = re.findall(r"<tr>(.*?)</tr>", table)
        titles = re.findall(r'<th scope="col">(.*?)</th>', head)
        assert len(titles) == 7 and titles[2].startswith("perplexity")
        level = [re.findall(r"<td>(\d+)</td>", row) for row in rows]
        assert level == [[str(n)] for n in settings]
    assert "<svg" in SECTIONS["variety"][1](told)
    assert set(told.album.svg) == {*STORY_SWEEPS, "variety"}


def test_without_a_judge_nothing_is_said_of_quality_and_variety(found):
    result = judged("renewal")
    varied = {name: own for name, own in result["metrics"].items() if "judge" not in name}
    told = of_domain(found[0], "stories", results={"renewal": result | {"metrics": varied}})
    assert not SECTIONS["variety"][1](told)
    assert "word entropy" in SECTIONS["renewal"][1](told)


def test_what_runs_are_held_against_has_rows_of_its_own(found):
    one = {"value": 0.25, "low": 0.125, "high": 0.5}
    result = {
        "domain": "playlists",
        "experiment": "next-tracks",
        "method": "vsdd",
        "n": 1234,
        "groups": 3,
        "metrics": {"hitrate@3": one, "known_tracks": one},
        "baselines": {"markov": {"hitrate@3": one}},
    }
    told = of_domain(found[0], "playlists", results={"next-tracks": result})
    seen = Seen(measured(told, "next-tracks"))
    assert "n = 1,234 playlists." in seen.text and "over groups of playlists" in seen.text
    rows = re.findall(r"<tr>(.*?)</tr>", measured(told, "next-tracks"))
    assert len(rows) == 3 and "(markov)" in rows[2] and rows[2].count("<small>") == 1
    assert "0.246" in rows[1] and "25.0" in rows[1]  # the paper's, and a share in percent
