"""The command as a user meets it: what works, and one sentence for what does not."""

import io
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from mistakes import message
from tiny import on_lines, write_lines

import redraft
from redraft import trainer
from redraft.cli import main
from redraft.config import Config, read_recipe, recipe_names
from redraft.methods import METHODS

SMALL = [
    "--train.steps", "6", "--train.batch", "8", "--train.log-every", "2", "--train.validate", "8",
    "--noise.T", "4", "--denoiser.width", "16", "--denoiser.layers", "1", "--denoiser.heads", "2",
    "--leader.block", "3", "--leader.batch", "4", "--leader.probes", "2",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a file of the user's own."""
    root = tmp_path_factory.mktemp("run")
    lines = [f"{a}{b}{c}" for a in "abcdef" for b in "xyz" for c in "uvw"]
    (root / "my.txt").write_text("\n".join(lines), encoding="utf-8")
    out = root / "run"
    assert main(["train", "--data", str(root / "my.txt"), "--out", str(out), *SMALL]) == 0
    return out


@pytest.fixture(scope="module")
def spaced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on lines of two words."""
    root = tmp_path_factory.mktemp("spaced")
    lines = [f"{a} {b}{c}" for a in "abcdef" for b in "xyz" for c in "uvw"]
    trainer.train(on_lines("mdlm", write_lines(root / "my.txt", lines), steps=5), root / "run")
    return root / "run"


def test_training_on_own_lines_leaves_a_whole_run_folder(folder: Path):
    names = {path.name for path in folder.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "metrics.jsonl"} <= names
    stored = json.loads((folder / "config.json").read_text())
    assert stored["config"]["method"] == "vsdd"
    assert stored["config"]["data"]["domain"] == "lines"
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [2, 4, 6, 6]
    assert any("leader/reward" in row for row in rows)


def test_sample_prints_the_lines_asked_for_and_nothing_else(folder: Path, capsys):
    assert main(["sample", str(folder), "-n", "5", "--length", "4", "--seed", "1"]) == 0
    first = capsys.readouterr().out
    assert len(first.splitlines()) == 5
    assert main(["sample", str(folder), "-n", "5", "--length", "4", "--seed", "1"]) == 0
    assert capsys.readouterr().out == first


def test_infill_keeps_what_is_not_masked(folder: Path, capsys):
    assert main(["infill", str(folder), "a[MASK]u", "-n", "4", "--seed", "0"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 4
    assert all(row.startswith("a") for row in rows)


def test_infill_tells_how_likely_what_is(folder: Path, capsys):
    """What is different, the likeliest first, how often each was drawn."""
    words = ["infill", str(folder), "a[MASK]u", "-n", "20", "--seed", "0"]
    assert main(words) == 0
    drawn = Counter(capsys.readouterr().out.splitlines())
    assert main([*words, "--format", "json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["text"]: row["drawn"] for row in rows} == drawn
    likelihoods = [row["likelihood"] for row in rows]
    assert likelihoods == sorted(likelihoods, reverse=True) and sum(likelihoods) <= 1 + 1e-4
    assert main([*words, "--format", "tsv"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split("\t") == list(rows[0]) and len(lines) == len(rows)
    assert [line.split("\t")[0] for line in lines] == [row["text"] for row in rows]


def test_a_person_sees_what_is_new(folder: Path, capsys, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["infill", str(folder), "a[MASK]u", "-n", "5", "--seed", "0"]) == 0
    for line in capsys.readouterr().out.splitlines():
        assert re.search(r"\d+ %  .*a(\{.\}u|$)", line), line
    assert main(["revise", str(folder), "axu", "--strength", "0.8", "--seed", "0"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    result, _, changes = line.partition("   ")
    assert re.sub(r"\{-.*?\}|[{}]", "", changes) == result
    assert re.sub(r"\{-(.*?)\}", r"\1", re.sub(r"\{[^-].*?\}", "", changes)) == "axu"


def test_revise_at_strength_zero_is_the_identity(folder: Path, capsys):
    assert main(["revise", str(folder), "axu", "bzw", "--strength", "0"]) == 0
    assert capsys.readouterr().out.splitlines() == ["axu", "bzw"]
    assert main(["revise", str(folder), "axu", "--strength", "1", "--show", "--seed", "0"]) == 0
    assert "t=3" in capsys.readouterr().out


def test_a_revision_shows_the_times_of_the_first_sequence(folder: Path, capsys):
    flags = ["--strength", "1", "--steps", "2", "--show", "--seed", "0"]
    assert main(["revise", str(folder), *["axu"] * 257, *flags]) == 0  # one more than a batch
    shown = re.findall(r"^t=(\d+)", capsys.readouterr().out, re.M)
    first, last = redraft.load(folder).sampler(steps=2).times
    assert shown == [str(first), "0"] and first < last - 1


def test_a_loaded_model_is_the_trained_one(folder: Path, tmp_path: Path):
    model = redraft.load(folder)
    model.save(tmp_path / "copy")
    again = redraft.load(tmp_path / "copy")
    assert again.sample(8, seed=3) == model.sample(8, seed=3)
    assert again.sample(8, seed=3, start="marginal") == model.sample(8, seed=3, start="marginal")


def test_samples_are_renewed_in_the_second_half_unless_told_otherwise(folder: Path):
    model = redraft.load(folder)
    usual = model.sample(40, seed=3)
    assert usual == model.sample(40, seed=3, renew=0.5)
    assert usual != model.sample(40, seed=3, renew=0)


# The model that comes with the package


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch) -> Path:
    """A place for shipped models, with nothing on it."""
    monkeypatch.setattr("redraft.model.SHIPPED", tmp_path / "models")
    return tmp_path / "models"


WAYS = {
    "sample": (["-n", "3"], ["{folder}", "-n", "3"], ["molecules", "-n", "3"]),
    "infill": (
        ["a[MASK]u", "b[MASK]"],
        ["{folder}", "a[MASK]u", "b[MASK]"],
        ["a[MASK]u", "b[MASK]", "--model", "{folder}"],
        ["molecules", "a[MASK]u", "b[MASK]"],
    ),
    "revise": (
        ["axu", "bzw"],
        ["{folder}", "axu", "bzw"],
        ["axu", "bzw", "--model", "{folder}"],
        ["--model", "molecules", "axu", "bzw"],
    ),
}


@pytest.mark.parametrize("word", WAYS)
def test_the_shipped_model_draws_where_none_is_named(word, folder: Path, shelf: Path, capsys):
    redraft.load(folder).save(shelf / "molecules")
    found = []
    for flags in WAYS[word]:
        assert main([word, *(flag.format(folder=folder) for flag in flags), "--seed", "1"]) == 0
        found.append(capsys.readouterr().out)
    assert found[0] and found == found[:1] * len(found)


def test_a_folder_before_sequences_is_text_where_a_model_is_named(folder: Path, capsys):
    assert main(["revise", str(folder), "axu", "--model", str(folder)]) == 2
    assert str(folder)[:20] in capsys.readouterr().err


def test_a_folder_alone_takes_sequences_from_standard_input(folder: Path, capsys, monkeypatch):
    piped = io.TextIOWrapper(io.BytesIO("\ufeffaxu\r\n\nbzw".encode()))
    monkeypatch.setattr("sys.stdin", piped)
    assert main(["revise", str(folder), "--strength", "0"]) == 0
    assert capsys.readouterr().out == "axu\nbzw\n"


@pytest.mark.parametrize("word", ["infill", "revise"])
@pytest.mark.parametrize(
    ("piped", "said"),
    [(None, "pipe some in"), (b"", "no sequences"), (b"\xff", "standard input must be UTF-8")],
)
def test_where_nothing_can_be_read_it_says_so(word, piped, said, folder, capsys, monkeypatch):
    stream = None if piped is None else io.TextIOWrapper(io.BytesIO(piped))
    monkeypatch.setattr("sys.stdin", stream)
    assert main([word, str(folder)]) == 2
    err = capsys.readouterr().err
    assert said in err and len(err.splitlines()) == 1


@pytest.mark.parametrize("text", ["a [MASK]u", "[MASK] x"])
def test_text_of_several_words_is_for_the_model_of_stories(text, spaced: Path, shelf: Path, capsys):
    redraft.load(spaced).save(shelf / "stories")
    assert main(["infill", text, "--seed", "1"]) == 0
    usual = capsys.readouterr().out
    for named in (["stories", text], [text, "--model", "stories"], [str(spaced), text]):
        assert main(["infill", *named, "--seed", "1"]) == 0
        assert capsys.readouterr().out == usual


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["sample"], "molecules"),
        (["infill", "a[MASK]"], "molecules"),
        (["infill", "a [MASK]"], "stories"),
        (["revise", "a"], "molecules"),
        (["revise", "a", "a b"], "stories"),
        (["repair", "C("], "molecules"),
    ],
)
def test_without_a_shipped_model_one_has_to_be_named(words, name, shelf: Path, capsys):
    assert main(words) == 2
    said = capsys.readouterr().err
    assert f"no model '{name}'" in said and "run folder" in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_can_be_read(name: str):
    assert read_recipe(name).method in METHODS


def test_compared_recipes_differ_in_their_noise_alone():
    recipes = [read_recipe(f"molecules/{method}") for method in METHODS]
    for part in ("seed", "data", "denoiser", "optimizer", "train"):
        assert len({repr(getattr(recipe, part)) for recipe in recipes}) == 1


BAD = {
    "unknown command": ["trian"],
    "no recipe": ["train"],
    "unknown recipe": ["train", "tiny/vsd"],
    "no such recipe file": ["train", "nowhere.toml"],
    "unknown flag": ["train", "tiny/vsdd", "--train.stepz", "3"],
    "wrong type": ["train", "tiny/vsdd", "--train.steps", "many"],
    "wrong choice": ["train", "tiny/vsdd", "--train.bound", "loose"],
    "unknown method": ["train", "tiny/vsdd", "--method", "vsd"],
    "T below 2": ["train", "tiny/vsdd", "--noise.T", "1"],
    "no steps": ["train", "tiny/vsdd", "--train.steps", "0"],
    "one probe": ["train", "tiny/vsdd", "--leader.probes", "1"],
    "heads that do not divide": ["train", "tiny/vsdd", "--denoiser.heads", "7"],
    "tokenizer without data": ["train", "tiny/vsdd", "--tokenizer", "chars"],
    "unknown tokenizer": ["train", "--data", "{folder}/../my.txt", "--tokenizer", "char"],
    "missing file": ["train", "--data", "nowhere.txt"],
    "unknown device": ["train", "tiny/vsdd", "--train.device", "abacus"],
    "nothing to revise": ["revise", "{folder}", ""],
    "existing run": ["train", "--data", "{folder}/../my.txt", "--out", "{folder}"],
    "too long": ["train", "--data", "{folder}/../my.txt", "--data.max-length", "3"],
    "no run folder": ["sample", "nowhere"],
    "no run in it": ["sample", "."],
    "no samples": ["sample", "{folder}", "-n", "0"],
    "length": ["sample", "{folder}", "--length", "99"],
    "temperature": ["sample", "{folder}", "--temperature", "-1"],
    "top-p": ["sample", "{folder}", "--top-p", "0"],
    "renew": ["sample", "{folder}", "--renew", "1.5"],
    "steps": ["sample", "{folder}", "--steps", "9"],
    "no mask": ["infill", "{folder}", "axu"],
    "unknown token": ["infill", "{folder}", "a[MASK]Q"],
    "too many masks": ["infill", "{folder}", "a[MASK:99]"],
    "strength": ["revise", "{folder}", "axu", "--strength", "2"],
    "samples under a file": ["sample", "{folder}", "--out", "{folder}/config.json/a.smi"],
    "a run under a file": ["train", "tiny/mdlm", "--out", "{folder}/config.json/run"],
    "a run over a file": ["train", "tiny/mdlm", "--out", "{folder}/config.json"],
    "results over a file": ["noise", "{folder}", "--out", "{folder}/config.json"],
    "a comparison over a file": ["compare", "tiny/mdlm", "--out", "{folder}/config.json"],
}


@pytest.mark.parametrize("case", BAD)
def test_a_mistake_gets_one_sentence_and_exit_code_2(case: str, folder: Path, capsys):
    words = [word.format(folder=folder) for word in BAD[case]]
    before = sorted(folder.rglob("*"))
    assert main(words) == 2
    said = capsys.readouterr()
    assert said.err.startswith("redraft: ")
    assert len(said.err.splitlines()) == 1
    assert "Traceback" not in said.err
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("error", [OSError("not about a file"), RuntimeError("not about memory")])
def test_what_no_user_could_mend_is_not_hidden(error: Exception, monkeypatch):
    monkeypatch.setattr("redraft.commands.run", Mock(side_effect=error))
    with pytest.raises(type(error), match="not about"):
        main(["data", "zinc250k"])


def test_a_file_is_asked_what_it_holds(tmp_path: Path, capsys):
    (tmp_path / "my.smi").write_text("CCO\n", encoding="utf-8")
    assert main(["data", "--file", str(tmp_path / "my.smi")]) == 2
    assert "redraft data molecules --file" in capsys.readouterr().err


MUCH = str(10**15)  # of anything is more than can be addressed


@pytest.mark.parametrize(
    "words",
    [
        ["sample", "{folder}", "-n", MUCH],
        ["sample", "{folder}", "-n", MUCH, "--length", "4"],
        ["infill", "{folder}", "a[MASK]u", "-n", MUCH],
        ["train", "tiny/mdlm", "--out", "{folder}-large", "--denoiser.width", MUCH],
    ],
    ids=lambda words: words[0],
)
def test_what_is_too_much_for_memory_is_told(words: list[str], folder: Path, capsys):
    assert main([word.format(folder=folder) for word in words]) == 2
    err = capsys.readouterr().err
    assert err.startswith("redraft: memory did not suffice; lower") and err.count("\n") == 1
    assert not Path(f"{folder}-large").exists()


def test_so_is_what_is_too_much_for_a_gpu(capsys, monkeypatch):
    error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    monkeypatch.setattr("redraft.commands.run", Mock(side_effect=error))
    assert main(["train", "tiny/vsdd"]) == 2
    assert "memory did not suffice" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content",
    [b"", b"\n\n", b"ab\n\xff\xfe\n", b"aa\nab\n", b"a\nb\na\nb\n"],
    ids=["empty", "blank", "not UTF-8", "two lines", "two letters"],
)
def test_files_that_cannot_be_learned_from(content: bytes, tmp_path: Path, capsys):
    (tmp_path / "bad.txt").write_bytes(content)
    words = ["train", "--data", str(tmp_path / "bad.txt"), "--out", str(tmp_path / "run")]
    assert main(words) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_nearest_names_are_suggested(capsys):
    main(["trian"])
    assert "'train'" in capsys.readouterr().err
    main(["train", "tiny/vsdd", "--method", "vsd"])
    assert "'vsdd'" in capsys.readouterr().err
    main(["train", "tiny/vsdd", "--train.stepz", "3"])
    assert "--train.steps" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("toml", "names"),
    [
        ("metod = 'vsdd'", ["metod", "method"]),
        ("[train]\nstep = 3", ["train", "steps"]),
        ("[train]\nsteps = 'x'", ["train.steps", "int"]),
        ("[optimizer]\nbetas = [0.9]", ["optimizer.betas", "2"]),
        ("[data]\nlong = 'shrink'", ["data.long", "drop"]),
        ("data = 3", ["data", "table"]),
        ("method = ", ["TOML"]),
    ],
)
def test_a_bad_recipe_says_what_is_wrong(toml: str, names: list[str], tmp_path: Path, capsys):
    (tmp_path / "bad.toml").write_text(toml, encoding="utf-8")
    assert main(["train", str(tmp_path / "bad.toml")]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert all(name in said for name in names)


@pytest.mark.parametrize(
    ("section", "key", "bad"),
    [
        ("noise", "hidden", 0),
        ("denoiser", "width", 0),
        ("denoiser", "layers", 0),
        ("denoiser", "heads", 0),
        ("optimizer", "betas", [0.9, 1.0]),
        ("optimizer", "betas", [-0.1, 0.9]),
        ("optimizer", "weight_decay", -0.1),
        ("optimizer", "clip", -1.0),
        ("train", "validate", 0),
        ("leader", "clip_reward", 0.0),
        ("leader", "variance_decay", 1.0),
        ("leader", "variance_decay", -0.1),
        ("leader", "terminal", -1.0),
        ("leader", "entropy_weight", -1.0),
    ],
)
def test_a_value_that_no_run_could_use_is_refused(section: str, key: str, bad: Any):
    said = message(Config.from_dict, {section: {key: bad}})
    assert f"{key} must be" in said
    assert str(tuple(bad) if isinstance(bad, list) else bad) in said


def test_a_denoiser_that_infills_must_be_told_the_time():
    said = message(Config.from_dict, {"denoiser": {"infills": True, "time": False}})
    assert "denoiser.infills needs denoiser.time" in said


def test_a_denoiser_that_infills_is_told_what_is_given_and_nothing_else():
    said = message(Config.from_dict, {"denoiser": {"infills": True, "told": "t"}})
    assert "denoiser.told is for one that does not infill" in said and "got told t" in said


@pytest.mark.parametrize("flag", ["--tokenizer", "--data.tokenizer"])
def test_own_lines_are_cut_as_either_flag_says(flag: str, tmp_path: Path):
    file, out = tmp_path / "my.txt", tmp_path / "run"
    file.write_text("".join(f"a {b} {c}\n" for b in "uvwx" for c in "uvwxyz"), encoding="utf-8")
    assert main(["train", "--data", str(file), flag, "words", "--out", str(out), *SMALL]) == 0
    assert redraft.load(out).config.data.tokenizer == "words"


@pytest.mark.parametrize("flag", [[], ["--help"], ["--version"], ["sample", "--help"]])
def test_help_is_not_an_error(flag: list[str]):
    assert main(flag) == 0


# Where output goes

FULL = Path("/dev/full")


def elsewhere(*words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "redraft", *words]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, **more)


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_told(unbuffered: str):
    with FULL.open("w") as file:
        said = elsewhere(
            "--version", stdout=file, env=os.environ | {"PYTHONUNBUFFERED": unbuffered}
        )
    assert said.returncode == 2
    assert said.stderr == "redraft: the output cannot be written: No space left on device\n"


def test_an_encoding_that_lacks_characters_loses_no_more_than_these(tmp_path: Path):
    file = tmp_path / "\u00e9.smi"
    file.write_text("CCO\nCCN\n")
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    words = ("data", "molecules", "--file", file.name)
    said = elsewhere(*words, stdout=subprocess.PIPE, env=environment, cwd=tmp_path)
    assert said.returncode == 0 and said.stdout.startswith("?.smi: 2 molecules")
