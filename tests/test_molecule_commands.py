"""`redraft sample --valid` and `redraft evaluate`: files that chemists and tables can use."""

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from rdkit import Chem
from tiny import tiny

import redraft
from redraft.cli import main
from redraft.data.molecules import bundled, canonical_or_none
from redraft.evaluation import results
from redraft.evaluation.statistics import Estimate
from redraft.folder import digest
from redraft.report import molecules
from redraft.report.grid import molecule_grid
from redraft.report.structure import structure

LINES = Path(__file__).parent / "data" / "format-1"
SMILES = ["CCO", "c1ccccc1", "C[C@H](N)C(=O)O", "C" * 40]


@pytest.fixture
def run(capsys):
    def call(*flags: object) -> tuple[int, str, str]:
        code = main([str(flag) for flag in flags])
        return code, *capsys.readouterr()

    return call


# Files


@pytest.mark.parametrize("ending", [".smi", ".smiles", ".csv", ".sdf"])
def test_what_is_written_is_read_again(ending, tmp_path: Path):
    path = tmp_path / "new" / f"molecules{ending}"
    molecules.write(path, SMILES)
    if ending == ".sdf":
        found = [Chem.MolToSmiles(m) for m in Chem.SDMolSupplier(str(path))]
    else:
        found = [line for line in path.read_text().splitlines() if line != "smiles"]
    assert list(map(canonical_or_none, found)) == list(map(canonical_or_none, SMILES))


def test_a_grid_is_one_picture_with_every_molecule(tmp_path: Path):
    molecules.draw(tmp_path / "grid.svg", SMILES, columns=3)
    svg = ElementTree.parse(tmp_path / "grid.svg").getroot()
    width, height = molecules.CELL
    assert svg.get("width") == f"{3 * width}px" and svg.get("height") == f"{2 * height}px"


def test_endings_and_broken_molecules_are_told(tmp_path: Path):
    with pytest.raises(redraft.UserError, match=r"\.pdf"):
        molecules.write(tmp_path / "x.pdf", SMILES)
    with pytest.raises(redraft.UserError, match=r"\.gif"):
        molecules.draw(tmp_path / "x.gif", SMILES)
    with pytest.raises(redraft.UserError, match="C1CC"):
        molecules.draw(tmp_path / "x.svg", ["C1CC"])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["C1CC", "", "CÖ"])
def test_what_is_no_molecule_is_drawn_and_written_nowhere(text, tmp_path: Path):
    assert structure(text) is None
    assert molecule_grid([text]).getpixel((8, 8)) == (0xBB,) * 3  # a frame around the text
    path = tmp_path / "known.sdf"
    molecules.write(path, ["CCO"])
    before = path.read_bytes()
    for write, ending in ((molecules.write, ".sdf"), (molecules.draw, ".svg")):
        with pytest.raises(redraft.UserError, match=re.escape(repr(text))):
            write(path.with_suffix(ending), ["CCN", text])
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


# redraft sample --valid


def test_valid_samples_are_valid_different_and_counted(molecules, run):
    code, out, err = run("sample", molecules, "-n", 5, "--valid", "--seed", 1, "--temperature", 0.5)
    rows = out.splitlines()
    assert code == 0 and len(rows) == 5
    forms = {canonical_or_none(row) for row in rows}
    assert len(forms) == 5 and None not in forms
    assert "5 valid, different molecules in" in err


def test_the_same_seed_gives_the_same_valid_molecules(molecules):
    model = redraft.load(molecules, "cpu")
    first, again = (model.sample_valid(4, seed=3, temperature=0.5) for _ in range(2))
    assert first == again and first[1] >= 4


def test_it_gives_up_and_keeps_what_it_has(molecules, run, monkeypatch):
    model = redraft.load(molecules, "cpu")
    monkeypatch.setattr(type(model), "sample", lambda self, n, **_: ["CCO", "C1CC"] * n)
    found, drawn = model.sample_valid(2, seed=0, most=5)
    assert found == ["CCO"] and drawn >= 10
    code, out, err = run("sample", molecules, "-n", 2, "--valid")
    assert (code, out) == (1, "CCO\n")
    assert "only 1 of 2" in err


