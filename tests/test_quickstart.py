"""The first minutes: what comes first, what is left behind, what is left alone."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from mistakes import message

import redraft
from redraft import checkpoint, quickstart
from redraft.config import Config, read_recipe
from redraft.folder import write_json


@pytest.fixture
def told(monkeypatch) -> list[tuple[str, bool]]:
    """The parts of a quickstart as they come, and whether by a compact model; nothing is done."""
    parts: list[tuple[str, bool]] = []

    def note(name: str):
        def part(*given):
            model = next((x for x in given if isinstance(x, redraft.Model)), None)
            parts.append((name, model is not None and model.trained.compact))

        return part

    for name in (
        "generate",
        "repair",
        "fill_in",
        "correct",
        "learn",
        "try_out",
        "redraft",
        "draw_noise",
    ):
        monkeypatch.setattr(quickstart, name, note(name))
    return parts


OWN = [("learn", False), ("try_out", False), ("redraft", False), ("draw_noise", False)]


def test_the_shipped_model_comes_first(told, tmp_path: Path):
    quickstart.quickstart(tmp_path / "new")
    assert told == [
        ("generate", True),
        ("repair", True),
        ("fill_in", True),
        ("correct", True),
        *OWN,
    ]


def test_new_molecules_are_told_and_drawn(molecules: Path, tmp_path: Path, monkeypatch, capsys):
    model = redraft.load(molecules, "cpu")
    monkeypatch.setattr(type(model), "sample_valid", lambda *_, **__: (["CCO", "C1CC1"], 7))
    quickstart.generate(model, tmp_path, 0)
    said = capsys.readouterr().out
    assert "CCO" in said and "C1CC1" in said and "7 draws" in said
    assert (tmp_path / "molecules.png").read_bytes().startswith(b"\x89PNG")


def test_repairs_show_what_changed(molecules: Path, monkeypatch, capsys):
    """Brackets in SMILES are not markup; what cannot be repaired is told, too."""
    monkeypatch.setattr(quickstart, "BROKEN", {"a": "C[NH3+](", "b": "C" * 40 + "("})
    quickstart.repair(redraft.load(molecules, "cpu"), 0)
    a, changed, b, failed = capsys.readouterr().out.splitlines()[2:]
    assert a == "  a: C[NH3+](" and b.startswith("  b: CCC")
    assert changed.startswith("    -> C") and "1 edit" in changed and "{" in changed
    assert failed.startswith("    -> not repaired: ")


def test_hidden_words_are_filled_in(monkeypatch, capsys):
    monkeypatch.setattr(quickstart, "STORY", "Tom had a dog. The [MASK] was big.")
    quickstart.fill_in(redraft.load("stories", "cpu"), 0)
    _, _, given, *filled = capsys.readouterr().out.splitlines()
    assert given.strip() == quickstart.STORY
    assert filled and all("Tom had a dog. The {" in line and "%" in line for line in filled)


def test_mistakes_of_a_story_are_corrected(capsys):
    quickstart.correct(redraft.load("stories", "cpu"), 0)
    said = capsys.readouterr().out
    assert "{-happy" in said and "{sad" in said and "{-find} {found}" in said


@pytest.fixture
def earlier(molecules: Path, tmp_path: Path) -> Path:
    """What a quickstart of another seed leaves behind, as far as its config goes."""
    shutil.copytree(molecules, tmp_path / "new/model")
    (tmp_path / "new/molecules.png").touch()
    reconfigure(tmp_path / "new", dataclasses.replace(read_recipe("quickstart"), seed=7))
    return tmp_path / "new"


def reconfigure(out: Path, config: Config) -> None:
    state = checkpoint.latest(out / "model")
    assert state is not None
    stored = json.loads((state / "model/config.json").read_text(encoding="utf-8"))
    write_json(state / "model/config.json", stored | {"config": config.to_dict()})


def test_an_earlier_quickstart_is_replaced(earlier: Path):
    quickstart.clear(earlier)
    assert not (earlier / "model").exists()
    quickstart.clear(earlier)  # only its first figure is there, as if it was broken off


def test_a_folder_of_other_files_is_left_alone(tmp_path: Path):
    quickstart.clear(tmp_path / "new")
    (tmp_path / "new/mine.txt").touch()
    assert "choose another --out" in message(quickstart.clear, tmp_path / "new")


@pytest.mark.parametrize("how", ["another config", "no figure", "an unreadable config"])
def test_a_run_of_ones_own_is_left_alone(how: str, earlier: Path):
    if how == "another config":
        own = dataclasses.replace(read_recipe("quickstart"), method="d3pm-uniform")
        reconfigure(earlier, own)
    elif how == "no figure":  # redraft train quickstart --out new/model
        (earlier / "molecules.png").unlink()
    else:
        for path in earlier.rglob("config.json"):
            path.write_text("{")
    assert "choose another --out" in message(quickstart.clear, earlier)
    assert (earlier / "model/model.safetensors").exists()
