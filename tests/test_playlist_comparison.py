"""Playlists through the commands: drawn where the GPU is, measured elsewhere, over groups."""

import gzip
import json
import re
import runpy
import shutil
import sys
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from mistakes import message
from tiny import tiny

import redraft
from redraft import comparison
from redraft.cli import main
from redraft.commands.measuring import Evaluate
from redraft.config import DataConfig, read_recipe, recipe_names
from redraft.data import playlists as data
from redraft.domains import prepare_playlists
from redraft.errors import UserError
from redraft.evaluation.playlists import CORRUPTIONS
from redraft.experiments import drawn
from redraft.experiments import playlists as experiment
from redraft.experiments import windows as unseen
from redraft.experiments.data import dataset_of
from redraft.experiments.domain import Asked
from redraft.experiments.playlists import Amounts, Columns
from redraft.experiments.windows import Windows
from redraft.methods import METHODS
from redraft.report.runs import as_text, gather, track_names
from redraft.tokenizers import SemanticIdTokenizer
from redraft.tokenizers.base import EOS, MASK

AMOUNTS = Amounts(samples=7, draws=3, redrafts=4, bound=5)
EXPERIMENTS = {"mdlm": {"next-tracks", "repair"}, "vsdd": {"next-tracks", "repair", "noise"}}
TRACKS = 90


def rows() -> list[dict]:
    """Tracks that are known in part, and what lists played of them."""
    rng = np.random.default_rng(0)
    made: list[dict] = []
    for index in range(TRACKS):
        audio = {"energy": rng.random(), "valence": rng.random(), "tempo": 60 + 90 * rng.random()}
        tags = [f"genre {index % 5}", f"mood {index % 7}"]
        known = {"audio": audio if index % 4 else None, "tags": tags if index % 3 else []}
        made.append({"index": index, "artist": f"artist {index % 9}", "title": str(index), **known})
    for i in range(240):
        steps = rng.integers(-3, 4, size=rng.integers(40, 75))
        own = (i + np.cumsum(steps)) % TRACKS
        made.append({"kind": "playlist", "group": f"list {i % 80}", "tracks": own.tolist()})
    return made


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    file = folder / "made.jsonl.gz"
    file.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows()).encode()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REDRAFT_CACHE", str(folder))
        prepare_playlists(data.Request((str(file),), origin="Made ones"))
        yield folder


