"""Generated molecules: how many are molecules at all, how many differ, are new, are unlike.

    validity     parse in RDKit and are not empty            over all samples
    uniqueness   distinct canonical forms                    over valid samples
    novelty      distinct forms not in the training set      over distinct forms
    diversity    1 - mean Tanimoto similarity                over all pairs of valid samples

Uniqueness falls as samples are added, so it stands beside their number, 15,000 in the paper.
Diversity is over valid samples and not over distinct ones, as MOSES has it: a model that says one
thing over and over is not diverse. A sample is not paired with itself, only with its repetitions.
"""

from collections.abc import Collection, Sequence, Set
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from redraft.data.molecules import canonical_or_none, molecule_of
from redraft.errors import UserError
from redraft.evaluation import statistics
from redraft.evaluation.statistics import Estimate

RADIUS, BITS = 2, 2048
"""Of the Morgan fingerprints that similarities are about."""
BLOCK = 2048
"""Molecules on each side of a matrix of similarities: 16 MB."""


def generation(
    samples: Sequence[str], training: Collection[str], seed: int = 0
) -> dict[str, Estimate]:
    """The four measures; `training` in canonical form. What no sample defines is absent.

    Without a valid molecule there is validity alone, and one makes no pair for diversity.
    """
    if not samples:
        raise UserError("at least one generated molecule is needed, got none")
    found = [(canonical_or_none(smiles), smiles) for smiles in samples]
    measures = {"validity": statistics.share([form is not None for form, _ in found], seed)}
    # In an order of their own: which sample came first must not matter.
    valid = sorted((form, smiles) for form, smiles in found if form is not None)
    if valid:
        known = training if isinstance(training, Set) else frozenset(training)
        forms = [form for form, _ in valid]
        measures["uniqueness"] = statistics.subsample(uniqueness, forms, seed)
        measures["novelty"] = statistics.subsample(lambda xs: novelty(xs, known), forms, seed)
    if len(valid) > 1:
        measures["diversity"] = diversity([smiles for _, smiles in valid])
    return measures


def uniqueness(forms: Collection[str]) -> float:
    """Distinct canonical forms over all of them."""
    return len(set(forms)) / len(forms)


def novelty(forms: Collection[str], training: Set[str]) -> float:
    """Distinct canonical forms that are not in the training set, over distinct ones."""
    distinct = set(forms)
    return len(distinct - training) / len(distinct)


# ------------------------------------------------------------------ similarity


def similarity(a: str, b: str) -> float:
    """Tanimoto similarity of two molecules, |a and b| / |a or b| over the bits they set."""
    return float(tanimoto(fingerprints([a]), fingerprints([b]))[0, 0])


def diversity(smiles: Sequence[str]) -> Estimate:
    """1 - mean_{i<j} Tanimoto(i, j), exactly over all pairs; its interval by the jackknife."""
    if len(smiles) < 2:
        raise UserError(f"diversity needs at least two molecules, got {len(smiles)}")
    value, low, high = statistics.mean_over_pairs(mean_similarities(fingerprints(smiles)))
    return Estimate(1 - value, 1 - high, 1 - low).within(0, 1)


def fingerprints(smiles: Sequence[str]) -> np.ndarray:
    """Morgan fingerprints, one row of zeros and ones a molecule, (n, BITS)."""
    from rdkit.Chem import rdFingerprintGenerator

    morgan = rdFingerprintGenerator.GetMorganGenerator(radius=RADIUS, fpSize=BITS)
    bits = np.empty((len(smiles), BITS), np.uint8)
    for row, text in zip(bits, smiles, strict=True):
        row[:] = morgan.GetFingerprintAsNumPy(molecule_of(text))
    return bits


def tanimoto(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """All similarities between two sets of fingerprints, (n, BITS) and (m, BITS) to (n, m)."""
    a, b = a.astype(np.float32), b.astype(np.float32)  # matrix products of integers are slow
    both = a @ b.T
    either = a.sum(1)[:, None] + b.sum(1) - both
    return both / either  # every molecule has an atom, and every atom a bit


def mean_similarities(bits: np.ndarray) -> np.ndarray:
    """Each molecule's mean similarity to all others, (n,), from blocks of half the matrix."""
    n = len(bits)
    sums = np.zeros(n)
    for i in range(0, n, BLOCK):
        for j in range(i, n, BLOCK):
            block = tanimoto(bits[i : i + BLOCK], bits[j : j + BLOCK])
            sums[i : i + BLOCK] += block.sum(1, dtype=np.float64)
            if i < j:
                sums[j : j + BLOCK] += block.sum(0, dtype=np.float64)
    return (sums - 1) / (n - 1)  # without its similarity to itself


# ------------------------------------------------------------------ FCD


def chemnet() -> Any:
    """The package `fcd`."""
    try:
        return import_module("fcd")
    except ImportError:
        raise UserError("FCD needs an extra package: pip install 'redraft[fcd]'") from None


def activations_of(smiles: Sequence[str]) -> np.ndarray:
    """(n, 512) what ChemNet makes of molecules."""
    fcd = chemnet()
    return fcd.get_predictions(fcd.load_ref_model(), list(smiles), n_jobs=0)


@lru_cache(maxsize=1)
def moments(reference: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of its activations; kept, since many samples are held against one."""
    activations = activations_of(reference)
    return activations.mean(0), np.cov(activations.T)


def frechet_chemnet_distance(
    samples: Sequence[str], reference: Sequence[str], seed: int = 0, k: int = 5
) -> Estimate:
    """FCD of the valid samples to `reference`, both in canonical form; needs the package `fcd`.

    |mu - mu'|^2 + tr(C + C' - 2 (C C')^(1/2)) over ChemNet's activations. The interval is from k
    splits of the samples; the reference counts as given. FCD falls as samples are added.
    """
    fcd = chemnet()
    valid = sorted(form for smiles in samples if (form := canonical_or_none(smiles)))
    if len(valid) < 2 * k or len(reference) < 2:
        raise UserError(
            f"FCD needs at least {2 * k} valid samples and 2 molecules to compare with, "
            f"got {len(valid)} and {len(reference)}"
        )
    mu, C = moments(tuple(reference))

    def distance(activations: np.ndarray) -> float:
        own = activations.mean(0), np.cov(activations.T)
        return float(fcd.calculate_frechet_distance(*own, mu, C))

    return statistics.splits(distance, activations_of(valid), k, seed).within(0, np.inf)
