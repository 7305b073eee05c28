"""Figures over several methods show what the files say, and only the files that belong there."""

import json
import re
import runpy
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.colors import same_color, to_rgb
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from PIL import Image

from redraft.methods import METHODS
from redraft.report import comparisons, stories, style
from redraft.report.comparisons import PAPER, Run
from redraft.report.style import LOOKS, look

script = runpy.run_path(str(Path(__file__).parents[1] / "scripts" / "figures.py"))
CAPTIONS: dict[str, str] = script["CAPTIONS"]


@pytest.fixture(autouse=True)
def nothing_prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDRAFT_CACHE", str(tmp_path / "cache"))


Metrics = dict[str, dict[str, float]]


def metric(value: float, margin: float = 0.02) -> dict[str, float]:
    return {"value": value, "low": value - margin, "high": value + margin}


def redrafted(height: float, parses: bool = True) -> Metrics:
    found = {}
    for level in (60, 20, 40):
        found[f"validity@{level}"] = metric(height - level / 1000)
        found[f"tokens_kept@{level}"] = metric(1 - level / 100, 0.001)
        if parses:
            found[f"corrupted_similarity@{level}"] = metric(0.9 - level / 100, 0.1)
    return found


def sampled(height: float) -> Metrics:
    steps = {f"validity@{n}": metric(height - 1 / n) for n in (5, 10, 25, 50)}
    return steps | {f"uniqueness@{n}": metric(0.99, 0) for n in (5, 10, 25, 50)}


def judged(perplexity: float) -> Metrics:
    """Of stories: the lower the temperature, the lower both."""
    lower = {
        "judge_perplexity": {n: perplexity * n / 100 for n in (100, 70, 80)},
        "unigram_entropy": {n: 6 + n / 1000 for n in (100, 70, 80)},
    }
    return {f"{name}@{n}": metric(own[n]) for name, own in lower.items() for n in own}


def result(method: str, metrics: Metrics, seed: int = 0) -> dict[str, Any]:
    return {"method": method, "seed": seed, "metrics": metrics}


def bars(ax: Axes) -> list[tuple[np.ndarray, np.ndarray, str, Any]]:
    """Points (n, 2), ends of their upright intervals (n, 2), colour and marker of every line."""
    found = []
    for container in ax.containers:
        assert isinstance(container, ErrorbarContainer)
        line, _, (*_, upright) = container.lines
        segments = np.array(upright.get_segments()).reshape(-1, 2, 2)  # pyright: ignore
        found.append((line.get_xydata(), segments[..., 1], line.get_color(), line.get_marker()))  # pyright: ignore
    return found


# ------------------------------------------------------------------ looks


def test_methods_can_be_told_apart():
    looks = [look(method) for method in METHODS]
    for part in zip(*looks, strict=True):
        assert len(set(part)) == len(METHODS)
    assert look("my-own").name == "my-own" and look("my-own") not in looks


DRAWINGS: list[tuple[Callable[..., Figure], Callable[[float], Metrics]]] = [
    (comparisons.redrafting, redrafted),
    (comparisons.steps, sampled),
    (comparisons.temperature, lambda height: judged(100 * height)),
    (comparisons.validity, lambda height: {"validity": metric(height)}),
]


@pytest.mark.parametrize("draw, metrics", DRAWINGS)
def test_a_method_looks_the_same_in_every_figure(draw, metrics):
    names = [*METHODS, "my-own"]
    figure = draw([result(name, metrics(0.5 + 0.05 * n)) for n, name in enumerate(names)])
    drawn = {(colour, marker) for *_, colour, marker in bars(figure.axes[0])}
    assert drawn == {(look(name).colour, look(name).marker) for name in names}


# ------------------------------------------------------------------ each figure


def test_redrafting_shows_validity_against_both_scales_of_noise():
    found = [result("vsdd", redrafted(0.9)), result("mdlm", redrafted(0.8, parses=False))]
    kept, alike = comparisons.redrafting(found).axes
    ((points, ends, *_),) = (bar for bar in bars(kept) if bar[-1] == look("vsdd").marker)
    np.testing.assert_allclose(points, [(0.8, 0.88), (0.6, 0.86), (0.4, 0.84)])
    np.testing.assert_allclose(ends, [(0.86, 0.9), (0.84, 0.88), (0.82, 0.86)])
    shown = {marker: points for points, _, _, marker in bars(alike)}
    np.testing.assert_allclose(shown[look("vsdd").marker][:, 0], [0.7, 0.5, 0.3])
    assert len(shown[look("mdlm").marker]) == 0
    assert "MDLM" in alike.get_title("left") and "VSDD" not in alike.get_title("left")