@pytest.fixture(scope="module")
def recipes(tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("recipes")
    for method in EXPERIMENTS:
        config = tiny(method, steps=4, batch=4, validate=4, log_every=2, device="cpu").to_dict()
        config["data"] |= {"domain": "playlists", "file": "playlists", "max_length": 150}
        lines = [f'method = "{method}"']
        for section in ("data", "noise", "denoiser", "train"):
            lines.append(f"[{section}]")
            lines += [f"{k} = {json.dumps(v)}" for k, v in config[section].items() if v is not None]
        lines += ["[leader]", "block = 2", "batch = 4", "probes = 2"]
        (folder / f"{method}.toml").write_text("\n".join(lines) + "\n")
    return [str(folder / f"{method}.toml") for method in EXPERIMENTS]


@pytest.fixture(scope="module")
def there(cache, recipes, tmp_path_factory) -> Path:
    """A machine without RDKit or the command: trained and drawn, not measured."""
    out = tmp_path_factory.mktemp("gpu")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("rdkit", "tyro", "transformers"):
            patch.setitem(sys.modules, name, None)
        for entry in comparison.contenders(recipes, out):
            comparison.draw(entry, AMOUNTS)
    return out


@pytest.fixture(scope="module")
def done(there: Path, recipes, tmp_path_factory) -> Path:
    """Another machine: what was drawn, without the runs, and its numbers."""
    out = tmp_path_factory.mktemp("home")
    for folder in there.glob("*.drawn"):
        shutil.copytree(folder, out / folder.name)
    entries = comparison.contenders(recipes, out)
    comparison.measure(entries, [comparison.draw(entry, AMOUNTS) for entry in entries], out)
    return out


def result(out: Path, name: str) -> dict:
    return json.loads((out / "results" / "playlists" / f"{name}.json").read_text())


@pytest.fixture(scope="module")
def run(there: Path) -> Path:
    (found,) = (path.parent for path in there.glob("*mdlm-seed0/config.json"))
    return found


@pytest.fixture(scope="module")
def model(run: Path) -> redraft.Model:
    return redraft.load(run, "cpu")


@pytest.fixture(scope="module")
def windows(model) -> Windows:
    return Windows.of(model.trained, dataset_of(model.trained).tokenizer)


# ------------------------------------------------------------------ numbers


def test_every_experiment_leaves_a_result(done: Path):
    for method, experiments in EXPERIMENTS.items():
        assert len(list(done.glob(f"results/playlists/*-{method}.json"))) == len(experiments)
        told = result(done, f"next-tracks-{method}")
        assert (told["n"], told["draws"], told["bound_n"]) == (7, 3, 5)
        hits = {"hitrate@3", "hitrate@3_tracks"}
        assert {"ndcg@3", *hits, *(f"{name}_combined" for name in hits)} <= set(told["metrics"])
        ways = {"popularity", "frequent", "markov", "neighbours"}
        assert set(told["baselines"]) == set(told["over_baselines"]) == ways
        for name, own in told["baselines"].items():
            for measure in hits:
                for counted in (measure, f"{measure}_combined", f"{measure}_mixed"):
                    apart = told["over_baselines"][name][counted]["value"]
                    value = told["metrics"][counted]["value"]
                    assert apart == pytest.approx(value - own[measure]["value"])
        mended = result(done, f"repair-{method}")
        assert mended["n"] == 4 and 1 <= mended["groups"] <= 4
        for name in CORRUPTIONS:
            assert {f"repair_rate@{name}", f"styles_repaired@{name}"} <= set(mended["metrics"])
        chance = mended["baselines"]["random"]
        assert chance["known_tracks@energy"]["value"] == 1
        same = "smoothness_corrupted@transition"
        assert chance[same] == mended["metrics"][same]


def test_a_report_calls_tracks_by_their_names(done: Path, monkeypatch, tmp_path):
    """Where the playlists are at hand that the run has learned from; else by their codes."""
    run, *_ = gather([done], Path("/nowhere"), 0)
    called, codes = track_names(run), data.prepared().codes(run.config.data.codes).tolist()
    assert called is not None and isinstance(run.drawn, experiment.Drawn)
    known = data.prepared().catalogue()
    for track in range(0, TRACKS, 7):
        most_played = codes.index(codes[track])
        assert called(tuple(codes[track])) == known.name(most_played)
    assert called((None, 1, 2)) == "None·1·2"
    first = run.drawn.continued()[0].draws[0]
    assert run.samples[0] == as_text(first, called)
    monkeypatch.setenv("REDRAFT_CACHE", str(tmp_path))
    run, *_ = gather([done], Path("/nowhere"), 0)
    assert run.samples[0] == as_text(first)


def test_differences_are_those_of_the_results(done: Path, recipes):
    report = json.loads((done / "comparison.json").read_text())
    assert report["recipes"] == recipes
    seen = set()
    for row in report["differences"]:
        first, other = (result(done, f"{row['experiment']}-{m}")["metrics"] for m in EXPERIMENTS)
        seen.add((row["experiment"], row["metric"]))
        if "place_" not in row["metric"]:  # those may be known of other windows
            expected = other[row["metric"]]["value"] - first[row["metric"]]["value"]
            assert row["value"] == pytest.approx(expected, abs=1e-9)
    assert ("next-tracks", "bound_nats_per_track") in seen
    assert ("repair", "smoothness_repaired@energy") in seen
    assert not any("_original" in metric or "_corrupted" in metric for _, metric in seen)


@pytest.mark.parametrize(("name", "n"), [("next-tracks", 7), ("repair", 4)])
def test_a_run_is_evaluated_alike(name, n, run: Path, done: Path, tmp_path: Path, monkeypatch):
    """Drawn and measured at once, or one after the other: the same numbers."""
    monkeypatch.setattr(Amounts, "bound", AMOUNTS.bound)
    monkeypatch.setattr(Amounts, "draws", AMOUNTS.draws)
    Evaluate(str(run), experiment=name, n=n, out=tmp_path / "results").run()
    assert result(tmp_path, f"{name}-mdlm") == result(done, f"{name}-mdlm")


def test_draws_and_how_they_are_drawn_are_asked_for(run: Path, tmp_path: Path, capsys, monkeypatch):
    monkeypatch.setattr(Amounts, "bound", AMOUNTS.bound)
    words = ["evaluate", str(run), "--experiment", "next-tracks", "-n", "5", "--out", str(tmp_path)]
    asked = ["--draws", "4", "--temperature", "0"]
    assert main([*words, *asked, "--variant", "greedy"]) == 0
    said = capsys.readouterr().out
    assert "hitrate@3 of frequent" in said and "hitrate@3 of neighbours" in said
    found = json.loads((tmp_path / "playlists" / "next-tracks-mdlm-greedy.json").read_text())
    assert (found["n"], found["draws"], found["sampler"]) == (5, 4, {"temperature": 0.0})


def test_repairs_may_be_drawn_otherwise(run: Path, model, windows, tmp_path: Path):
    words = ["evaluate", str(run), "--experiment", "repair", "-n", "4", "--out", str(tmp_path)]
    assert main([*words, "--temperature", "0", "--variant", "greedy"]) == 0
    found = json.loads((tmp_path / "playlists" / "repair-mdlm-greedy.json").read_text())
    assert (found["n"], found["sampler"]) == (4, {"temperature": 0.0})
    cases = unseen.corrupted(windows, windows.known(), 4)
    plain, greedy = (
        [row.drawn for row in unseen.repaired(model, windows, cases, seed=0, temperature=heat)]
        for heat in (1.0, 0.0)
    )
    assert plain != greedy


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--draws", "0", "--variant", "x"], "at least 1, got 0"),
        (["--draws", "5"], "--variant"),
        (["--temperature", "0.5"], "--variant"),
        (["--experiment", "repair", "--draws", "5", "--variant", "x"], "not for repair"),
        (["--experiment", "repair", "--steps", "5"], "--variant"),
    ],
)
def test_what_cannot_be_asked_for(flags, said, run: Path, tmp_path: Path, capsys):
    words = ["evaluate", str(run), "--experiment", "next-tracks", "--out", str(tmp_path)]
    assert main([*words, *flags]) == 2
    assert said in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_draws_are_meant_and_combined(windows):
    """One draw of three is right, twice the first truth comes, and no track has the other codes."""
    ends = ((i, windows.triplets(i)[-3:]) for i in range(len(windows)))
    window, truth = next((i, end) for i, end in ends if len(set(end)) == 3)
    strange = (None, 0, 0)
    draws = [truth, [truth[0], strange, strange], [strange] * 3]
    found = experiment.next_tracks(windows, [unseen.Continued(window, draws)]).values
    first = 1 / (1 + 1 / np.log2(3) + 0.5)
    assert found["ndcg@3"] == pytest.approx([(1 + first) / 3])
    assert found["hitrate@3"] == pytest.approx([2 / 3])
    assert found["hitrate@3_self"] == pytest.approx([2 / 3])  # the last two share the strange one
    assert found["known_tracks"] == pytest.approx([4 / 9])
    assert found["ndcg@3_combined"] == pytest.approx([1])
    assert found["hitrate@3_combined"] == [1]


