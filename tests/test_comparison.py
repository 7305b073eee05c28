"""`redraft compare`: one budget, one table, and no work done twice, on however many machines."""

import dataclasses
import json
import runpy
import shutil
import signal
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from mistakes import message
from tiny import tiny

import redraft
from redraft import checkpoint, comparison
from redraft.cli import main
from redraft.data.molecules import canonical_or_none
from redraft.errors import Stopped
from redraft.evaluation import results
from redraft.evaluation.statistics import Estimate
from redraft.experiments import drawn, redrafting, sweeps
from redraft.experiments.molecules import Amounts, Drawn
from redraft.report.tables import comparison_table, with_interval

FEW = ("-n", "40", "--fewer", "30", "--redrafts", "8", "--renewed", "20")
AMOUNTS = Amounts(40, 30, 8, 20)
EXPERIMENTS = {
    "mdlm": {"generation", "steps", "renewal", "redrafting"},
    "vsdd": {"generation", "steps", "renewal", "redrafting", "noise"},
}
"""A mask is not learned, so that there is nothing to say of it."""

SAFELY: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""Python 3.11 has filters from 3.11.4 on."""


def write_recipe(folder: Path, method: str, name: str) -> str:
    """A tiny recipe as a file; its T leaves one number of fewer steps."""
    config = tiny(method).to_dict()
    config["noise"]["T"] = 6
    lines = [f'method = "{method}"']
    for section in ("data", "noise", "denoiser", "train"):
        lines.append(f"[{section}]")
        lines += [f"{k} = {json.dumps(v)}" for k, v in config[section].items() if v is not None]
    (folder / f"{name}.toml").write_text("\n".join(lines) + "\n")
    return str(folder / f"{name}.toml")


@pytest.fixture(scope="module")
def recipes(tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("recipes")
    return [write_recipe(folder, method, method) for method in ("mdlm", "vsdd")]


@pytest.fixture(scope="module")
def done(recipes, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "comparison"
    assert main(["compare", *recipes, *FEW, "--out", str(out)]) == 0
    return out


@pytest.fixture
def at_home(done: Path, tmp_path: Path) -> Path:
    """Another machine: what was drawn, without the runs."""
    for folder in done.glob("*.drawn"):
        shutil.copytree(folder, tmp_path / "home" / folder.name)
    return tmp_path / "home"


def molecules_in(folder: Path) -> Drawn:
    found = drawn.read(folder)
    assert isinstance(found, Drawn)
    return found


def forbid_work(monkeypatch) -> None:
    """Neither training nor drawing nor a model."""
    monkeypatch.setattr(comparison.trainer, "train", None)
    monkeypatch.setattr(comparison.trainer, "resume", None)
    monkeypatch.setattr(comparison.checkpoint, "load", None)
    monkeypatch.setattr(redraft.Model, "sample", None)


def everything(out: Path) -> dict[str, Any]:
    """All that was measured."""
    paths = [*out.glob("comparison*.json"), *out.glob("results/*/*.json")]
    return {str(path.relative_to(out)): json.loads(path.read_text()) for path in paths}


# Numbers


def test_every_experiment_leaves_a_result(done: Path):
    for method, experiments in EXPERIMENTS.items():
        files = (done / "results" / "molecules").glob(f"*-{method}.json")
        found = {
            result["experiment"]: result for result in (json.loads(f.read_text()) for f in files)
        }
        assert set(found) == experiments
        n = {"generation": 40, "steps": 30, "renewal": 20, "redrafting": 8}
        assert n.items() <= {name: result["n"] for name, result in found.items()}.items()
        assert {"validity@5", "validity@6"} <= set(found["steps"]["metrics"])
        assert {"validity@0", "validity@100"} <= set(found["renewal"]["metrics"])
        assert {"validity@20", "validity@60"} <= set(found["redrafting"]["metrics"])


def test_the_report_holds_all_results_and_differences(done: Path, recipes):
    report = json.loads((done / "comparison.json").read_text())
    assert report["recipes"] == recipes
    rows = zip(report["results"], report["others"], EXPERIMENTS.items(), strict=True)
    for generation, others, (method, experiments) in rows:
        assert generation["experiment"] == "generation"
        found = {result["experiment"]: result for result in (generation, *others)}
        assert set(found) == experiments and len(others) == len(experiments) - 1
        for name, result in found.items():
            path = done / "results" / "molecules" / f"{name}-{method}.json"
            assert json.loads(path.read_text()) == result
    for row in report["differences"]:
        first, other = (
            json.loads((done / "results/molecules" / f"{row['experiment']}-{m}.json").read_text())
            for m in EXPERIMENTS
        )
        values = [result["metrics"][row["metric"]]["value"] for result in (first, other)]
        assert row["value"] == pytest.approx(values[1] - values[0])
        assert row["low"] <= row["value"] <= row["high"]
    metrics = [row["metric"] for row in report["differences"]]
    assert metrics[0] == "validity" and "exact_recovery@40" in metrics


def test_every_number_is_shown_beside_the_differences(done: Path, capsys):
    report = json.loads((done / "comparison.json").read_text())
    comparison_table(report)
    tables = {table.split("  ")[0]: table for table in capsys.readouterr().out.split("\n\n")}
    for generation, others in zip(report["results"], report["others"], strict=True):
        for result in (generation, *others):
            for metric, estimate in result["metrics"].items():
                shown = tables[f"{result['experiment']}: {metric}"]
                assert with_interval(estimate) in shown, metric
    assert "less " in tables["redrafting: exact_recovery@40"]


def test_samples_are_what_was_measured(done: Path):
    report = json.loads((done / "comparison.json").read_text())
    files = sorted(done.glob("*.drawn/samples.smi"))
    for result, file in zip(report["results"], files, strict=True):
        lines = file.read_text().splitlines()
        valid = sum(canonical_or_none(s) is not None for s in lines)
        assert result["n"] == len(lines) == 40
        assert result["metrics"]["validity"]["value"] == pytest.approx(valid / 40)


def test_plain_samples_are_as_many_as_others(done: Path):
    (folder,) = done.glob("*mdlm-seed0.drawn")
    found = molecules_in(folder)
    for sweep, sizes in (
        (sweeps.STEPS, {5: 30, 6: 30}),
        (sweeps.RENEWAL, {0: 20, 50: 20, 75: 20, 100: 20}),
    ):
        drawn_by = found.by(sweep)
        assert {setting: len(lines) for setting, lines in drawn_by.items()} == sizes
        (plain,) = (n for n in sizes if not (folder / f"{sweep.name.format(n)}.smi").exists())
        assert drawn_by[plain] == found.samples()[: sizes[plain]]


@pytest.mark.parametrize("experiment", ["generation", "steps", "renewal", "redrafting"])
def test_a_run_is_evaluated_alike(experiment, done: Path, tmp_path: Path):
    """Drawn and measured at once, or one after the other: the same numbers."""
    (run,) = (path.parent for path in done.glob("*vsdd-seed0/config.json"))
    n = {"generation": 40, "steps": 30, "renewal": 20, "redrafting": 8}[experiment]
    flags = ["--experiment", experiment, "-n", str(n), "--out", str(tmp_path)]
    assert main(["evaluate", str(run), *flags]) == 0
    name = f"molecules/{experiment}-vsdd.json"
    once, twice = (json.loads((f / name).read_text()) for f in (tmp_path, done / "results"))
    if experiment in ("steps", "renewal"):  # 30 of 40 samples are not 30 samples
        once["metrics"], twice["metrics"] = (
            {k: v for k, v in found["metrics"].items() if k.endswith(("@5", "@50"))}
            for found in (once, twice)
        )
        assert once["metrics"]
    assert once == twice


def test_noise_is_looked_at_without_the_run(at_home: Path, done: Path, tmp_path: Path):
    (folder,) = at_home.glob("*vsdd-seed0.drawn")
    assert main(["noise", str(folder), "--out", str(tmp_path)]) == 0
    name = "molecules/noise-vsdd.json"
    once, twice = (json.loads((f / name).read_text()) for f in (tmp_path, done / "results"))
    assert once == twice
    assert (tmp_path / "molecules" / "noise-vsdd.png").exists()


def test_recipes_of_one_method_keep_their_own_results(done: Path, recipes, tmp_path: Path):
    (source,) = done.glob("*mdlm-seed0.drawn")
    entries = []
    for name in ("mdlm", "mdlm-slow", "mine"):
        entries += comparison.contenders([write_recipe(tmp_path, "mdlm", name)], tmp_path / "out")
        shutil.copytree(source, entries[-1].drawn)
    found = [comparison.draw(entry, AMOUNTS) for entry in entries]
    comparison.measure(entries, found, tmp_path / "out")
    files = (tmp_path / "out").glob("results/molecules/generation-*.json")
    wanted = {"mdlm", "mdlm-slow", "mdlm-mine"}
    assert {path.stem for path in files} == {f"generation-{name}" for name in wanted}


def test_recipes_of_one_name_are_told_apart_by_their_folders(tmp_path: Path):
    entries = comparison.contenders(["tiny/vsdd", "molecules/vsdd"], tmp_path)
    assert comparison.variants(entries) == ["tiny", "molecules"]


def test_a_recipe_that_adds_to_its_method_is_a_variant_also_alone(tmp_path: Path):
    recipes = [
        write_recipe(tmp_path, method, name)
        for method, name in (
            ("mdlm", "mdlm-slow"),
            ("d3pm-uniform", "paper-d3pm-uniform"),
            ("fldd", "paper-fldd-slow"),
            ("vsdd", "mine"),
        )
    ]
    found = comparison.variants(comparison.contenders(recipes, tmp_path))
    assert found == ["slow", "paper", "paper-slow", None]


def test_a_seed_is_a_variant(tmp_path: Path):
    found = {"experiment": "generation", "method": "vsdd", "domain": "molecules", "seed": 0}
    names = [results.write({**found, "seed": seed}, tmp_path).name for seed in (0, 1)]
    assert names == ["generation-vsdd.json", "generation-vsdd-seed1.json"]


# Nothing twice, anywhere


def test_nothing_is_done_twice(done: Path, recipes, monkeypatch):
    before = everything(done)
    forbid_work(monkeypatch)
    assert main(["compare", *recipes, *FEW, "--out", str(done)]) == 0
    assert everything(done) == before


def test_the_run_is_not_needed_to_measure(done: Path, at_home: Path, recipes, monkeypatch):
    forbid_work(monkeypatch)
    assert main(["compare", *recipes, *FEW, "--out", str(at_home)]) == 0
    assert everything(at_home) == everything(done)


AGAIN = "redraft: stopped; run the same command again to go on from here\n"


def test_it_goes_on_where_training_stopped(
    recipes, done: Path, tmp_path: Path, monkeypatch, capsys
):
    """Stopped while the second recipe is trained: the first is kept, the second continued."""
    out, real = tmp_path / "again", comparison.trainer.train

    def stopped(config, folder, watch=None):
        if config.method == "mdlm":
            return real(config, folder, watch)

        def interrupt(step, *_):
            if step == 20:
                signal.raise_signal(signal.SIGINT)

        return real(config, folder, interrupt)

    with monkeypatch.context() as patch:
        patch.setattr(comparison.trainer, "train", stopped)
        assert main(["compare", *recipes, *FEW, "--out", str(out)]) == 130
    assert capsys.readouterr().err.endswith(AGAIN)
    assert not (out / "comparison.json").exists()
    assert main(["compare", *recipes, *FEW, "--out", str(out)]) == 0
    timed = {drawn.SUMMARY, drawn.CURVES, "manifest.json"}
    files = [path for path in done.glob("*.drawn/*") if path.name not in timed]
    assert len(files) == 2 * 6 + 1
    for path in files:
        assert (out / path.relative_to(done)).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("part", ["draw", "measure"])
def test_wherever_it_stops_the_same_command_is_named(part, recipes, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(comparison, "draw", Mock())
    monkeypatch.setattr(comparison, part, Mock(side_effect=KeyboardInterrupt))
    assert main(["compare", *recipes, *FEW, "--out", str(tmp_path)]) == 130
    assert capsys.readouterr().err == AGAIN


def test_it_goes_on_where_drawing_stopped(molecules, tmp_path: Path, monkeypatch):
    model, folder = redraft.load(molecules, "cpu"), tmp_path / "x.drawn"

    def stopped(*_, **__):
        raise Stopped("stopped", 130)

    with monkeypatch.context() as patch:
        patch.setattr(redrafting, "draw", stopped)
        with pytest.raises(Stopped):
            drawn.draw(model, folder, AMOUNTS)
    assert drawn.find(folder) is None
    samples = {path.name: path.read_text() for path in folder.glob("*.smi")}
    assert len(samples) == 1 + len(sweeps.STEPS.others(model)) + len(sweeps.RENEWAL.others(model))
    with monkeypatch.context() as patch:
        patch.setattr(redraft.Model, "sample", stopped)
        found = drawn.draw(model, folder, AMOUNTS)
    assert found == drawn.find(folder)
    assert {path.name: path.read_text() for path in folder.glob("*.smi")} == samples
    assert len(molecules_in(folder).redrafts()) == 3 * 8


def test_what_was_drawn_from_another_run_goes(molecules, tmp_path: Path):
    model, folder = redraft.load(molecules, "cpu"), tmp_path / "x.drawn"
    drawn.draw(model, folder, Amounts(5, 5, 2, 5))
    original = molecules_in(folder).samples()
    (folder / "samples.smi").write_text("CCO\n" * 5)
    drawn.draw(model, folder, Amounts(5, 5, 3))
    assert molecules_in(folder).samples() == ["CCO"] * 5  # as many: kept
    model.trained.summary |= {"seconds": 1e9}
    drawn.draw(model, folder, Amounts(5, 5, 3))
    assert molecules_in(folder).samples() == original


def test_steps_that_cannot_be_left_out_are_not_drawn(tmp_path: Path, capsys):
    config = dataclasses.replace(
        tiny("fldd", steps=2), noise=dataclasses.replace(tiny("fldd").noise, T=6)
    )
    model = redraft.train(config, tmp_path / "run")
    folder = tmp_path / "run.drawn"
    drawn.draw(model, folder, Amounts(4, 4, 2, 4), tmp_path / "run/metrics.jsonl")
    found = molecules_in(folder)
    assert found.by(sweeps.STEPS) == found.by(sweeps.RENEWAL) == {} and found.kernel() is None
    names = {"summary.json", "samples.smi", "redrafts.jsonl", "metrics.jsonl", "manifest.json"}
    assert {path.name for path in found.folder.iterdir()} == names
    flags = ["--experiment", "steps", "--out", str(tmp_path)]
    assert main(["evaluate", str(tmp_path / "run"), *flags]) == 2
    assert "in the plain way only" in capsys.readouterr().err


# Two machines

SCRIPTS = Path(__file__).parents[1] / "scripts"
script = runpy.run_path(str(SCRIPTS / "draw.py"))["main"]


def test_there_and_back(recipes, tmp_path: Path, monkeypatch):
    """Trained and drawn without RDKit and without the command; measured from what was drawn."""
    there, back = tmp_path / "gpu", tmp_path / "home"
    with monkeypatch.context() as patch:
        for name in ("rdkit", "tyro"):
            patch.setitem(sys.modules, name, None)
        jobs = [f"0:{name}" for name in recipes]
        assert script([str(there), *jobs, *FEW]) == 0
    for path in there.glob("*.tar.gz"):
        with tarfile.open(path) as tar:
            tar.extractall(back, **SAFELY)
    for out in (there, back):
        assert main(["compare", *recipes, *FEW, "--out", str(out)]) == 0
    assert everything(there) == everything(back)
    assert len(everything(back)) == 1 + sum(map(len, EXPERIMENTS.values()))
    (curves,) = back.glob("*vsdd-seed0.drawn/metrics.jsonl")
    assert "validation/bound_end" in curves.read_text()


def test_a_copy_without_history_is_told_its_commit(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(checkpoint, "__file__", str(tmp_path / "src" / "redraft" / "checkpoint.py"))
    assert checkpoint.commit.__wrapped__() is None
    monkeypatch.setenv("REDRAFT_COMMIT", "abc")
    assert checkpoint.commit.__wrapped__() == "abc"
    (tmp_path / ".git").mkdir()  # of a history that is older than the files
    assert checkpoint.commit.__wrapped__() == "abc"


def test_one_that_fails_keeps_no_other_from_its_turn(recipes, tmp_path: Path, monkeypatch, capsys):
    mdlm, vsdd = recipes
    (tmp_path / f"{mdlm.replace('/', '-').removesuffix('.toml')}-seed0").touch()  # in the way
    jobs = [f"0:{mdlm}", f"1:{vsdd}"]
    assert script([str(tmp_path), *jobs, *FEW]) == 1
    assert [path.name[-17:] for path in tmp_path.glob("*.tar.gz")] == ["vsdd-seed1.tar.gz"]
    assert "mdlm-seed0" in capsys.readouterr().err


def test_a_signal_is_for_all_of_them(recipes, tmp_path: Path, monkeypatch, capsys):
    stopped = Mock(side_effect=Stopped("stopped at step 5", 143))
    monkeypatch.setattr(comparison.trainer, "train", stopped)
    assert script([str(tmp_path), *(f"0:{name}" for name in recipes), *FEW]) == 143
    assert stopped.call_count == 1
    assert capsys.readouterr().err == "stopped at step 5\n"


def test_curves_are_kept_as_results(at_home: Path):
    (folder,) = at_home.glob("*vsdd-seed0.drawn")
    curves = runpy.run_path(str(SCRIPTS / "curves.py"))["curves"]
    found = curves(drawn.read(folder))
    assert found["experiment"] == "curves" and found["method"] == "vsdd"
    first, *_, last = found["rows"]
    assert first["step"] == 10 and "loss" in first
    assert last["step"] == found["steps"] == 30 and "validation/bound_end" in last


@pytest.mark.parametrize(
    ("job", "told"), [("vsdd", "SEED:RECIPE"), ("0:tiny/vsd", "tiny/vsd"), ("x:tiny/vsdd", "got x")]
)
def test_a_script_is_told_of_mistakes_too(job, told, tmp_path: Path, capsys):
    try:
        code = script([str(tmp_path), job])
    except SystemExit as stop:
        code = stop.code
    assert code == 2
    assert told in capsys.readouterr().err


def test_without_rdkit_all_that_was_drawn_waits_for_it(done, at_home, recipes, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "rdkit", None)
    assert main(["compare", *recipes, *FEW, "--out", str(at_home)]) == 2
    assert "where RDKit is installed" in capsys.readouterr().err
    assert not everything(at_home)


def test_nothing_is_trained_where_only_what_was_drawn_is(at_home, recipes, monkeypatch, capsys):
    forbid_work(monkeypatch)
    assert main(["compare", *recipes, "-n", "41", "--out", str(at_home)]) == 2
    error = capsys.readouterr().err
    assert "41 samples" in error and "is not here" in error


def test_damage_on_the_way_is_told(at_home: Path, recipes, capsys):
    (path,) = at_home.glob("*mdlm-seed0.drawn/redrafts.jsonl")
    path.write_text(path.read_text()[:-10])
    assert main(["compare", *recipes, *FEW, "--out", str(at_home)]) == 2
    assert "redrafts.jsonl is damaged" in capsys.readouterr().err


# Mistakes


def test_a_budget_is_the_same_for_all(tmp_path: Path):
    entries = comparison.contenders(
        ["tiny/vsdd", "tiny/mdlm", "tiny/vsdd"], tmp_path, seconds=5, seed=3
    )
    assert [entry.name for entry in entries] == ["tiny/vsdd", "tiny/mdlm"]
    assert [entry.drawn.name for entry in entries] == [
        "tiny-vsdd-seed3.drawn",
        "tiny-mdlm-seed3.drawn",
    ]
    for entry in entries:
        assert (entry.config.train.seconds, entry.config.train.steps) == (5, None)
        assert entry.config.seed == 3


def test_fcd_is_measured_of_all_where_it_is_asked_for(recipes, at_home: Path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcd", SimpleNamespace())
    where = "redraft.evaluation.molecules.frechet_chemnet_distance"
    monkeypatch.setattr(where, lambda drawn, *_: Estimate(len(drawn), 1, 90))
    assert main(["compare", *recipes, *FEW, "--fcd", "--out", str(at_home)]) == 0
    report = json.loads((at_home / "comparison.json").read_text())
    assert [found["metrics"]["fcd"]["value"] for found in report["results"]] == [40, 40]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["tiny/vsd"], "tiny/vsd"),
        ([], "at least one recipe"),
        (["tiny/vsdd", "-n", "0"], "got 0"),
        (["tiny/vsdd", "--redrafts", "-2"], "got -2"),
        (["tiny/vsdd", "--seconds", "-1"], "got -1"),
        (["tiny/vsdd", "bench/stories"], "got molecules and stories"),
        (["{lines}"], "knows lines"),
        (["tiny/vsdd", "--judge", "gpt2"], "about molecules"),
        (["tiny/vsdd", "--bound", "5"], "--bound"),
        (["tiny/vsdd", "--fcd"], "redraft[fcd]"),
    ],
)
def test_mistakes_are_told_before_anything_is_trained(
    flags, said, tmp_path: Path, capsys, monkeypatch
):
    monkeypatch.setitem(sys.modules, "fcd", None)
    (lines := tmp_path / "own.toml").write_text('[data]\ndomain = "lines"\n')
    flags = [flag.format(lines=lines) for flag in flags]
    assert main(["compare", *flags, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert said in error and len(error.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_another_budget_is_another_folder(done: Path, at_home: Path, recipes):
    for out in (done, at_home):
        (entry,) = comparison.contenders(recipes[:1], out, seconds=1)
        assert "another recipe or budget" in message(comparison.draw, entry, AMOUNTS)
