"""The experiment of repair: cases are broken, rules do what they say, measures are as they must."""

import json
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redraft.data.molecules import bundled, canonical, canonical_or_none
from redraft.errors import UserError
from redraft.experiments import repair
from redraft.experiments.repair import (
    Case,
    Outcome,
    balanced,
    broken,
    close_brackets,
    edited,
    lead,
    measures,
    open_rings,
    outcome,
    through_selfies,
)
from redraft.repair import Repaired, distance
from redraft.tokenizers.base import EOS
from redraft.tokenizers.smiles import SmilesTokenizer

ORIGINALS = list(bundled().train[:40])
TOKENIZER = SmilesTokenizer.fit(ORIGINALS)
TOKENS = TOKENIZER.tokens[EOS + 1 :]
split = SmilesTokenizer.split


# ------------------------------------------------------------------ cases


@settings(max_examples=20, deadline=None)
@given(edits=st.integers(1, 4), seed=st.integers(0, 1000))
def test_cases_do_not_parse_and_are_near(edits, seed):
    cases = broken(ORIGINALS[:5], TOKENS, edits, seed)
    assert cases == broken(ORIGINALS[:5], TOKENS, edits, seed)
    assert [case.original for case in cases] == ORIGINALS[:5]
    for case in cases:
        assert case.broken and canonical_or_none(case.broken) is None
        assert set(split(case.broken)) <= set(TOKENS)
        assert 1 <= distance(split(case.original), split(case.broken)) <= case.edits == edits


def test_other_seeds_break_otherwise_and_more_molecules_change_nothing():
    first = broken(ORIGINALS[:5], TOKENS, 2, 0)
    assert broken(ORIGINALS[:5], TOKENS, 2, 1) != first
    assert broken(ORIGINALS[:9], TOKENS, 2, 0)[:5] == first


def test_what_cannot_be_broken_is_left_out():
    """Any one edit of C in a table of C and O is a molecule, or nothing at all."""
    assert broken(["C", "CC"], ["C", "O"], 1, 0) == []
    (case,) = broken(["C", "F"], ["C", "F"], 2, 0)[-1:]
    assert case.original == "F" and canonical_or_none(case.broken) is None


def test_edits_are_of_three_kinds_equally_often():
    rng = np.random.default_rng(0)
    grown = [len(edited(["C", "O", "N"], ["C", "O"], rng)) - 3 for _ in range(3000)]
    for change in (-1, 0, 1):
        assert 900 < grown.count(change) < 1100
    assert edited(["C"], ["C", "C", "O"], rng) != ["C"]
    assert edited([], ["C", "O"], rng) in (["C"], ["O"])


def test_tokens_do_not_run_together():
    """C and l would be chlorine, and another number of tokens."""
    for case in broken(["CCCC"] * 50, ["C", "l"], 1, 0):
        assert "Cl" not in case.broken


@pytest.mark.parametrize(
    ("originals", "tokens", "edits", "said"),
    [
        (["C("], TOKENS, 1, "RDKit"),
        (["CC"], TOKENS, 0, "got 0"),
        (["CC"], ["C", "C"], 1, "2 different"),
    ],
)
def test_mistakes_are_told(originals, tokens, edits, said):
    with pytest.raises(UserError, match=said):
        broken(originals, tokens, edits, 0)


# ------------------------------------------------------------------ baselines


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("CC(C", "CC(C)"),
        ("CC)C", "CCC"),
        ("CC(C(C", "CC(C(C))"),
        (")CC(C))C", "CC(C)C"),
        ("c1ccccc", "c1ccccc1"),
        ("C1CC2CCC", "C1CC2CCC12"),
        ("C%12CCC", "C%12CCC%12"),
        ("C1CC1CC1", "C1CC1CC"),  # closed where it opens, it does not parse: dropped
        ("CC1", "CC"),
        ("C1CC(C", "C1CC(C)1"),
        ("Cc1ccccc1", "Cc1ccccc1"),
        ("[13CH3]C(C", "[13CH3]C(C)"),  # a number of an atom is no ring
        ("C(C)(C)(C)(C)C", None),
        ("CC=", None),
        ("c1cccc", None),
        ("CC(", None),
        ("", None),
    ],
)
def test_close_brackets(given, expected):
    assert close_brackets(given) == expected


