"""Re-drafting: there and back, with numbers whose answers are known."""

import json
from pathlib import Path

import pytest
import torch

import redraft
from redraft.cli import main
from redraft.experiments import redrafting
from redraft.experiments.data import dataset_of, learned, unseen
from redraft.experiments.redrafting import Outcome, Redraft, judged, lead, measures, redrafts


@pytest.fixture(scope="module")
def model(molecules) -> redraft.Model:
    return redraft.load(molecules, "cpu")


def known(*cases: tuple[str, float, str], level: float = 0.2) -> list[Outcome]:
    """What became of ethanol: noised string, tokens kept, result."""
    return judged([Redraft(level, "CCO", *case) for case in cases])


def test_measures_of_known_cases():
    found = measures(
        known(
            ("CCO", 1.0, "OCC"),  # the same molecule, written otherwise
            ("C(C", 0.5, "CCN"),  # another one
            ("CC(", 0.5, "C(C"),  # none
            ("c1c", 0.0, ""),
        )
    )
    values = {name: estimate.value for name, estimate in found.items()}
    assert values["validity@20"] == 0.5
    assert values["exact_recovery@20"] == 0.25
    assert values["tokens_kept@20"] == 0.5
    assert values["corrupted_parse@20"] == 0.25
    assert values["corrupted_similarity@20"] == 1
    assert 0.25 < values["similarity@20"] < 0.5  # one alike, one a little


def test_levels_are_measured_apart():
    found = measures(known(("C(", 0.5, "CCO")) + known(("C(", 0.1, "C("), level=0.6))
    assert (found["validity@20"].value, found["validity@60"].value) == (1, 0)
    assert found["tokens_kept@60"].value == 0.1


def test_what_nothing_defines_is_absent():
    assert "corrupted_similarity@20" not in measures(known(("C(", 0.5, "CCO")))


def pair(*results: str) -> list[Outcome]:
    originals = ("CCO", "CCN", "CCC", "CCS")
    found = [Redraft(0.4, o, "C(", 0.5, r) for o, r in zip(originals, results, strict=True)]
    return judged(found)


def test_differences_are_paired_by_molecule():
    """What is hard for both goes out; what is left is what four molecules may not have shown."""
    ours, theirs = pair("OCC", "NCC", "CCC", "C("), pair("CO", "CN", "CO", "C(")
    found = lead(ours, theirs)
    assert found["exact_recovery@40"].value == 0.75
    margin = 1 - 0.025**0.25
    assert found["validity@40"] == pytest.approx((0, -margin, margin))
    assert lead(ours, theirs[::-1]) == found  # in whatever order they were drawn
    assert lead(ours, theirs[:3]) == {}  # other molecules


def test_every_molecule_goes_there_and_back(model):
    originals = unseen(dataset_of(model.trained), 30)
    found = redrafts(model, originals, level=0.4, seed=1)
    assert sorted(r.original for r in found) == sorted(originals)
    assert all(0 <= r.kept <= 1 for r in found)
    again = redrafts(model, originals, level=0.4, seed=1)
    assert found == again


def test_more_noise_keeps_fewer_tokens(model):
    originals = unseen(dataset_of(model.trained), 60)
    found = measures(judged(redrafting.draw(model, originals)))
    kept = [found[f"tokens_kept@{level}"].value for level in (20, 40, 60)]
    assert kept[0] > kept[1] > kept[2]


def test_noise_is_the_models_own(model):
    """At level 0.4 of T = 5 every token has gone two steps, with the committed kernel."""
    process, x0 = model.trained.process, torch.tensor([[3, 4, 5, 2]])
    rows = process.rows(x0, torch.tensor([2]))  # pyright: ignore[reportAttributeAccessIssue]
    staying = rows.gather(-1, x0[..., None]).mean()
    many = redrafts(model, ["CCO"] * 400, level=0.4, seed=0)
    kept = sum(r.kept for r in many) / len(many)
    assert abs(kept - float(staying)) < 0.1


def test_learned_and_unseen_are_apart(model):
    data = dataset_of(model.trained)
    assert not learned(data) & set(unseen(data, 10_000))
    assert len(unseen(data, 3)) == 3


def test_the_command_writes_a_result(molecules, tmp_path: Path, capsys):
    flags = ["--experiment", "redrafting", "-n", "5", "--out", str(tmp_path)]
    assert main(["evaluate", str(molecules), *flags]) == 0
    assert "validity@20" in capsys.readouterr().out
    result = json.loads((tmp_path / "molecules" / "redrafting-vsdd.json").read_text())
    assert result["experiment"] == "redrafting" and result["n"] == 5
    assert set(result["metrics"]["validity@60"]) == {"value", "low", "high"}


def test_repair_is_an_experiment_too(molecules, tmp_path: Path, capsys):
    flags = ["--experiment", "repair", "-n", "3", "--out", str(tmp_path)]
    assert main(["evaluate", str(molecules), *flags]) == 0
    assert "exact_recovery@1" in capsys.readouterr().out
    result = json.loads((tmp_path / "molecules" / "repair-vsdd.json").read_text())
    assert set(result["by_edits"]) == {"1", "2", "3"}
    assert "close_brackets" in result["by_edits"]["1"]["metrics"]
    assert (
        result["metrics"]["repair_rate@1"]
        == result["by_edits"]["1"]["metrics"]["model"]["repair_rate"]
    )


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--experiment", "redrafting", "--steps", "3", "--variant", "x"], "--steps"),
        (["--experiment", "other"], "other"),
        (["-n", "0"], "got 0"),
    ],
)
def test_mistakes_are_told(molecules, flags, said, capsys):
    assert main(["evaluate", str(molecules), *flags]) == 2
    assert said in capsys.readouterr().err
