"""`redraft compare`: one budget, one table, and no work done twice."""

import json
from pathlib import Path

import pytest
from tiny import tiny

import redraft
from redraft import comparison
from redraft.cli import main
from redraft.data.molecules import canonical_or_none
from redraft.errors import Stopped


@pytest.fixture(scope="module")
def recipes(tmp_path_factory) -> list[str]:
    """Two tiny recipes as files."""
    folder = tmp_path_factory.mktemp("recipes")
    paths = []
    for method in ("mdlm", "vsdd"):
        config = tiny(method).to_dict()
        lines = [f'method = "{method}"']
        for section in ("data", "noise", "denoiser", "train"):
            lines.append(f"[{section}]")
            lines += [f"{k} = {json.dumps(v)}" for k, v in config[section].items() if v is not None]
        (folder / f"{method}.toml").write_text("\n".join(lines) + "\n")
        paths.append(str(folder / f"{method}.toml"))
    return paths


@pytest.fixture(scope="module")
def done(recipes, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "comparison"
    assert main(["compare", *recipes, "-n", "40", "--out", str(out)]) == 0
    return out


def test_numbers_and_differences_are_written(done: Path, recipes):
    report = json.loads((done / "comparison.json").read_text())
    assert report["recipes"] == recipes
    assert [result["method"] for result in report["results"]] == ["mdlm", "vsdd"]
    (apart,) = report["differences"]
    values = [r["metrics"]["validity"]["value"] for r in report["results"]]
    assert apart["value"] == pytest.approx(values[1] - values[0])
    assert apart["low"] <= apart["value"] <= apart["high"]
    for result in report["results"]:
        path = done / "results" / "molecules" / f"generation-{result['method']}.json"
        assert json.loads(path.read_text()) == result


def test_samples_are_what_was_measured(done: Path):
    report = json.loads((done / "comparison.json").read_text())
    for result, file in zip(report["results"], sorted(done.glob("*.smi")), strict=True):
        drawn = file.read_text().splitlines()
        valid = sum(canonical_or_none(s) is not None for s in drawn)
        assert result["n"] == len(drawn) == 40
        assert result["metrics"]["validity"]["value"] == pytest.approx(valid / 40)


def test_nothing_is_done_twice(done: Path, recipes, monkeypatch, capsys):
    before = (done / "comparison.json").read_text()
    monkeypatch.setattr(comparison.trainer, "train", None)
    monkeypatch.setattr(comparison.trainer, "resume", None)
    monkeypatch.setattr(redraft.Model, "sample", None)
    assert main(["compare", *recipes, "-n", "40", "--out", str(done)]) == 0
    assert "difference" not in capsys.readouterr().err
    assert (done / "comparison.json").read_text() == before


def test_it_goes_on_where_it_stopped(recipes, done: Path, tmp_path: Path, monkeypatch):
    """Stopped while the second recipe is trained: the first is kept, the second continued."""
    out, real = tmp_path / "again", comparison.trainer.train

    def stopped(config, folder, watch=None):
        if config.method == "mdlm":
            return real(config, folder, watch)

        def interrupt(step, *_):
            if step == 20:
                raise Stopped("stopped", 130)

        return real(config, folder, interrupt)

    with monkeypatch.context() as patch:
        patch.setattr(comparison.trainer, "train", stopped)
        assert main(["compare", *recipes, "-n", "40", "--out", str(out)]) == 130
    assert not (out / "comparison.json").exists()
    assert main(["compare", *recipes, "-n", "40", "--out", str(out)]) == 0
    for name in ("mdlm-seed0.smi", "vsdd-seed0.smi"):
        (one,), (other,) = list(out.glob(f"*{name}")), list(done.glob(f"*{name}"))
        assert one.read_text() == other.read_text()


def test_without_rdkit_models_and_samples_wait_for_it(recipes, tmp_path, monkeypatch, capsys):
    out = tmp_path / "gpu"
    monkeypatch.setattr(comparison, "rdkit_version", lambda: None)
    assert main(["compare", recipes[0], "-n", "10", "--out", str(out)]) == 2
    assert "where RDKit is installed" in capsys.readouterr().err
    assert len(list(out.glob("*.smi"))) == 1
    monkeypatch.undo()
    assert main(["compare", recipes[0], "-n", "10", "--out", str(out)]) == 0


def test_a_budget_is_the_same_for_all(tmp_path: Path):
    entries = comparison.contenders(
        ["tiny/vsdd", "tiny/mdlm", "tiny/vsdd"], tmp_path, seconds=5, seed=3, data=None
    )
    assert [entry.name for entry in entries] == ["tiny/vsdd", "tiny/mdlm"]
    for entry in entries:
        assert (entry.config.train.seconds, entry.config.train.steps) == (5, None)
        assert entry.config.seed == 3


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["tiny/vsd"], "tiny/vsd"),
        ([], "at least one recipe"),
        (["tiny/vsdd", "-n", "0"], "got 0"),
        (["tiny/vsdd", "--seconds", "-1"], "got -1"),
        (["bench/stories"], "stories"),
    ],
)
def test_mistakes_are_told_before_anything_is_trained(flags, said, tmp_path: Path, capsys):
    assert main(["compare", *flags, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert said in error and len(error.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_another_budget_is_another_folder(done: Path, recipes, capsys):
    assert main(["compare", *recipes, "-n", "40", "--seconds", "1", "--out", str(done)]) == 2
    assert "another recipe or budget" in capsys.readouterr().err
