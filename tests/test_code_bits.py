"""What noise knows of the bits of codes, on kernels whose answers are known."""

import runpy
from pathlib import Path

import numpy as np
import pytest

from redraft.experiments.noise import Kernel
from redraft.tokenizers.base import EOS, SPECIALS

script = runpy.run_path(str(Path(__file__).parents[1] / "scripts" / "code_bits.py"))

N = 16
TOKENS = [*SPECIALS, *map(str, range(N))]
FAR = np.array([[(i ^ j).bit_count() for j in range(N)] for i in range(N)])


def kernel(weight: np.ndarray) -> Kernel:
    """Two steps that replace a code by another with these weights, and keep the ending's share."""
    V, first = len(TOKENS), len(SPECIALS)
    Q = np.zeros((2, V, V))
    Q[:, first:, first:] = weight
    Q[:, EOS, first:] = Q[:, first:, EOS] = weight[0].sum() / (N - 1)
    return Kernel(Q, np.eye(V), np.arange(V)[::-1], TOKENS)


def test_bits_are_counted():
    np.testing.assert_array_equal(script["differing"](N), FAR)


def test_uniform_noise_knows_no_bits():
    uniform = kernel(1.0 - np.eye(N))
    for bits, ratio in script["ratios"](uniform, 1).items():
        assert ratio.value == pytest.approx(1), bits


def test_noise_that_flips_bits_is_known_by_its_ratios():
    """Half as likely for each bit more: so are the ratios, and the nearest differs in one."""
    halving = kernel(np.where(FAR > 0, 0.5**FAR, 0))
    found = [ratio.value for ratio in script["ratios"](halving, 2).values()]
    assert len(found) == 4
    np.testing.assert_allclose(np.divide(found[1:], found[:-1]), 0.5)
    assert script["nearest"](halving, most=5) == [1] * 5