def test_where_no_draw_is_a_track_the_window_votes_alone(windows):
    """The mixed vote is then what the window has most often; else draws count, too."""
    some, strange = range(len(windows)), [(None, 0, 0)] * 3
    lost = experiment.next_tracks(windows, [unseen.Continued(i, [strange]) for i in some]).values
    frequent = experiment.simple(windows, some)["frequent"].values
    assert (lost["hitrate@3_combined"] == 0).all()
    for name in ("ndcg@3", "hitrate@3"):
        np.testing.assert_array_equal(lost[f"{name}_mixed"], frequent[name])
    rows = [unseen.Continued(i, [windows.triplets(i)[-3:]] * 2) for i in some]
    right = experiment.next_tracks(windows, rows).values
    assert right["hitrate@3_mixed"].mean() > frequent["hitrate@3"].mean()


@pytest.fixture(scope="module")
def crowded(windows) -> Windows:
    """Every three tracks share their codes."""
    codes = np.arange(TRACKS)[:, None] % (TRACKS // 3)
    return replace(windows, tokenizer=SemanticIdTokenizer(codes.repeat(3, 1)))


def test_codes_mean_the_most_played_track_that_is_new(crowded):
    rows = [unseen.Continued(i, [crowded.triplets(i)[-3:]]) for i in range(len(crowded))]
    found = experiment.next_tracks(crowded, rows).values
    assert (found["hitrate@3"] == 1).all()
    for row, right in zip(rows, found["hitrate@3_tracks"].tolist(), strict=True):
        *before, a, b, c = crowded.tracks[row.window].tolist()
        told = list(before)
        for track in (a, b, c):
            alike = (other for other in range(TRACKS) if other % 30 == track % 30)
            told.append(next((other for other in alike if other not in told), None))
        assert right == (not {a, b, c}.isdisjoint(told[-3:]))
    assert 0 < found["hitrate@3_tracks"].mean() < 1
    assert found["hitrate@3_tracks_combined"].mean() > 0


def test_a_bound_on_codes_becomes_one_on_tracks(crowded):
    """A track among those of its codes, by how often it was played; as if once more."""
    plays = Counter(track for own in crowded.prepared.sequences("train") for track in own.tolist())
    share = {
        track: (1 + plays[track]) / sum(1 + plays[other] for other in range(track % 30, TRACKS, 30))
        for track in range(TRACKS)
    }
    assert sum(share.values()) == pytest.approx(30)
    found = experiment.bound_columns(crowded, [unseen.Bound(100, 6), unseen.Bound(200, None)])
    rows = crowded.tracks[:2].tolist()
    tells = [[-np.log(share[track]) for track in row] for row in rows]
    assert found.values["bound_nats_per_very_track"] == pytest.approx(
        [2 + np.mean(tells[0]), 4 + np.mean(tells[1])]
    )
    assert found.values["next_bound_nats_per_very_track"] == pytest.approx(
        [2 + np.mean(tells[0][-3:]), np.nan], nan_ok=True
    )


def test_simple_ways_tell_new_tracks(crowded):
    """What comes after the last one most often, where it has not come yet; or what is popular."""
    found = experiment.simple(crowded, range(len(crowded)))["markov"].values
    sequences = [own.tolist() for own in crowded.prepared.sequences("train")]
    plays = Counter(track for own in sequences for track in own)
    popular = sorted(plays, key=lambda track: (-plays[track], track))
    pairs = [pair for own in sequences for pair in pairwise(own)]
    for row, right in zip(crowded.tracks.tolist(), found["hitrate@3_tracks"].tolist(), strict=True):
        next_ = Counter(b for a, b in pairs if a == row[-4])
        ranked = [track for track, _ in next_.most_common()] + popular
        told = [track for track in dict.fromkeys(ranked) if track not in row[:-3]][:3]
        assert right == (not set(told).isdisjoint(row[-3:]))
    assert (found["hitrate@3_tracks"] != found["hitrate@3"]).any()


def test_what_differs_in_its_cases_is_not_compared():
    a = Columns([1, 2], np.array([0, 0]), {"x": np.array([1.0, 3.0])})
    assert a.less(replace(a, values={"x": np.array([0.0, np.nan])}))["x"].value == 1
    assert a.less(replace(a, cases=[1, 3])) == {}


# ------------------------------------------------------------------ what is drawn


def test_only_hidden_tracks_are_drawn(model, windows, monkeypatch):
    """The model reads the corrupted playlist, less the corrupted track."""
    read = []

    def infilled(model, rows, seed, callback):
        read.extend(rows)
        return [[(0, 0, 0)] * data.WINDOW for _ in rows]

    monkeypatch.setattr(unseen, "infilled", infilled)
    cases = unseen.corrupted(windows, windows.known(), 3)
    assert [case.corruption for case in cases] == [*CORRUPTIONS] * 3
    for case, row in zip(cases, unseen.repaired(model, windows, cases, 0), strict=True):
        triplets = windows.triplets(case.window)
        assert case.corrupted(triplets)[case.place] != triplets[case.place]
        shown = read.pop(0).reshape(-1, 3)
        assert (shown[case.place] == MASK).all() and row.drawn == (0, 0, 0)
        before, after = (windows.ids(case.window).reshape(-1, 3) for _ in range(2))
        after[case.place] = MASK
        if CORRUPTIONS[case.corruption].swaps:
            after[case.source] = before[case.place]
        assert (shown == after).all()
    (told,) = unseen.continued(model, windows, [2], 4, 0)
    assert told.window == 2 and len(told.draws) == 4
    for row in read:
        assert (row[:-9] == windows.ids(2)[:-9]).all() and (row[-9:] == MASK).all()


def test_an_end_that_is_drawn_is_no_track(model, windows, monkeypatch):
    sampler = model.sampler()
    row = windows.ids(0)
    ended = row.copy()
    ended[4] = EOS
    monkeypatch.setattr(type(sampler), "infill", lambda self, x, *rest: x * 0 + x.new_tensor(ended))
    (found,) = unseen.infilled(model, [unseen.masked(windows, row, [1])], 0)
    expected = windows.triplets(0)
    assert found[2:] == expected[2:] and found[1] == (expected[1][0], None, expected[1][2])


def test_drawing_is_not_done_twice(there: Path, recipes, done: Path, monkeypatch):
    monkeypatch.setattr(unseen, "infilled", None)
    for entry in comparison.contenders(recipes, done):
        comparison.draw(entry, AMOUNTS)
    (folder,) = there.glob("*vsdd-seed0.drawn")
    own = drawn.read(folder)
    assert isinstance(own, experiment.Drawn) and own.amounts == AMOUNTS
    assert [len(row.draws) for row in own.continued()] == [3] * 7
    assert len(own.repaired()) == 4 * len(CORRUPTIONS) and len(own.bounds()) == 5


def test_the_first_cases_do_not_depend_on_their_number(windows):
    known = windows.known()
    few, more = (unseen.corrupted(windows, known, n) for n in (2, 4))
    assert few == more[: len(few)]


# ------------------------------------------------------------------ mistakes, recipes


def test_mistakes(model, windows, run: Path):
    made_up = replace(model.config, data=DataConfig(domain="playlists"))
    assert "made-up" in message(
        Windows.of, replace(model.trained, config=made_up), windows.tokenizer
    )
    long = [np.full(153, MASK)]
    assert "at most 150" in message(unseen.infilled, model, long, 0)
    assert "about playlists" in message(experiment.check_asked, Asked(fcd=True))
    assert "about playlists" in message(experiment.check_asked, Asked(judge="gpt2"))


def test_what_must_travel_is_named(windows, cache: Path, monkeypatch, tmp_path: Path):
    shutil.copytree(cache / "playlists", tmp_path / "playlists")
    (tmp_path / "playlists" / "tracks.safetensors.gz").unlink()
    alone = data.find(tmp_path / "playlists")
    assert alone is not None
    assert "tracks.safetensors.gz" in message(replace(windows, prepared=alone).known)


@pytest.mark.parametrize(("size", "heads", "seconds"), [("", 16, 65), ("-small", 4, 900)])
def test_recipes_of_playlists_differ_in_their_noise_alone(size, heads, seconds):
    known = {f"playlists/{method}{size}" for method in METHODS}
    recipes = [read_recipe(name) for name in recipe_names() if name in known]
    assert {recipe.method for recipe in recipes} == set(METHODS)
    for part in ("seed", "data", "denoiser", "optimizer", "train"):
        assert len({repr(getattr(recipe, part)) for recipe in recipes}) == 1
    (first, *_) = recipes
    assert first.denoiser.heads == heads and first.data.max_length == 150
    assert first.train.seconds == seconds and first.denoiser.period == 3


# Choosing among recipes

SCRIPTS = Path(__file__).parents[1] / "scripts"
code_bits = runpy.run_path(str(SCRIPTS / "code_bits.py"))["code_bits"]


def test_bits_of_codes_are_told_of_what_was_drawn(done: Path):
    masks, vsdd = (drawn.read(next(done.glob(f"*{name}*.drawn"))) for name in EXPERIMENTS)
    found = code_bits(vsdd)
    names = {f"ratio_{bits}@{t}" for bits in range(1, 8) for t in (1, 2, 3, 5)}
    assert set(found["metrics"]) == names and found["n"] == 128
    assert len(found["nearest"]) == 10 and set(found["nearest"]) <= set(range(1, 8))
    with pytest.raises(UserError, match="learned"):
        code_bits(masks)


compare_codes = runpy.run_path(str(SCRIPTS / "compare_codes.py"))


def test_kinds_of_codes_are_compared():
    found = [compare_codes["row"](data.prepared(), kind, n=9) for kind in ("lsh", "kmeans")]
    for own in found:
        shares = {name: number["value"] for name, number in own["metrics"].items()}
        assert own["n"] == 9 and own["triplets"] * own["tracks_each"] == pytest.approx(TRACKS)
        assert 0 <= shares["tracks_again"] <= shares["codes_again"] < 1
        assert 0 < shares["meant"] <= 1
        assert 0 <= shares["sharers_nats"] < shares["all_nats"]
    lsh, kmeans = (
        {way: own["hitrate@3_tracks"] for way, own in each["baselines"].items()} for each in found
    )
    assert lsh == kmeans


def test_what_came_before_is_counted():
    found = compare_codes["again"](np.array([[1, 2, 1, 1], [1, 2, 3, 4]]))
    assert found.tolist() == [0.5, 0]


held_out = runpy.run_path(str(SCRIPTS / "held_out.py"))


def test_recipes_are_followed_on_windows_held_out(recipes, tmp_path: Path, capsys):
    recipe = tmp_path / "often.toml"
    text = Path(recipes[0]).read_text().replace("save_every = ", "save_every = 3 # ")
    recipe.write_text(re.sub("keep = .*", "keep = 9", text))
    asked = ["--windows", "5", "--draws", "2", "--steps", "3"]
    held_out["main"]([str(tmp_path), str(recipe), *asked])
    rows = json.loads((tmp_path / "often.json").read_text())
    assert [row["steps"] for row in rows] == [3, 4]
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == rows
    unseen, learned = (row["bound_nats_per_token"] for row in (rows[-1], rows[-1]["learned"]))
    assert unseen["value"] != learned["value"]
    held_out["main"]([str(tmp_path / "again"), str(tmp_path / "often"), *asked])
    assert json.loads((tmp_path / "again" / "often.json").read_text()) == rows


ways = runpy.run_path(str(SCRIPTS / "choose_next_tracks.py"))


def test_ways_to_draw_are_compared_on_windows_held_out(there: Path, tmp_path: Path, monkeypatch):
    """A way differs from itself in nothing, and a run from itself."""
    options = [{}, {"steps": 3, "renew": 0.5}]
    monkeypatch.setitem(ways["rows"].__globals__, "WAYS", options)
    runs = [str(path.parent) for path in sorted(there.glob("*-seed0/config.json"))]
    ways["main"]([str(tmp_path), *runs, "-n", "6", "--draws", "2"])
    found = json.loads((tmp_path / "ways.json").read_text())
    assert [row["way"] for row in found["rows"]] == options * len(EXPERIMENTS)
    assert found["baselines"]["frequent"]["hitrate@3"]["value"] > 0
    first, second, third, last = found["rows"]
    for row, to in ((first, "over_plain"), (third, "over_plain"), (second, "over_first")):
        assert {number["value"] for number in row[to].values()} == {0}
    hits = [row["metrics"]["known_tracks"]["value"] for row in found["rows"]]
    assert last["over_plain"]["known_tracks"]["value"] == pytest.approx(hits[3] - hits[2])
    assert last["over_first"]["known_tracks"]["value"] == pytest.approx(hits[3] - hits[1])
    assert not (tmp_path / "results").exists()


def test_unseen_windows_are_drawn_in_the_best_of_these_ways(run: Path, tmp_path: Path, monkeypatch):
    options = [{}, {"steps": 3}, {"steps": 2}]
    hits = iter([0.1, 0.3, 0.2])
    monkeypatch.setitem(ways["rows"].__globals__, "WAYS", options)
    known = {"known_tracks": np.ones(1)}
    monkeypatch.setitem(
        ways["rows"].__globals__,
        "drawn",
        lambda *_: Columns([0], np.zeros(1), known | {ways["BY"]: np.array([next(hits)])}),
    )
    ways["main"]([str(tmp_path), str(run), "--votes", "2"])
    found = [result(tmp_path, f"{name}-mdlm-chosen") for name in ("next-tracks", "repair")]
    assert [own["sampler"] for own in found] == [{"steps": 3}] * 2
    assert found[0]["draws"] == 2
