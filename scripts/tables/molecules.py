"""Tables of molecules: what was tried, all methods, repair."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from cells import ROOT, collapse, rows_of, table, where_told, with_interval

from redraft.evaluation.results import named
from redraft.evaluation.statistics import Estimate, difference
from redraft.report.paper import NUMBERS


def tiny_bounds() -> str:
    """What the tiny recipes reach, one row a method."""
    titles = ("method", "bound at the start", "bound at the end", "valid, %")
    found = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in (ROOT / "results/molecules").glob("bound-*-tiny.json")
    ]
    cells = (
        (
            result["method"],
            f"{result['metrics']['bound_nats_per_token_start']['value']:.2f}",
            with_interval(result["metrics"]["bound_nats_per_token"], ".3f"),
            with_interval(result["metrics"]["validity"], ".1f", 100),
        )
        for result in sorted(found, key=lambda result: result["method"])
    )
    return table(titles, cells)


def search(name: str) -> str:
    """What was tried, in order."""
    titles = ("method", "optimizer", "options", "steps", "bound", "valid, %")
    cells = (
        (
            *(row["method"], row["optimizer"], options(row), f"{row['steps']:,}"),
            *(f"{row['bound_end']:.3f}", with_interval(row["validity"], ".1f", 100)),
        )
        for row in rows_of(name)["rows"]
    )
    return table(titles, cells)


def by_seed(name: str) -> str:
    """What was tried with several seeds."""
    titles = ("method", "options", "bound", "valid, %, by seed")
    cells = (
        (
            *(row["method"], ", ".join(row["options"])),
            ", ".join(f"{bound:.3f}" for bound in row["bound_end"]),
            ", ".join(with_interval(share, ".1f", 100) for share in row["validity"]),
        )
        for row in rows_of(name)["rows"]
    )
    return table(titles, cells)


def strides() -> str:
    """Samples in few steps, by where their times lie."""
    titles = ("model", "steps", "times, u = k/n", "valid, %")
    cells = (
        (
            *(row["model"], str(row["steps"]), row["times"]),
            with_interval(row["validity"], ".1f", 100),
        )
        for row in rows_of("molecules/strides")["rows"]
    )
    return table(titles, cells)


def renew_search() -> str:
    """Samples by which steps were renewed."""
    titles = ("model", "steps", "renewed", "valid, %", "diversity", "FCD")
    cells = (
        (
            *(row["model"], str(row["steps"]), row["renewed"]),
            with_interval(row["validity"], ".1f", 100),
            with_interval(row["diversity"], ".3f") if "diversity" in row else "",
            with_interval(row["fcd"], ".2f") if "fcd" in row else "",
        )
        for row in rows_of("molecules/renew-search")["rows"]
    )
    return table(titles, cells)


def infill_search() -> str:
    """Hidden tokens that came back, by the time that the denoiser was told."""
    titles = ("of", "hidden", "told", "tokens back, %", "all back, %", "valid, %")
    names = ("overlap", "exact", "validity")
    cells = (
        (
            *(row["of"], str(row["hidden"]), row["told"]),
            *(f"{100 * row[name]:.1f}" if name in row else "" for name in names),
        )
        for row in rows_of("molecules/infill-search")["rows"]
    )
    return table(titles, cells)


def renewal(folder: Path = ROOT / "results/molecules") -> str:
    """Samples of full runs by the share of their steps that was renewed."""
    titles = ("model", "renewed, %", "valid, %", "unique, %", "new, %", "diversity", "FCD")
    cells = (
        (
            *(path.stem.removeprefix("renewal-"), setting),
            *(
                with_interval(found[f"{name}@{setting}"], ".1f", 100)
                for name in ("validity", "uniqueness", "novelty")
            ),
            with_interval(found[f"diversity@{setting}"], ".3f"),
            with_interval(found[f"fcd@{setting}"], ".2f"),
        )
        for path in sorted(folder.glob("renewal-*.json"))
        for found in [json.loads(path.read_text(encoding="utf-8"))["metrics"]]
        for setting in (name.split("@")[1] for name in found if name.startswith("validity@"))
    )
    return table(titles, cells)


def leader_search() -> str:
    titles = ("method", "options", "bound", "valid, %", "row entropy over uniform's", "L_ref")
    cells = (
        (
            *(row["method"], options(row)),
            *(f"{row['bound_end']:.3f}", with_interval(row["validity"], ".1f", 100)),
            f"{row['entropy_share']:.3f}",
            f"{row['reference_loss']:.2f}" if row["reference_loss"] else "",
        )
        for row in rows_of("molecules/leader-search")["rows"]
    )
    return table(titles, cells)


def options(row: dict) -> str:
    given = [f"{name} {value}" for name, value in row["options"].items()]
    return ", ".join(given + row.get("notes", []))


def methods(*variants: str | None, folder: Path = ROOT / "results/molecules") -> str:
    """Generation and re-drafting of all methods that were measured so, seed by seed."""
    levels = ("20", "40", "60")
    titles = (
        *("method", "steps", "the paper's valid, %", "valid, %", "unique, %", "new, %"),
        *("diversity", "FCD", *(f"re-drafted at {t} %" for t in levels)),
    )
    theirs = NUMBERS["molecules", "generation"]
    rows = []
    for path in sorted(folder.glob("generation-*.json"), key=lambda path: path.stem):
        made = json.loads(path.read_text(encoding="utf-8"))
        method, seed = made["method"], made["seed"]
        if path.name not in (named(f"generation-{method}", seed, name) for name in variants):
            continue
        twin = folder / path.name.replace("generation", "redrafting", 1)
        again = json.loads(twin.read_text(encoding="utf-8"))["metrics"]
        found = made["metrics"]
        shares = (found[name] for name in ("validity", "uniqueness", "novelty"))
        rows.append(
            (
                *(path.stem.removeprefix("generation-"), f"{made['steps']:,}"),
                f"{100 * theirs[method]['validity']:.1f}" if method in theirs else "",
                *(with_interval(share, ".1f", 100) for share in shares),
                with_interval(found["diversity"], ".3f"),
                with_interval(found["fcd"], ".2f") if "fcd" in found else "",
                *(with_interval(again[f"validity@{t}"], ".1f", 100) for t in levels),
            )
        )
    return where_told(titles, rows)


def leads(sampled: Mapping[str, tuple[str, str]]) -> str:
    """Valid samples of VSDD less those of others, in points: experiment and metric, by seed."""
    others = {"d3pm-uniform": "less uniform noise", "mdlm": "less masks"}
    rows = []
    for title, (experiment, metric) in sampled.items():
        for seed in (0, 1):
            own, *theirs = (hits(experiment, metric, m, seed) for m in ("vsdd", *others))
            if len(own):
                told = (in_percent(difference(own, x, seed)) if len(x) else "" for x in theirs)
                rows.append((title, str(seed), f"{100 * own.mean():.1f}", *told))
    return table(("samples", "seed", "VSDD valid, %", *others.values()), rows)


def hits(experiment: str, metric: str, method: str, seed: int) -> np.ndarray:
    """1 for every sample that has a property, 0 for every other, in no order; none if unknown."""
    path = ROOT / "results/molecules" / named(f"{experiment}-{method}", seed)
    if not path.is_file():
        return np.zeros(0)
    found = json.loads(path.read_text(encoding="utf-8"))
    n, share = found["n"], found["metrics"][metric]["value"]
    return (np.arange(n) < round(n * share)).astype(float)


def in_percent(apart: Estimate) -> str:
    return "{:+.1f} ({:+.1f} to {:+.1f})".format(*(100 * x for x in apart))


REPAIRERS = {
    "any_edit": "blind search, one edit",
    "close_brackets": "rules: close brackets and rings",
    "through_selfies": "rules, then SELFIES and back",
}
"""What the baselines of the repair experiment are called; a model by its method."""


def repairs(folder: Path = ROOT / "results/molecules") -> str:
    """Broken molecules by their number of edits, one row a repairer, as far as measured."""
    found = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(folder.glob("repair-*.json"))
    ]
    rows: dict[tuple[str, str], tuple[int, dict]] = {}  # baselines as they stand in the first file
    for result in found:
        for edits, part in result.get("by_edits", {}).items():
            for name, metrics in part["metrics"].items():
                title = REPAIRERS.get(name) or result["method"]
                rows.setdefault((edits, title), (part["n"], metrics))
    titles = ("edits", "repairer", "n", "valid, %", "the same, %", "edit distance", "Tanimoto")
    cells = (
        (
            *(edits, name, str(n)),
            with_interval(metrics["repair_rate"], ".1f", 100),
            with_interval(metrics["exact_recovery"], ".1f", 100),
            with_interval(metrics["edit_distance"], ".2f") if "edit_distance" in metrics else "",
            with_interval(metrics["tanimoto"], ".2f"),
        )
        for (edits, name), (n, metrics) in sorted(rows.items(), key=lambda row: row[0][0])
    )
    return table(titles, cells) if rows else "Not measured yet."


def repairs_of_generated() -> str:
    """What an LSTM got wrong, and what became of it."""
    found = rows_of("molecules/repair-generated")
    titles = {
        "valid, %": ("repair_rate", ".1f", 100),
        "by one edit, %": ("one_edit", ".1f", 100),
        "edit distance": ("edit_distance", ".2f", 1),
        "its favourite, %": ("favourite", ".1f", 100),
        "nats a token, by the LSTM": ("nats", ".2f", 1),
    }
    by = {"redraft": found["metrics"]} | {
        title: found["others"][name]
        for name, title in (REPAIRERS | {"favourite": "its favourite, an edit away"}).items()
    }
    rows = [
        (
            title,
            *(with_interval(metrics[name], form, scale) for name, form, scale in titles.values()),
        )
        for title, metrics in by.items()
    ]
    own = found["generator"]["nats"]
    rows += [
        (f"{kind} ones as they are", *[""] * 4, with_interval(own[kind], ".2f"))
        for kind in ("broken", "valid")
    ]
    return table(("repaired by", *titles), rows)


TABLES: dict[str, Callable[[], str]] = {
    "tiny-bounds": tiny_bounds,
    "recipe-search": lambda: search("molecules/recipe-search"),
    "leader-search": leader_search,
    "methods": lambda: methods(None, "symmetric", "semantic-start"),
    "methods-without-recall": lambda: methods("without-recall"),
    "paper-size-search": lambda: search("molecules/paper-size-search"),
    "denoiser-search": lambda: by_seed("molecules/denoiser-search"),
    "kernel-search": lambda: by_seed("molecules/kernel-search"),
    "reinforce-search": lambda: by_seed("molecules/reinforce-search"),
    "fldd-search": lambda: by_seed("molecules/fldd-search"),
    "strides": strides,
    "infill-search": infill_search,
    "renew-search": renew_search,
    "renew-kernel-search": lambda: by_seed("molecules/renew-kernel-search"),
    "renewal": renewal,
    "leads": lambda: leads(
        {
            "50 steps": ("generation", "validity"),
            **{f"{n} steps": ("steps", f"validity@{n}") for n in (5, 10, 25)},
            "50 steps, half of them renewed": ("renewal", "validity@50"),
        }
    ),
    "collapse": lambda: collapse(
        "molecules",
        {
            "d3pm-confusion-symmetric": "symmetric confusion",
            "vsdd-seed1": "VSDD, which begins there",
            "d3pm-reinforce": "D3PM-Reinforce",
        },
    ),
    "repair-molecules": repairs,
    "repair-generated": repairs_of_generated,
}