def test_redrafting_names_the_best_first():
    found = [result("mdlm", redrafted(0.7)), result("vsdd", redrafted(0.8))]
    (legend,) = comparisons.redrafting(found).legends
    assert [text.get_text() for text in legend.get_texts()] == ["VSDD", "MDLM"]


def test_steps_are_in_order_and_a_method_may_know_only_one():
    one = {"validity@50": metric(0.95)}
    (ax,) = comparisons.steps([result("vsdd", sampled(0.9)), result("fldd", one)]).axes
    shown = {marker: points for points, _, _, marker in bars(ax)}
    expected = [(5, 0.7), (10, 0.8), (25, 0.86), (50, 0.88)]
    np.testing.assert_allclose(shown[look("vsdd").marker], expected)
    np.testing.assert_allclose(shown[look("fldd").marker], [(50, 0.95)])
    assert {text.get_text() for text in ax.texts} == {"VSDD", "FLDD"}
    assert ax.get_xscale() == "log"
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["5", "10", "25", "50"]


def test_renewal_is_drawn_by_its_shares():
    found = {"validity@0": metric(0.85), "validity@50": metric(0.94), "validity@100": metric(0.96)}
    (ax,) = comparisons.renewal([result("mdlm", found)]).axes
    ((points, *_),) = bars(ax)
    np.testing.assert_allclose(points, [(0, 0.85), (50, 0.94), (100, 0.96)])
    assert list(ax.get_xticks()) == [0, 50, 100]


def test_temperature_is_drawn_by_the_perplexity_of_stories():
    (ax,) = comparisons.temperature([result("mdlm", judged(50)), result("vsdd", judged(40))]).axes
    shown = {marker: points for points, _, _, marker in bars(ax)}
    np.testing.assert_allclose(shown[look("mdlm").marker], [(0.7, 35), (0.8, 40), (1, 50)])
    assert list(ax.get_xticks()) == [0.7, 0.8, 1.0] and ax.get_xlabel() == "temperature"
    assert "perplexity" in ax.get_ylabel() and ax.get_yscale() == "linear"


@pytest.mark.parametrize("draw", [comparisons.steps, comparisons.renewal])
def test_stories_far_apart_are_drawn_on_a_logarithmic_scale(draw):
    values = {"a": 10.0, "b": 11.0, "c": 300.0}
    found = [
        result(method, {"judge_perplexity@5": metric(value), "distinct_1@5": metric(0.1)})
        for method, value in values.items()
    ]
    (ax,) = draw([*found, result("wordless", {"distinct_1@5": metric(0.1)})]).axes
    assert ax.get_yscale() == "log" and "perplexity" in ax.get_ylabel()
    heights = {text.get_text(): text.get_position()[1] for text in ax.texts}
    assert heights.keys() == values.keys()
    assert heights["b"] > 1.2 * heights["a"] and heights["c"] == pytest.approx(300)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(0.01, 0.2))
def test_names_keep_their_distance_and_their_order(heights, gap):
    heights = np.sort(heights)[::-1]
    moved = comparisons.apart(heights, gap)
    assert (-np.diff(moved) >= gap - 1e-9).all()
    assert moved.mean() == pytest.approx(heights.mean())
    np.testing.assert_allclose(comparisons.apart(moved, gap), moved, atol=1e-9)


def test_validity_has_a_mark_a_seed_and_the_paper_s_number():
    seeds = [result("vsdd", {"validity": metric(v)}, n) for n, v in enumerate((0.8, 0.82, 0.84))]
    (ax,) = comparisons.validity([*seeds, result("d3pm-semantic", {"validity": metric(0.7)})]).axes
    marks = [tuple(points[0]) for points, *_, marker in bars(ax) if marker == look("vsdd").marker]
    assert [x for x, _ in marks] == [0.8, 0.82, 0.84]
    assert len({height for _, height in marks}) == 3
    inside = {id(c.lines[0]) for c in ax.containers if isinstance(c, ErrorbarContainer)}
    marker = comparisons.PAPER_MARK["marker"]
    alone = [x for x in ax.lines if id(x) not in inside and x.get_marker() == marker]
    assert [line.get_xdata()[0] for line in alone] == [PAPER["vsdd"]]  # pyright: ignore
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["D3PM semantic", "VSDD"]
    texts = [text.get_text() for text in ax.texts]
    assert "82.0 (77.0 to 87.0), 3 seeds" in texts and "70.0 (68.0 to 72.0)" in texts


# ------------------------------------------------------------------ quality against variety


def of_stories(experiment: str, method: str, n: int, metrics: Metrics, **more) -> dict[str, Any]:
    return result(method, metrics) | {"experiment": experiment, "n": n} | more


def plainly(perplexity: float, entropy: float) -> Metrics:
    return {"judge_perplexity": metric(perplexity), "unigram_entropy": metric(entropy)}


