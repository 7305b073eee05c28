"""The paper's own numbers, beside which ours stand.

From "Learning to Re-Draft: A Variational Stackelberg Game for Discrete Diffusion": its tables of
generated molecules, stories and playlists, of repaired stories, removed spans and repaired
playlists, and the rank correlations that its text tells. Its data, budgets and judge are its own:
what differs is told with every number.
"""

from collections.abc import Mapping
from typing import Any

TITLE = "Learning to Re-Draft: A Variational Stackelberg Game for Discrete Diffusion"

Rows = dict[str, dict[str, float]]
"""Values of metrics, by method."""


def _rows(metrics: str, methods: Mapping[str, tuple[float, ...]]) -> Rows:
    names = metrics.split()
    return {method: dict(zip(names, row, strict=True)) for method, row in methods.items()}


NUMBERS: dict[tuple[str, str], Rows] = {
    ("molecules", "generation"): _rows(
        "validity uniqueness novelty diversity",
        {
            "mdlm": (0.587, 1, 1, 0.8717),
            "d3pm-uniform": (0.481, 1, 1, 0.8674),
            "d3pm-reinforce": (0.620, 1, 1, 0.8727),
            "fldd": (0.030, 1, 1, 0.9761),
            "vsdd": (0.843, 1, 1, 0.8679),
        },
    ),
    ("molecules", "noise"): _rows("spearman", {"vsdd": (0.70,)}),
    ("stories", "generation"): _rows(
        "judge_perplexity distinct_1 distinct_2",
        {
            "mdlm": (103.26, 0.1535, 0.5303),
            "d3pm-uniform": (236.33, 0.1362, 0.5718),
            "d3pm-reinforce": (351.83, 0.2447, 0.7022),
            "fldd": (871.51, 0.2441, 0.7671),
            "vsdd": (106.71, 0.1570, 0.5426),
        },
    ),
    ("stories", "entity-swap"): _rows(
        "exact_repair consistency",
        {"vsdd": (0.880, 0.974), "d3pm-uniform": (0.360, 0.860), "mdlm": (0.960, 0.992)},
    ),
    ("stories", "span-removal"): _rows(
        "token_overlap", {"vsdd": (0.243,), "d3pm-uniform": (0.163,), "mdlm": (0.184,)}
    ),
    ("playlists", "next-tracks"): _rows(
        "ndcg@3_any hitrate@3",
        {
            "mdlm": (0.0882, 0.2020),
            "d3pm-uniform": (0.0575, 0.1540),
            "d3pm-reinforce": (0.0526, 0.1340),
            "fldd": (0.0418, 0.1100),
            "vsdd": (0.1077, 0.2460),
        },
    ),
    ("playlists", "repair"): _rows(
        "repair_rate@duplication repair_rate@transition repair_rate@energy",
        {"vsdd": (0.789, 0.861, 0.853)},
    ),
    ("playlists", "noise"): _rows("spearman", {"vsdd": (0.74,)}),
}
"""By domain and experiment, under the names of our results."""

CONDITIONS = {
    "molecules": "a million molecules of ZINC20, 50 epochs on two A100s, 15,000 samples",
    "stories": (
        "100,000 stories of TinyStories on several A100s, judged by GPT-2; how many were sampled "
        "is not said, and Distinct-n falls with their number"
    ),
    "playlists": "44,042 listening histories that are not public, 50 epochs, 500 of them continued",
}
"""How the paper's numbers came about, by domain."""
JUDGE = "gpt2"


def beside(result: Mapping[str, Any]) -> dict[str, float]:
    """What the paper has for the numbers of a result; not where another judge has judged."""
    found = NUMBERS.get((result["domain"], result["experiment"]), {}).get(result["method"], {})
    judge, _, _ = result.get("judge", f"{JUDGE}-").rpartition("-")  # its name, without a digest
    return {name: value for name, value in found.items() if judge == JUDGE or "judge" not in name}
