"""Stories through the commands: drawn where the GPU is, measured where a judge is."""

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tiny import tiny
from torch import Tensor, nn

import redraft
from redraft import comparison
from redraft.cli import main
from redraft.config import read_recipe
from redraft.data import stories as data
from redraft.errors import UserError
from redraft.evaluation import stories
from redraft.evaluation.judge import Judge
from redraft.experiments import drawn, editing
from redraft.experiments import stories as experiment
from redraft.experiments.bounds import Bound, bounds
from redraft.experiments.data import dataset_of
from redraft.experiments.stories import Amounts
from redraft.methods import METHODS
from redraft.objective import exact_bound
from redraft.report.tables import comparison_table

FEW = ("-n", "9", "--redrafts", "4", "--bound", "5", "--fewer", "3", "--renewed", "2")
FEW += ("--cooled", "4")
AMOUNTS = Amounts(9, 4, 5, 3, 2, 4)
PLAINLY = ("@6", "@0", "@100")
OTHERS = {"steps", "renewal", "temperature", *editing.EXPERIMENTS}
EXPERIMENTS = {"mdlm": {"generation", *OTHERS}, "vsdd": {"generation", "noise", *OTHERS}}


class Letters:
    bos_token_id, eos_token_id = 0, 1

    def __call__(self, texts: list[str], add_special_tokens: bool) -> dict[str, list[list[int]]]:
        return {"input_ids": [[2 + ord(letter) % 62 for letter in text] for text in texts]}

    def get_vocab(self) -> dict[str, int]:
        return {str(i): i for i in range(64)}


class Follows(nn.Module):
    """A causal model: each letter from the one before it."""

    config = SimpleNamespace()

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(64, 64)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> SimpleNamespace:
        return SimpleNamespace(logits=self.table(input_ids))