def test_variety_has_a_panel_for_each_number_of_stories():
    scale = {"n": 900, "real": plainly(12, 6.5), "shuffled": {"judge_perplexity": metric(900)}}
    found = [
        of_stories("generation", "vsdd", 900, plainly(50, 6.3), scale=scale),
        of_stories("generation", "fldd", 900, plainly(90, 6.6), scale=scale),
        of_stories("temperature", "vsdd", 300, judged(50)),
        of_stories("temperature", "fldd", 300, {"distinct_1@70": metric(0.1)}),
    ]
    figure = stories.variety(found)
    many, few = figure.axes
    assert [ax.get_title("left") for ax in (many, few)] == ["900 stories each", "300 stories each"]
    assert many.get_yscale() == few.get_yscale() == "log"
    shown = {marker: tuple(points[-1]) for points, *_, marker in bars(many) if len(points)}
    real = stories.REAL["marker"]
    assert shown == {
        look("vsdd").marker: (6.3, 50),
        look("fldd").marker: (6.6, 90),
        real: (6.5, 12),
    }
    line, plain, nothing = (points for points, *_ in bars(few))
    np.testing.assert_allclose(line, [(6.07, 35), (6.08, 40), (6.1, 50)])
    np.testing.assert_allclose(plain, [(6.1, 50)])
    assert len(nothing) == 0  # the real ones are more, and so of another entropy
    (legend,) = figure.legends
    names = ["VSDD", "FLDD", "plain", "lower temperatures", "real stories"]
    assert [text.get_text() for text in legend.get_texts()] == names


def test_ways_to_sample_can_be_told_apart():
    found = {
        name: of_stories(name, "vsdd", 300, {f"{own}@{n}": metric(9) for own in plainly(1, 1)})
        for name, n in (("renewal", 50), ("temperature", 70))
    }
    assert set(found) == set(stories.WAYS) - {"generation"}
    (ax,) = stories.variety([*found.values()]).axes
    lines = [c.lines[0] for c in ax.containers if len(c.lines[0].get_xdata())]  # pyright: ignore
    assert len({line.get_linestyle() for line in lines}) == len(lines) == 2
    assert len({line.get_markerfacecolor() for line in lines}) == 2


def rows(n: int, leader: bool) -> list[dict[str, float]]:
    more = {"leader/reward": 0.1, "leader/reference_loss": 1.0, "leader/entropy_mean": 3.0}
    return [
        {"step": 10 * k, "seconds": 0.5 * k, "loss": 5 / k} | (more if leader else {})
        for k in range(1, n + 1)
    ]


def test_learning_shows_what_runs_logged_against_seconds():
    runs = [Run("a", "vsdd", rows(30, True)), Run("b", "vsdd", rows(9, True))]
    runs.append(Run("c", "mdlm", rows(20, False)))
    figure = comparisons.learning(runs)
    assert [ax.get_title("left") for ax in figure.axes] == list(comparisons.CURVES.values())
    first, second, other = figure.axes[0].lines
    assert max(first.get_xdata()) == 15 and max(second.get_xdata()) == 4.5  # pyright: ignore
    assert same_color(first.get_color(), second.get_color())
    assert first.get_linestyle() != second.get_linestyle()
    assert not same_color(first.get_color(), other.get_color())
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b", "c"]
    assert sum(ax.axison for ax in comparisons.learning(runs[2:]).axes) == 1


def test_learning_survives_what_training_may_not():
    broken = [row | {"loss": float("nan")} for row in rows(5, True)]
    for case in ([], [Run("a", "vsdd", [])], [Run("a", "vsdd", broken), Run("b", "mdlm", [])]):
        assert isinstance(comparisons.learning(case), Figure)


# ------------------------------------------------------------------ the script


def write(folder: Path, name: str, content: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")


@pytest.fixture
def results(tmp_path) -> Path:
    folder = tmp_path / "results"
    for name, seed in (("", 0), ("-seed1", 1), ("-tiny", 0), ("-steps-10-seed1", 1)):
        found = result("d3pm-uniform", {"validity": metric(0.5)}, seed)
        write(folder / "molecules", f"generation-d3pm-uniform{name}", found)
    write(folder / "molecules", "redrafting-vsdd", result("vsdd", redrafted(0.9)))
    return folder


def test_variants_are_told_and_left_out(results, capsys):
    found = script["results_of"]("generation", results / "molecules")
    assert sorted(each["seed"] for each in found) == [0, 1]
    told = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in told] == [
        f"generation-d3pm-uniform-{variant}.json" for variant in ("steps-10-seed1", "tiny")
    ]


