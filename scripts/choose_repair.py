"""At which noise level a model judges repairs best: held-out training molecules, broken, repaired.

    python scripts/choose_repair.py --model MODEL [-n 200]

Writes results/molecules/repair-choice.json: of molecules with one random edit, the share that
became valid and the share that became what they were, for every level. Validation molecules are
not looked at. The best level belongs into `Repairer.level`.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import redraft
from redraft import Model
from redraft.evaluation import results
from redraft.evaluation.statistics import Estimate
from redraft.experiments.data import dataset_of
from redraft.experiments.repair import Case, broken, measures, outcome
from redraft.repair import Repairer
from redraft.tokenizers.base import EOS

ROOT = Path(__file__).parents[1]
LEVELS = (0.02, 0.04, 0.08, 0.16, 0.32)
"""As shares of T."""


def held_out(model: Model, n: int, seed: int) -> list[Case]:
    """Molecules that the denoiser has not learned from, each with one random edit."""
    data = dataset_of(model.trained)
    longest = model.longest - 1  # one token may be inserted
    items = [data.tokenizer.decode(ids) for ids in data.held_out if len(ids) <= longest]
    return broken(items[:n], model.tokenizer.tokens[EOS + 1 :], 1, seed)


def measured(repairer: Repairer, cases: Sequence[Case]) -> dict[str, Estimate]:
    return measures([outcome(case, repairer.repair(case.broken).result) for case in cases])


def main(name: str, n: int, seed: int) -> None:
    model = redraft.load(name, "cpu")
    repairer = model.repairer()
    cases = held_out(model, n, seed)
    metrics: dict[str, Estimate] = {}
    for level in LEVELS:
        own = measured(replace(repairer, level=level), cases)
        metrics |= {f"{measure}@{level}": estimate for measure, estimate in own.items()}
        print(level, {measure: round(estimate.value, 3) for measure, estimate in own.items()})
    best = max(  # of equally good ones the level that is in use
        LEVELS,
        key=lambda level: (metrics[f"exact_recovery@{level}"].value, level == repairer.level),
    )
    more = {"model": Path(name).name, "cases_seed": seed, "part": "held out", "level": best}
    found = results.result(model.trained, "repair-choice", len(cases), metrics, **more)
    path = ROOT / "results/molecules/repair-choice.json"
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"the best level is {best}; written to {path.relative_to(ROOT)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", required=True, help="a run folder")
    parser.add_argument("-n", type=int, default=200, help="molecules to break")
    parser.add_argument("--seed", type=int, default=0, help="of the edits")
    flags = parser.parse_args()
    main(flags.model, flags.n, flags.seed)