@settings(deadline=None)
@given(text=st.text("CO()12=c", max_size=12))
def test_rules_give_molecules_or_nothing_and_leave_molecules_alone(text):
    result = close_brackets(text)
    if canonical_or_none(text) is not None:
        assert result == text
    elif result is not None:
        assert canonical_or_none(result) is not None
        assert balanced(split(result)) == split(result) and open_rings(split(result)) == []


def stand_in(refused: str = "") -> SimpleNamespace:
    """SELFIES that are SMILES between stars, of all but one; they know no nitrogen."""

    def encoder(smiles: str) -> str:
        if smiles == refused or canonical_or_none(smiles) is None:
            raise Refused
        return f"*{smiles}*"

    def decoder(selfies: str) -> str:
        return "C" if "N" in selfies else canonical(selfies.strip("*"))

    return SimpleNamespace(
        encoder=encoder, decoder=decoder, EncoderError=Refused, DecoderError=Refused
    )


class Refused(Exception):
    pass


def test_through_selfies_goes_the_longest_beginning(monkeypatch):
    monkeypatch.setitem(sys.modules, "selfies", stand_in())
    assert through_selfies("c1ccccc1(") == "c1ccccc1"
    assert through_selfies("c1ccccc((o") == "c1ccccc1"
    assert through_selfies("==") is None
    assert through_selfies("OCC(") == "OCC"  # not CCO: as it was written
    assert through_selfies("OCN(") == "C"  # another molecule: as SELFIES write it
    monkeypatch.setitem(sys.modules, "selfies", stand_in(refused="c1ccccc1o"))
    assert through_selfies("c1ccccc1o(") == "c1ccccc1"


def test_through_selfies_is_left_out_without_its_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "selfies", stand_in())
    assert list(repair.baselines()) == ["close_brackets", "through_selfies"]
    monkeypatch.setitem(sys.modules, "selfies", None)
    assert list(repair.baselines()) == ["close_brackets"]
    with pytest.raises(UserError, match="selfies"):
        through_selfies("CC(")


def test_the_package_itself_makes_molecules_of_broken_ones():
    pytest.importorskip("selfies")
    assert through_selfies("c1ccccc1(") == "c1ccccc1"
    for case in broken(ORIGINALS[:8], TOKENS, 1, 0):
        result = through_selfies(case.broken)
        assert result is None or canonical_or_none(result) is not None


# ------------------------------------------------------------------ measures

CASE = Case("CC(C)O", "CC(CO", 1)


def test_an_outcome_by_hand():
    assert outcome(CASE, None) == outcome(CASE, "CC(") == outcome(CASE, "") == Outcome()
    assert outcome(CASE, "OC(C)C") == Outcome(True, True, 1.0, 3)  # written in another way
    other = outcome(CASE, "CCCO")
    assert (other.valid, other.exact, other.edits) == (True, False, 1)
    assert 0 < other.tanimoto < 1


def test_measures_of_the_best_and_of_the_worst():
    best = [outcome(CASE, CASE.original)] * 20
    worst = [outcome(CASE, None)] * 20
    found = measures(best)
    assert set(found) == {"repair_rate", "exact_recovery", "tanimoto", "edit_distance"}
    assert {found[name].value for name in found} == {1}
    found = measures(worst)
    assert set(found) == {"repair_rate", "exact_recovery", "tanimoto"}
    assert {estimate.value for estimate in found.values()} == {0}
    assert found["repair_rate"].high > 0  # twenty failures are no proof
    assert {estimate.value for estimate in lead(best, worst).values()} == {1}
    assert {estimate.value for estimate in lead(worst, worst).values()} == {0}


def test_distance_is_over_the_repaired_alone():
    half = [outcome(CASE, "CC(C)O"), outcome(CASE, None)]
    found = measures(half)
    assert found["edit_distance"].value == 1
    assert found["repair_rate"].value == found["exact_recovery"].value == 0.5
    assert found["tanimoto"].value == 0.5