@pytest.fixture(autouse=True)
def judged(tmp_path_factory, monkeypatch) -> list[str]:
    """A judge that is always at hand; the names that were asked for."""
    asked = []

    def load(name: str) -> Judge:
        asked.append(name)
        return Judge(Follows(), Letters(), name, device="cpu")

    monkeypatch.setenv("REDRAFT_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setattr(Judge, "load", load)
    monkeypatch.setattr(experiment, "judge_at_hand", lambda: "follows")
    return asked


@pytest.fixture(scope="module")
def recipes(tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("recipes")
    for method in EXPERIMENTS:
        config = tiny(method, steps=4, batch=4, validate=4, log_every=2, device="cpu").to_dict()
        config["data"] |= {"domain": "stories", "synthetic": 300, "vocabulary": 650}
        config["data"] |= {"max_length": 160}
        config["noise"]["T"] = 6  # leaves one number of fewer steps
        lines = [f'method = "{method}"']
        for section in ("data", "noise", "denoiser", "train"):
            lines.append(f"[{section}]")
            lines += [f"{k} = {json.dumps(v)}" for k, v in config[section].items() if v is not None]
        lines += ["[leader]", "block = 2", "batch = 4", "probes = 2"]
        (folder / f"{method}.toml").write_text("\n".join(lines) + "\n")
    return [str(folder / f"{method}.toml") for method in EXPERIMENTS]


@pytest.fixture(scope="module")
def there(recipes, tmp_path_factory) -> Path:
    """A machine without RDKit, transformers or the command: trained and drawn, not measured."""
    out = tmp_path_factory.mktemp("gpu")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("rdkit", "tyro", "transformers"):
            patch.setitem(sys.modules, name, None)
        for entry in comparison.contenders(recipes, out):
            comparison.draw(entry, AMOUNTS)
    return out


@pytest.fixture
def home(there: Path, tmp_path: Path) -> Path:
    """Another machine: what was drawn, without the runs."""
    for folder in there.glob("*.drawn"):
        shutil.copytree(folder, tmp_path / "home" / folder.name)
    return tmp_path / "home"


@pytest.fixture
def done(home: Path, recipes) -> Path:
    assert main(["compare", *recipes, *FEW, "--out", str(home)]) == 0
    return home


def result(out: Path, name: str) -> dict:
    return json.loads((out / "results" / "stories" / f"{name}.json").read_text())


def run_of(there: Path, method: str) -> Path:
    (run,) = (path.parent for path in there.glob(f"*{method}-seed0/config.json"))
    return run


# ------------------------------------------------------------------ numbers


def test_every_experiment_leaves_a_result(done: Path):
    for method, experiments in EXPERIMENTS.items():
        found = {name: result(done, f"{name}-{method}") for name in experiments}
        assert len(list(done.glob(f"results/stories/*-{method}.json"))) == len(experiments)
        n = {"generation": 9, "entity-swap": 5, "span-removal": 3}
        n |= {"entity-swap-large": 4, "span-removal-large": 4}
        n |= {"steps": 3, "renewal": 2, "temperature": 4}
        assert n.items() <= {name: own["n"] for name, own in found.items()}.items()
        assert all("synthetic" in own["data"] for own in found.values())
        assert set(found["entity-swap"]["deviation"]) == {"exact_repair", "consistency"}


def test_generation_is_told_with_its_judge_and_its_scale(done: Path):
    found = result(done, "generation-vsdd")
    assert set(found["metrics"]) == {
        *("judge_perplexity", "nll_per_character", "distinct_1", "distinct_2"),
        *("unigram_entropy", "copied", "bound_nats_per_token", "bound_nats_per_char"),
    }
    assert found["judge"].startswith("follows-") and found["bound_n"] == 5
    scale = found["scale"]
    assert scale["n"] == 9
    for end in ("real", "held-out"):
        assert {"judge_perplexity", "distinct_1", "distinct_2"} <= set(scale[end])
    assert scale["real"] | scale["shuffled"] != scale["real"]


def test_differences_are_those_of_the_results(done: Path, recipes):
    report = json.loads((done / "comparison.json").read_text())
    assert report["recipes"] == recipes
    seen = set()
    for row in report["differences"]:
        first, other = (result(done, f"{row['experiment']}-{m}")["metrics"] for m in EXPERIMENTS)
        name = row["metric"].removesuffix("_ratio")
        a, b = other[name]["value"], first[name]["value"]
        expected = a / b if name != row["metric"] else a - b
        assert row["value"] == pytest.approx(expected, abs=1e-9)
        assert row["low"] <= row["value"] + 1e-9 and row["value"] <= row["high"] + 1e-9
        seen.add((row["experiment"], row["metric"]))
    assert {
        ("generation", "judge_perplexity_ratio"),
        ("generation", "bound_nats_per_char"),
        ("entity-swap-large", "exact_repair"),
        ("span-removal", "token_overlap"),
    } <= seen


def test_nothing_is_drawn_or_told_of_what_0_leaves_out(there: Path, recipes, tmp_path):
    (run,) = there.glob("*vsdd-seed0")
    shutil.copytree(run, tmp_path / run.name)
    none = ("--fewer", "0", "--renewed", "0", "--cooled", "0")
    assert main(["compare", recipes[-1], *FEW, *none, "--out", str(tmp_path)]) == 0
    (drawn,) = tmp_path.glob("*.drawn")
    assert {path.stem.partition("-")[0] for path in drawn.glob("*.jsonl")} == {
        *("samples", "bound", "metrics", "entity", "span")
    }
    found = {path.name for path in tmp_path.glob("results/stories/*.json")}
    assert found == {f"{name}-vsdd.json" for name in EXPERIMENTS["vsdd"]} - {
        f"{sweep}-vsdd.json" for sweep in ("steps", "renewal", "temperature")
    }


def test_ratios_are_told_as_ratios(done: Path, capsys):
    comparison_table(json.loads((done / "comparison.json").read_text()))
    tables = capsys.readouterr().out.split("\n\n")
    (ratio,) = (table for table in tables if "judge_perplexity_ratio" in table)
    assert "over " in ratio and "less " not in ratio and "+" not in ratio


@pytest.mark.parametrize("name", sorted(EXPERIMENTS["mdlm"]))
def test_a_run_is_evaluated_alike(name, there: Path, done: Path, tmp_path: Path, monkeypatch):
    """Drawn and measured at once, or one after the other: the same numbers."""
    monkeypatch.setattr(Amounts, "bound", AMOUNTS.bound)
    n = {"generation": 9, "entity-swap-large": 4, "span-removal-large": 4}
    n |= {"steps": 3, "renewal": 2, "temperature": 4}
    flags = ["--experiment", name, "--out", str(tmp_path / "results")]
    flags += ["-n", str(n[name])] if name in n else []
    assert main(["evaluate", str(run_of(there, "mdlm")), *flags]) == 0
    once, twice = (result(out, f"{name}-mdlm") for out in (tmp_path, done))
    for found in (once, twice):  # the first 3 of 9 plain samples are not 3 samples
        found["metrics"] = {k: v for k, v in found["metrics"].items() if not k.endswith(PLAINLY)}
    assert once == twice and once["metrics"]


def test_stories_told_elsewhere_are_evaluated_here(there: Path, tmp_path: Path, judged):
    told = [*data.synthetic(12, seed=5).train]
    (tmp_path / "a.txt").write_text("\n<|endoftext|>\n".join(told))
    flags = ["--samples", str(tmp_path / "a.txt"), "--judge", "other/judge"]
    flags += ["--out", str(tmp_path / "results"), "--variant", "elsewhere"]
    assert main(["evaluate", str(run_of(there, "mdlm")), *flags]) == 0
    found = result(tmp_path, "generation-mdlm-elsewhere")
    assert found["n"] == len(told) and judged == ["other/judge"]
    assert found["metrics"]["distinct_1"]["value"] == stories.distinct(told, 1).value


# ------------------------------------------------------------------ what is drawn


def test_the_bound_is_that_of_each_story_in_its_order(there: Path, monkeypatch):
    model = redraft.load(run_of(there, "mdlm"), "cpu")
    rows = dataset_of(model.trained).validation[:5]
    # alone, so that each has its own noise
    monkeypatch.setattr("redraft.experiments.bounds.TOGETHER", 1)
    found = bounds(model, rows, seed=7)
    order = sorted(range(5), key=lambda i: len(rows[i]))
    for place, i in enumerate(order):
        generator = torch.Generator().manual_seed(7 + place)
        x = torch.from_numpy(rows[i]).long()[None]
        (nats,) = exact_bound(model.trained.denoiser, model.trained.process, x, generator)
        assert found[i].nats == pytest.approx(nats.item())
        assert found[i].tokens == len(rows[i])
        assert found[i].characters == len(model.tokenizer.decode(rows[i]))


def test_bounds_of_other_stories_are_not_paired():
    ours, theirs = [Bound(10.0, 5, 20), Bound(8.0, 4, 10)], [Bound(9.0, 5, 20), Bound(6.0, 4, 10)]
    found = experiment.bound_lead(ours, theirs)
    assert found["bound_nats_per_token"].value == pytest.approx(3 / 9)
    assert found["bound_nats_per_char"].value == pytest.approx(3 / 30)
    assert experiment.bound_lead(ours, theirs[:1]) == {}


def test_drawing_is_not_done_twice(there: Path, home: Path, recipes, monkeypatch):
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    monkeypatch.setattr(redraft.Model, "sample", None)
    monkeypatch.setattr(editing, "infilled", None)
    monkeypatch.setattr(comparison.checkpoint, "load", None)
    for entry in comparison.contenders(recipes, home):
        comparison.draw(entry, AMOUNTS)
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before
    (folder,) = home.glob("*mdlm-seed0.drawn")
    own = drawn.read(folder)
    assert isinstance(own, experiment.Drawn) and own.amounts == AMOUNTS
    assert len(own.samples()) == 9 and len(own.drafts("entity-swap")) == 25


def test_of_an_interrupted_drawing_only_what_is_missing_is_drawn(there, home, monkeypatch):
    """No story is looked at for drafts that are there; what is drawn is what was drawn before."""
    (folder,) = home.glob("*mdlm-seed0.drawn")
    (before,) = there.glob("*mdlm-seed0.drawn")
    missing = folder / "span-removal-large.jsonl"
    missing.unlink()
    seen = []
    unseen = experiment.unseen
    monkeypatch.setattr(experiment, "unseen", lambda data: seen.append(1) or unseen(data))
    monkeypatch.setattr(redraft.Model, "sample", None)
    monkeypatch.setattr(editing, "swaps", None)
    experiment.draw(redraft.load(run_of(there, "mdlm"), "cpu"), folder, AMOUNTS)
    assert len(seen) == 1
    assert missing.read_bytes() == (before / missing.name).read_bytes()


def test_a_large_kernel_is_kept_in_part(there: Path):
    (folder,) = there.glob("*vsdd-seed0.drawn")
    kernel = drawn.read(folder).kernel()
    assert kernel is not None and kernel.part is not None
    assert (folder / "noise.safetensors").stat().st_size < 2_000_000


# ------------------------------------------------------------------ recipes


def test_recipes_of_stories_differ_in_their_noise_alone():
    recipes = [read_recipe(f"stories/{method}") for method in METHODS]
    for part in ("seed", "data", "denoiser", "optimizer", "train"):
        assert len({repr(getattr(recipe, part)) for recipe in recipes}) == 1
    (first, *_) = recipes
    assert first.denoiser.heads == 16 and first.train.batch == first.data.max_length == 256


# ------------------------------------------------------------------ mistakes


def refused(name: str) -> Judge:
    raise UserError("a judge of stories needs extra packages: pip install 'redraft[judge]'")


def test_without_a_judge_all_that_was_drawn_waits_for_it(home, recipes, monkeypatch, capsys):
    before = set(home.rglob("*"))
    monkeypatch.setattr(Judge, "load", refused)
    assert main(["compare", *recipes, *FEW, "--out", str(home)]) == 2
    said = capsys.readouterr().err
    assert "redraft[judge]" in said and f"{home} holds all that was drawn" in said
    assert len(said.strip().splitlines()) == 1
    assert set(home.rglob("*")) == before


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--judge", "{tmp}"], "no language model"),
        (["--judge", "{tmp}/nowhere"], "no such folder"),
        (["--draws", "4"], "--draws"),
        (["--bound", "0"], "got 0"),
    ],
)
def test_mistakes_are_told_before_anything_is_trained(flags, said, recipes, tmp_path, capsys):
    out = tmp_path / "out"
    flags = [flag.format(tmp=tmp_path) for flag in flags]
    assert main(["compare", *recipes, *flags, "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert said in error and len(error.strip().splitlines()) == 1
    assert not out.exists()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--experiment", "redrafting"], "experiment of stories"),
        (["--experiment", "entity-swap", "-n", "3"], "the paper's"),
        (["--experiment", "span-removal", "--judge", "gpt2"], "not for span-removal"),
        (["--fcd"], "about stories"),
        (["--judge", "{tmp}"], "no language model"),
        (["--samples", "{tmp}/empty.txt", "--variant", "x"], "no sequences"),
    ],
)
def test_mistakes_in_evaluation_are_told(flags, said, there: Path, tmp_path: Path, capsys):
    (tmp_path / "empty.txt").write_text("\n")
    flags = [flag.format(tmp=tmp_path) for flag in flags]
    out = tmp_path / "results"
    assert main(["evaluate", str(run_of(there, "mdlm")), *flags, "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert said in error and len(error.strip().splitlines()) == 1
    assert not out.exists()


def test_stories_of_several_lines_can_be_read_again(tmp_path: Path, capsys):
    from redraft.commands.drawing import show

    told = ["One.\nTwo.", "Three.", "Four.\n\nFive."]
    show(told)
    (tmp_path / "new.txt").write_text(capsys.readouterr().out)
    assert data.read(tmp_path / "new.txt") == told
    show(["axu", "bzw"])
    assert capsys.readouterr().out == "axu\nbzw\n"