def test_valid_samples_go_to_files(molecules, run, tmp_path: Path):
    flags = ("--temperature", 0.5, "--out", tmp_path / "a.csv", "--draw", tmp_path / "a.svg")
    code, out, _ = run("sample", molecules, "-n", 3, "--valid", "--seed", 1, *flags)
    assert (code, out) == (0, "")
    assert len((tmp_path / "a.csv").read_text().splitlines()) == 4
    assert (tmp_path / "a.svg").exists()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--valid", "--out", "x.pdf"], "x.pdf"),
        (["--valid", "--draw", "x.gif"], "x.gif"),
        (["--draw", "x.svg"], "--valid"),
        (["--out", "x.sdf"], "--valid"),
        (["-n", "0"], "got 0"),
        (["--out", "{tmp}/folder.smi"], "is a folder"),
        (["--valid", "--draw", "{tmp}/folder.svg"], "is a folder"),
        (["--out", "{tmp}/file/new/x.smi"], "is no folder"),
        (["--out", "{tmp}/locked/new/x.smi"], "is read-only"),
        (["--out", "{tmp}/locked.smi"], "is read-only"),
    ],
)
def test_a_mistake_is_told_before_anything_is_drawn(
    molecules, run, flags, said, tmp_path: Path, monkeypatch
):
    for name in ("folder.smi", "folder.svg", "locked"):
        (tmp_path / name).mkdir()
    for name in ("file", "locked.smi"):
        (tmp_path / name).touch()
    monkeypatch.setattr("os.access", lambda path, _: "locked" not in Path(path).name)
    monkeypatch.setattr(redraft.Model, "sample", lambda *a, **k: pytest.fail("drawn in vain"))
    flags = [flag.format(tmp=tmp_path) for flag in flags]
    code, out, err = run("sample", molecules, *flags)
    assert (code, out) == (2, "")
    assert said in err and len(err.strip().splitlines()) == 1


def test_lines_have_no_grammar(run):
    code, _, err = run("sample", LINES, "--valid")
    assert code == 2 and "knows lines" in err


@pytest.mark.parametrize("flags", [["--out", "x.smi"], ["--valid", "--draw", "x.svg"]])
def test_files_of_molecules_hold_no_lines(flags, run, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = run("sample", LINES, *flags)
    assert code == 2 and "--out and --draw are for molecules, this model knows lines" in err
    assert not list(tmp_path.iterdir())


# The model that comes with the package


def test_molecules_are_drawn_and_repaired_without_naming_a_model(
    molecules, run, tmp_path: Path, monkeypatch
):
    redraft.load(molecules, "cpu").save(tmp_path / "molecules", compact=True)
    monkeypatch.setattr("redraft.model.SHIPPED", tmp_path)
    flags = ("-n", 2, "--valid", "--seed", 1, "--temperature", 0.5, "--draw", tmp_path / "new.svg")
    code, out, _ = run("sample", *flags)
    assert code == 0 and len(out.splitlines()) == 2 and (tmp_path / "new.svg").exists()
    found = [run("repair", *words, "CCO", "--seed", 0) for words in ((), (molecules,))]
    assert found[0] == found[1] and found[0][0] == 0


# redraft evaluate


def test_evaluation_leaves_a_result(molecules, run, tmp_path: Path):
    code, out, _ = run("evaluate", molecules, "-n", 40, "--out", tmp_path, "--temperature", 1.0)
    assert code == 0 and "validity" in out
    found = json.loads((tmp_path / "molecules" / "generation-vsdd.json").read_text())
    assert found["n"] == 40 and found["experiment"] == "generation"
    assert {"recipe", "commit", "seed", "hardware", "data", "train_seconds", "steps"} <= set(found)
    assert set(found["metrics"]["validity"]) == {"value", "low", "high"}


def test_a_result_tells_how_it_was_drawn_if_not_plainly(molecules, run, tmp_path: Path):
    flags = ("-n", 4, "--out", tmp_path)
    assert run("evaluate", molecules, *flags)[0] == 0
    assert run("evaluate", molecules, *flags, "--renew", 0.5, "--variant", "renewed")[0] == 0
    assert run("evaluate", molecules, *flags, "--seed", 3, "--variant", "other")[0] == 0
    names = (f"generation-vsdd{end}.json" for end in ("", "-renewed", "-other"))
    plain, *rest = (json.loads((tmp_path / "molecules" / name).read_text()) for name in names)
    assert "sampler" not in plain
    assert [found["sampler"] for found in rest] == [{"renew": 0.5}, {"seed": 3}]


def test_molecules_drawn_elsewhere_are_evaluated_here(molecules, run, tmp_path: Path):
    file = tmp_path / "drawn.smi"
    file.write_text("CCO\nOCC\nC1CC\n\n", encoding="utf-8")
    code, _, _ = run(
        "evaluate", molecules, "--samples", file, "--out", tmp_path, "--variant", "mine"
    )
    assert code == 0
    found = json.loads((tmp_path / "molecules" / "generation-vsdd-mine.json").read_text())
    assert found["samples"] == {"file": "drawn.smi", "sha256": digest(file)}
    metrics = found["metrics"]
    assert metrics["validity"]["value"] == 0.5
    assert metrics["uniqueness"]["value"] == 0.5


@pytest.mark.parametrize("ending", [".smi", ".csv"])
def test_what_was_written_is_evaluated_as_it_was(ending, molecules, run, tmp_path: Path):
    from redraft.report.molecules import write

    file = tmp_path / f"drawn{ending}"
    write(file, ["CCO", "", "C1CC", "CCN"])
    flags = ("--out", tmp_path, "--variant", "mine")
    assert run("evaluate", molecules, "--samples", file, *flags)[0] == 0
    found = json.loads((tmp_path / "molecules" / "generation-vsdd-mine.json").read_text())
    assert found["n"] == 4 and found["metrics"]["validity"]["value"] == 0.5


def test_samples_that_are_no_text_are_told(molecules, run, tmp_path: Path):
    file = tmp_path / "drawn.smi"
    file.write_bytes(b"CCO\n\xff\n")
    flags = ("--out", tmp_path, "--variant", "mine")
    code, _, err = run("evaluate", molecules, "--samples", file, *flags)
    assert code == 2 and "UTF-8" in err and len(err.splitlines()) == 1


@pytest.mark.parametrize("words", [["evaluate", "-n", 4], ["noise"]])
def test_numbers_of_another_run_are_not_written_over(words, molecules, run, tmp_path, monkeypatch):
    model = redraft.load(molecules, "cpu")
    model.trained.summary |= {"seconds": 1e9}
    model.save(tmp_path / "other")
    word, *flags = [*words, "--out", tmp_path]
    assert run(word, molecules, *flags)[0] == run(word, molecules, *flags)[0] == 0
    (path,) = (tmp_path / "molecules").glob("*.json")
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(redraft.Model, "sample", lambda *a, **k: pytest.fail("drawn in vain"))
        code, _, err = run(word, tmp_path / "other", *flags)
    assert code == 2 and "--variant" in err and len(err.splitlines()) == 1
    assert run(word, tmp_path / "other", *flags, "--variant", "other")[0] == 0
    assert path.read_bytes() == before and path.with_stem(f"{path.stem}-other").exists()


def test_a_result_that_is_not_written_leaves_the_old_one(tmp_path: Path, monkeypatch):
    found = {"experiment": "generation", "method": "vsdd", "domain": "molecules", "seed": 0}
    path = results.write(found, tmp_path)
    before = path.read_bytes()

    def fail(*_):
        raise OSError("killed")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="killed"):
        results.write({**found, "more": 1}, tmp_path)
    assert path.read_bytes() == before