# ------------------------------------------------------------------ the whole


class Stub:
    """A model that knows all answers, or none."""

    tokenizer = TOKENIZER

    def __init__(self, knows: bool = True):
        self.knows = knows

    def repair(self, items, *, seed):
        assert seed == 5
        answers = {
            case.broken: case.original
            for edits in (1, 2)
            for case in broken(ORIGINALS[:12], TOKENS, edits, seed)
        }
        for item in items:
            yield Repaired(item, answers[item] if self.knows else None)


def run(knows: bool = True, **options) -> dict:
    model = Stub(knows)
    return repair.run(model, ORIGINALS[:12], 5, (1, 2), **options)  # pyright: ignore


def test_a_perfect_and_a_hopeless_model(monkeypatch):
    monkeypatch.setitem(sys.modules, "selfies", None)
    for knows in (True, False):
        found = run(knows)
        assert json.loads(json.dumps(found)) == found
        assert list(found) == ["1", "2"]
        for part in found.values():
            assert (part["n"], part["skipped"]) == (12, 0)
            assert list(part["metrics"]) == ["model", "any_edit", "close_brackets"]
            own, rules = part["metrics"]["model"], part["metrics"]["close_brackets"]
            for name in ("repair_rate", "exact_recovery", "tanimoto"):
                assert own[name]["value"] == knows
                assert 0 <= rules[name]["low"] <= rules[name]["value"] <= rules[name]["high"] <= 1
            for name in ("exact_recovery", "tanimoto"):
                ahead = part["differences"]["close_brackets"][name]["value"]
                assert ahead == pytest.approx(own[name]["value"] - rules[name]["value"])
    assert run() == run()


def test_the_table_has_every_repairer_and_only_what_was_measured(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "selfies", stand_in())
    script = Path(__file__).parents[1] / "scripts" / "tables"
    table = runpy.run_path(str(script))["TABLES"]["repair-molecules"]
    (tmp_path / "repair-choice.json").write_text(json.dumps({"method": "vsdd", "metrics": {}}))
    assert table(tmp_path) == "Not measured yet."
    for name, knows in (("mdlm", False), ("vsdd", True)):
        result = {"method": name, "by_edits": run(knows)}
        (tmp_path / f"repair-{name}.json").write_text(json.dumps(result))
    rows = [line.strip("| ").split(" | ") for line in table(tmp_path).splitlines()[2:]]
    assert [row[0] for row in rows] == ["1"] * 5 + ["2"] * 5
    assert len({tuple(row[:2]) for row in rows}) == 10
    for row in rows:
        if row[1] in ("mdlm", "vsdd"):
            assert row[2] == "12"
            assert row[3].startswith("100.0 (" if row[1] == "vsdd" else "0.0 (")


def test_the_callback_sees_every_case(monkeypatch):
    monkeypatch.setitem(sys.modules, "selfies", stand_in())
    seen: list[repair.Attempt] = []
    run(callback=seen.append)
    assert [attempt.n for attempt in seen] == list(range(23, -1, -1))
    assert [attempt.case.edits for attempt in seen] == [1] * 12 + [2] * 12
    for case, results, _ in seen:
        assert results["model"] == case.original
        assert results["close_brackets"] == close_brackets(case.broken)


def test_where_nothing_can_be_broken_nothing_is_measured():
    model = SimpleNamespace(
        tokenizer=SmilesTokenizer(["C", "O"]), repair=lambda items, seed: iter(())
    )
    found = repair.run(model, ["CC", canonical("OCC")], 0, (1,))  # pyright: ignore
    assert found == {"1": {"n": 0, "skipped": 2, "metrics": {}, "differences": {}}}


def test_blind_search_finds_a_valid_string_an_edit_away():
    tokens = ["(", ")", "1", "C", "c", "O"]
    for seed in range(5):
        found = repair.any_edit("CC(C", tokens, np.random.default_rng(seed))
        assert found is not None and canonical_or_none(found) is not None
        assert distance(SmilesTokenizer.split("CC(C"), SmilesTokenizer.split(found)) == 1
    assert repair.any_edit("((((", tokens, np.random.default_rng(0)) is None
