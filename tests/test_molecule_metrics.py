"""Measures of generated molecules: sets whose answers are known, and a second way to them."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rdkit import Chem, DataStructs
from rdkit.Chem import rdFingerprintGenerator

from redraft.data.molecules import bundled
from redraft.errors import UserError
from redraft.evaluation import molecules
from redraft.evaluation.molecules import (
    diversity,
    fingerprints,
    frechet_chemnet_distance,
    generation,
    mean_similarities,
    similarity,
    tanimoto,
)

POOL = ["CCO", "OCC", "c1ccccc1", "C1=CC=CC=C1", "CC(=O)O", "CCN", "C1CC", "", "C(", "N#N", "[Na+]"]
some = st.lists(st.sampled_from(POOL), min_size=1, max_size=20)
seeds = st.integers(0, 3)


def direct(smiles: list[str]) -> np.ndarray:
    """All similarities by RDKit's own fingerprints and its own loop."""
    morgan = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    prints = [morgan.GetFingerprint(Chem.MolFromSmiles(text)) for text in smiles]
    return np.array([DataStructs.BulkTanimotoSimilarity(a, prints) for a in prints])


@pytest.fixture(scope="module")
def some_molecules() -> list[str]:
    return list(bundled().train[:60])


# ------------------------------------------------------------------ known answers


def test_a_set_counted_by_hand():
    """Three of five are molecules, ethanol twice; benzene is known."""
    measures = generation(["CCO", "OCC", "C1CC", "", "c1ccccc1"], {"c1ccccc1"})
    assert list(measures) == ["validity", "uniqueness", "novelty", "diversity"]
    assert measures["validity"].value == pytest.approx(3 / 5)
    assert measures["uniqueness"].value == pytest.approx(2 / 3)
    assert measures["novelty"].value == pytest.approx(1 / 2)
    # The pairs: ethanol with itself, and twice with benzene, which shares no bit with it.
    assert measures["diversity"].value == pytest.approx(2 / 3)


def test_training_may_be_any_collection():
    samples = ["CCO", "CCN"]
    for training in (["CCO"], ("CCO",), {"CCO"}, {"CCO": 1}, {"CCO": 1}.keys()):
        assert generation(samples, training)["novelty"].value == 0.5


def test_nothing_known_is_all_new_and_all_known_is_nothing_new():
    assert generation(["CCO", "CCN"], [])["novelty"].value == 1
    assert generation(["CCO", "CCN"], ["CCO", "CCN"])["novelty"].value == 0


def test_what_no_sample_defines_is_absent():
    assert list(generation(["C1CC", "", "x"], ["CCO"])) == ["validity"]
    assert generation(["C1CC"], [])["validity"].value == 0
    assert list(generation(["CCO", "C1CC"], [])) == ["validity", "uniqueness", "novelty"]
    with pytest.raises(UserError, match="got none"):
        generation([], ["CCO"])


def test_one_molecule_over_and_over_is_not_diverse():
    measures = generation(["CCO"] * 10, [])
    assert measures["diversity"].value == pytest.approx(0)
    assert measures["uniqueness"].value == pytest.approx(1 / 10)
    assert measures["novelty"].value == 1


def test_two_molecules_say_nothing_about_the_spread_of_diversity():
    assert diversity(["CCO", "c1ccccc1"]) == (1, 0, 1)
    with pytest.raises(UserError, match="got 1"):
        diversity(["CCO"])


def test_errors_of_the_parser_stay_out_of_the_terminal(capfd):
    generation(["C1CC", "c1ccc", "C(", "CCO", "[nH]1"], [])
    assert capfd.readouterr() == ("", "")


# ------------------------------------------------------------------ similarity


def test_similarity_is_that_of_rdkit(some_molecules):
    a, b = some_molecules[:2]
    assert similarity(a, b) == pytest.approx(direct([a, b])[0, 1])
    assert similarity("OCC", "CCO") == 1
    assert similarity("C", "[Na+]") == 0
    for broken in ("C1CC", "", "CÖ"):
        with pytest.raises(UserError, match="RDKit can parse"):
            similarity("CCO", broken)


def test_all_similarities_are_those_of_rdkit(some_molecules):
    bits = fingerprints(some_molecules)
    assert bits.shape == (60, 2048) and bits.dtype == np.uint8
    expected = direct(some_molecules)
    np.testing.assert_allclose(tanimoto(bits, bits), expected, rtol=1e-6)
    np.testing.assert_allclose(tanimoto(bits[:7], bits[7:]), expected[:7, 7:], rtol=1e-6)