def test_fcd_is_to_the_unseen_molecules(molecules, run, tmp_path: Path, monkeypatch):
    given = []

    def distance(drawn, reference, seed):
        given.append((drawn, reference))
        return Estimate(1.5, 1.0, 2.0)

    monkeypatch.setitem(sys.modules, "fcd", SimpleNamespace())
    monkeypatch.setattr("redraft.evaluation.molecules.frechet_chemnet_distance", distance)
    file = tmp_path / "drawn.smi"
    file.write_text("CCO\nCCN\n", encoding="utf-8")
    flags = ("--fcd", "--out", tmp_path, "--variant", "mine")
    assert run("evaluate", molecules, "--samples", file, *flags)[0] == 0
    path = tmp_path / "molecules" / "generation-vsdd-mine.json"
    assert json.loads(path.read_text())["metrics"]["fcd"]["value"] == 1.5
    ((drawn, reference),) = given
    assert drawn == ["CCO", "CCN"]
    assert set(reference) <= set(bundled().validation) and reference


def test_without_its_package_fcd_is_refused_before_anything_is_drawn(molecules, run, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcd", None)
    monkeypatch.setattr(redraft.Model, "sample", lambda *a, **k: pytest.fail("drawn in vain"))
    code, _, err = run("evaluate", molecules, "--fcd")
    assert code == 2 and "redraft[fcd]" in err


def test_the_training_data_must_be_those_of_the_run(molecules, run, tmp_path: Path):
    file = tmp_path / "other.smi"
    file.write_text("\n".join("CNO" * n for n in range(1, 5)) + "\n", encoding="utf-8")
    code, _, err = run("evaluate", molecules, "-n", 2, "--data", file, "--out", tmp_path)
    assert code == 2 and "trained on" in err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--steps", "3"], "--variant"),
        (["--seed", "3"], "--variant"),
        (["--samples", __file__], "--variant"),
        (["--samples", "nowhere.smi"], "nowhere.smi"),
        (["--experiment", "repair", "--fcd"], "not for repair"),
        (["--experiment", "repair", "--steps", "3", "--variant", "x"], "not for repair of mol"),
    ],
)
def test_mistakes_in_evaluation_are_told(molecules, run, flags, said):
    code, _, err = run("evaluate", molecules, *flags)
    assert code == 2 and said in err


def test_other_domains_are_told_so(run):
    code, _, err = run("evaluate", LINES)
    assert code == 2 and "knows lines" in err


def test_a_run_knows_the_recipe_it_followed():
    config = redraft.read_recipe("tiny/vsdd")
    assert results.recipe_of(config) == "tiny/vsdd"
    assert results.recipe_of(tiny("vsdd")) == "its own config.json"
