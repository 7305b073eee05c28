"""The first minutes: what comes first, what is left behind, what is left alone."""

from pathlib import Path

import pytest
from mistakes import message

import redraft
from redraft import quickstart


@pytest.fixture
def told(monkeypatch) -> list[tuple[str, bool]]:
    """The parts of a quickstart as they come, and whether by a compact model; nothing is done."""
    parts: list[tuple[str, bool]] = []

    def note(name: str):
        def part(*given):
            model = next((x for x in given if isinstance(x, redraft.Model)), None)
            parts.append((name, model is not None and model.trained.compact))

        return part

    for name in ("generate", "repair", "learn", "try_out", "redraft", "draw_noise"):
        monkeypatch.setattr(quickstart, name, note(name))
    return parts


OWN = [("learn", False), ("try_out", False), ("redraft", False), ("draw_noise", False)]


def test_the_shipped_model_comes_first(told, tmp_path: Path):
    quickstart.quickstart(tmp_path / "new")
    assert told == [("generate", True), ("repair", True), *OWN]


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


def test_an_earlier_quickstart_is_replaced_and_nothing_else(tmp_path: Path):
    quickstart.clear(tmp_path / "new")
    (tmp_path / "new/molecules.png").touch()
    quickstart.clear(tmp_path / "new")  # it was broken off
    (tmp_path / "new/model").mkdir()
    (tmp_path / "new/model/config.json").touch()
    quickstart.clear(tmp_path / "new")
    assert not (tmp_path / "new/model").exists()
    (tmp_path / "new/mine.txt").touch()
    assert "choose another --out" in message(quickstart.clear, tmp_path / "new")