@pytest.mark.parametrize("block", [7, 60, 100])
def test_blocks_are_no_matter(some_molecules, block, monkeypatch):
    monkeypatch.setattr(molecules, "BLOCK", block)
    expected = (direct(some_molecules).sum(1) - 1) / 59
    np.testing.assert_allclose(mean_similarities(fingerprints(some_molecules)), expected, rtol=1e-6)


def test_diversity_is_over_all_pairs_of_different_samples(some_molecules):
    expected = 1 - direct(some_molecules)[np.triu_indices(60, 1)].mean()
    estimate = diversity(some_molecules)
    assert estimate.value == pytest.approx(expected)
    assert 0 < estimate.low < estimate.value < estimate.high < 1


def test_coverage_of_diversity(some_molecules):
    """Draws from 60 molecules, whose mean similarity is known: 95 % of intervals hold it."""
    bits, rng = fingerprints(some_molecules), np.random.default_rng(0)
    truth, hits = tanimoto(bits, bits).mean(), 0
    for _ in range(300):
        means = mean_similarities(bits[rng.integers(60, size=80)])
        _, low, high = molecules.statistics.mean_over_pairs(means)
        hits += low <= truth <= high
    assert 0.91 <= hits / 300 <= 0.98


# ------------------------------------------------------------------ laws


@given(some, st.sets(st.sampled_from(["CCO", "CCN", "c1ccccc1"])), seeds)
def test_every_measure_is_a_share_inside_its_interval(samples, training, seed):
    for estimate in generation(samples, training, seed).values():
        assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1


@given(some, seeds, st.randoms(use_true_random=False))
def test_order_is_no_matter(samples, seed, rng):
    measures = generation(samples, {"CCO"}, seed)
    shuffled = generation(rng.sample(samples, len(samples)), {"CCO"}, seed)
    assert list(measures) == list(shuffled)
    for name, estimate in measures.items():
        assert estimate == pytest.approx(tuple(shuffled[name]))


@given(some)
def test_spelling_is_no_matter(samples):
    """Another SMILES of the same molecule changes nothing."""
    other = {"CCO": "OCC", "OCC": "C(O)C", "c1ccccc1": "C1=CC=CC=C1", "CCN": "NCC"}
    measures = generation(samples, {"CCO"})
    respelt = generation([str(other.get(smiles, smiles)) for smiles in samples], {"CCO"})
    assert list(measures) == list(respelt)
    for name, estimate in measures.items():
        assert estimate == pytest.approx(tuple(respelt[name]))


# ------------------------------------------------------------------ FCD


def fake_fcd() -> SimpleNamespace:
    """Two numbers a molecule in place of ChemNet, and the distance of the means alone."""
    return SimpleNamespace(
        load_ref_model=lambda: None,
        get_predictions=lambda model, smiles, n_jobs: np.array(
            [[len(text), text.count("C")] for text in smiles], float
        ),
        calculate_frechet_distance=lambda mu, C, nu, D: ((mu - nu) ** 2).sum(),
    )


def test_fcd_is_over_valid_samples(monkeypatch):
    monkeypatch.setitem(sys.modules, "fcd", fake_fcd())
    chains = ["C" * n for n in range(1, 21)]
    estimate = frechet_chemnet_distance([*chains, "C1CC", ""], ["C", "CCC"])
    assert estimate.value == pytest.approx(2 * (10.5 - 2) ** 2)
    assert 0 <= estimate.low < estimate.value < estimate.high
    with pytest.raises(UserError, match="at least 10 valid samples"):
        frechet_chemnet_distance(["C1CC"] * 20, ["C", "CCC"])


def test_the_reference_of_many_samples_is_looked_at_once(monkeypatch):
    fake, looked = fake_fcd(), []
    plain = fake.get_predictions
    fake.get_predictions = lambda model, smiles, n_jobs: (
        looked.append(len(smiles)) or plain(model, smiles, n_jobs)
    )
    monkeypatch.setitem(sys.modules, "fcd", fake)
    for length in (1, 2):
        frechet_chemnet_distance(["C" * length] * 12, ["CC", "CCO", "CCN"])
    assert sorted(looked) == [3, 12, 12]


def test_fcd_names_the_extra_it_needs(monkeypatch):
    monkeypatch.setitem(sys.modules, "fcd", None)
    with pytest.raises(UserError, match=r"redraft\[fcd\]"):
        frechet_chemnet_distance(["CCO"] * 20, ["C", "CCC"])