def test_variants_with_a_look_of_their_own_are_drawn_under_their_name(results):
    own = result("d3pm-confusion", {"validity": metric(0.5)})
    write(results / "molecules", "generation-d3pm-confusion-symmetric", own)
    found = script["results_of"]("generation", results / "molecules")
    assert "d3pm-confusion-symmetric" in {each["method"] for each in found}


def test_a_figure_of_a_variant_is_of_its_files_alone(results):
    (found,) = script["results_of"]("generation", results / "molecules", "tiny")
    assert (found["method"], found["seed"]) == ("d3pm-uniform", 0)
    assert script["results_of"]("generation", results / "molecules", "small") == []


def test_the_script_draws_what_it_has_and_tells_what_it_has_not(results, tmp_path, capsys):
    run, out = tmp_path / "run" / "metrics.jsonl", tmp_path / "figures"
    run.parent.mkdir()
    run.write_text("".join(json.dumps(row) + "\n" for row in rows(5, True)), encoding="utf-8")
    write(run.parent, "config", {"config": {"method": "vsdd"}})
    assert script["main"]([run], results, out) == 0
    assert "steps is left out" in capsys.readouterr().out
    drawn = {"validity", "redrafting", "learning"}
    assert {path.name for path in out.iterdir()} == {"captions.json"} | {
        f"{name}.{ending}" for name in drawn for ending in ("svg", "png")
    }
    captions = json.loads((out / "captions.json").read_text(encoding="utf-8"))
    assert captions == {name: CAPTIONS[name] for name in drawn}
    for name in drawn:
        with Image.open(out / f"{name}.png") as picture:
            assert picture.width < 1400
            corner = picture.convert("RGBA").getpixel((0, 0))
        assert corner == (255, 255, 255, 255)  # readable on a dark page, too


def test_without_results_nothing_is_written(tmp_path, capsys):
    assert script["main"]([], tmp_path / "results", tmp_path / "figures") == 0
    assert capsys.readouterr().out.count("left out") == len(CAPTIONS)
    assert not (tmp_path / "figures").exists()


def test_metrics_that_are_not_there_are_one_sentence(tmp_path, capsys):
    assert script["main"]([tmp_path / "metrics.jsonl"], tmp_path, tmp_path / "figures") == 2
    assert "metrics.jsonl" in capsys.readouterr().err


def test_runs_are_named_by_method_and_by_folder_where_that_is_not_enough(tmp_path):
    paths = [
        tmp_path / name for name in ("d3pm-uniform-a.jsonl", "vsdd/metrics.jsonl", "odd.jsonl")
    ]
    paths.append(tmp_path / "vsdd-long.jsonl")
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.write_text('{"step": 1, "seconds": 1.0, "loss": 2.0}\n', encoding="utf-8")
    runs = script["runs_of"](paths)
    assert [run.method for run in runs] == ["d3pm-uniform", "vsdd", "odd", "vsdd"]
    names = ["D3PM uniform", "VSDD (vsdd)", "odd", "VSDD (vsdd-long)"]
    assert [run.name for run in runs] == names


def test_every_figure_has_a_caption_of_one_sentence():
    assert set(CAPTIONS) == {*script["DRAWN"], "learning", "neighbours"}
    for caption in CAPTIONS.values():
        assert caption.endswith(".") and ". " not in caption
    assert set(PAPER) <= set(LOOKS)


# Colours

PAGE = (Path(style.__file__).parent / "page.css").read_text(encoding="utf-8")
DARK = PAGE[PAGE.rindex("prefers-color-scheme: dark") :]
CARDS: dict[str, str] = dict(
    zip(("light", "dark"), re.findall(r"--card: (#\w+)", PAGE), strict=True)
)


def on_page(colour: str, scheme: str) -> str:
    """What the report makes of a colour of ours."""
    found = re.search(rf"stroke: {colour.lower()}\"\] {{ stroke: (#\w+)", DARK)
    return found[1] if found and scheme == "dark" else colour


def linear(colour: str) -> np.ndarray:
    c = np.array(to_rgb(colour))
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def oklab(colour: str) -> np.ndarray:
    """Equal distances look equal (Ottosson 2020)."""
    cones = [[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.63]]
    axes = [[0.2105, 0.7936, -0.0041], [1.978, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]]
    return np.array(axes) @ np.cbrt(np.array(cones) @ linear(colour))


def contrast(a: str, b: str) -> float:
    """As web pages are asked to have it (WCAG)."""
    darker, lighter = sorted(float(linear(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (a, b))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", CARDS)
def test_methods_are_told_apart_on_every_page(scheme: str):
    colours = [on_page(own.colour, scheme) for own in LOOKS.values()]
    apart = [np.linalg.norm(oklab(a) - oklab(b)) for a, b in combinations(colours, 2)]
    assert min(apart) > 0.1
    assert min(contrast(colour, CARDS[scheme]) for colour in colours) > 2.2  # of the palette itself
