"""Does learned noise know the bits of codes? results/playlists/code-bits-METHOD[-VARIANT].json.

    python scripts/code_bits.py DRAWN_FOLDER... [--variant NAME]

Of what `redraft compare` leaves beside each run, NAME.drawn, of playlists by LSH. A code is seven
signs there, and the denoiser is told nothing of them: to it a code is one of 128 names.

    ratio_BITS@t   how likely a code becomes one that differs in so many bits, over uniform noise
    nearest        bits in which the likeliest replacement differs, of the most frequent codes

Intervals are over codes.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from redraft.cli import outcome
from redraft.errors import UserError
from redraft.evaluation import results, statistics
from redraft.evaluation.statistics import Estimate
from redraft.experiments import drawn, noise
from redraft.experiments.domain import Drawn
from redraft.experiments.noise import Kernel
from redraft.tokenizers.base import EOS, SPECIALS

ROOT = Path(__file__).parents[1]
FIRST = len(SPECIALS) - EOS
"""The first code among valid states."""


def code_bits(own: Drawn, seed: int = 0) -> dict[str, Any]:
    """All that there is to say of a run's kernel, as a result."""
    kernel, data = own.kernel(), own.config.data
    if kernel is None or (data.domain, data.codes, data.shared) != ("playlists", "lsh", True):
        raise UserError(f"expected noise that was learned on shared LSH codes, got {own.folder}")
    found = {
        f"ratio_{bits}@{t}": ratio
        for t in noise.times_of(len(kernel))
        for bits, ratio in ratios(kernel, t, seed).items()
    }
    n = len(kernel.tokens) - len(SPECIALS)
    return results.result(own, "code-bits", n, found, nearest=nearest(kernel))


def ratios(kernel: Kernel, t: int, seed: int = 0) -> dict[int, Estimate]:
    """By the bits in which two codes differ: M_t[i, j] over its value in uniform noise."""
    found, apart = among_codes(kernel, t), differing(len(kernel.tokens) - len(SPECIALS))
    return {
        bits: statistics.bootstrap_mean(
            np.array([own[far == bits].mean() for own, far in zip(found, apart, strict=True)]), seed
        )
        for bits in range(1, int(apart.max()) + 1)
    }


def nearest(kernel: Kernel, t: int = 1, most: int = 10) -> list[int]:
    """In how many bits what the most frequent codes likeliest become differs from them."""
    found, counts = among_codes(kernel, t), kernel.counts[len(SPECIALS) :]
    rows = np.argsort(-counts, kind="stable")[:most]
    return differing(len(counts))[rows, found[rows].argmax(1)].tolist()


def among_codes(kernel: Kernel, t: int) -> np.ndarray:
    """(codes, codes) from and to, 1 where it is as under uniform noise."""
    M = kernel.M[kernel.times.tolist().index(t)]
    return M[FIRST:, FIRST:] * (len(M) - 1)


def differing(n: int) -> np.ndarray:
    """(n, n) in how many bits two numbers below n differ."""
    codes = np.arange(n)
    apart = codes[:, None] ^ codes
    return np.sum([apart >> bit & 1 for bit in range(n.bit_length())], axis=0)


def main() -> None:
    parser = argparse.ArgumentParser(description="Does learned noise know the bits of codes?")
    parser.add_argument("folders", nargs="+", type=Path, help="NAME.drawn of redraft compare")
    parser.add_argument("--variant", help="a name for these, beside those of others")
    given = parser.parse_args()
    for folder in given.folders:
        print(results.write(code_bits(drawn.read(folder)), ROOT / "results", given.variant))


if __name__ == "__main__":
    sys.exit(outcome(main))
