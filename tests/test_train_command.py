"""`redraft train`: what it takes for its data, and what it says."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import write_lines

from redraft import checkpoint, trainer
from redraft.cli import main
from redraft.commands.learning import Train
from redraft.config import read_recipe

SMALL = [
    "--method", "mdlm", "--train.steps", "3", "--train.batch", "4", "--train.validate", "4",
    "--noise.T", "4", "--denoiser.width", "8", "--denoiser.layers", "1", "--denoiser.heads", "1",
    "--leader.batch", "4", "--train.device", "cpu",
]  # fmt: skip


@pytest.fixture(autouse=True)
def lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """my.txt, in the current folder."""
    monkeypatch.chdir(tmp_path)
    write_lines(Path("my.txt"))


# ------------------------------------------------------------------ what it says


def test_a_run_shorter_than_a_line_of_metrics_tells_its_steps(capsys):
    assert main(["train", "--data", "my.txt", "--out", "run", *SMALL]) == 0
    assert "mdlm: trained for 3 steps" in capsys.readouterr().out
    assert main(["train", "--resume", "run"]) == 0
    assert "mdlm: trained for 3 steps" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["--data", "nosuch.txt"],
        ["--data", "my.txt", "--method", "nosuch"],
        ["--data", "my.txt", "--out", "run"],
        ["my.txt"],
        ["--resume", "nosuch"],
    ],
    ids=["no file", "no method", "a run is there", "no recipe", "no run"],
)
def test_nothing_is_told_of_a_run_that_never_began(words: list[str], capsys):
    Path("run").mkdir()
    Path("run/config.json").write_text("{}")
    assert main(["train", *words]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1


def test_a_file_in_the_place_of_a_recipe_is_sent_to_data(capsys):
    assert main(["train", "my.txt"]) == 2
    assert "--data my.txt" in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_not_called_one(capsys):
    assert main(["train", "--resume", "nosuch"]) == 2
    assert capsys.readouterr().err == "redraft: there is no run folder nosuch\n"


# ------------------------------------------------------------------ whose reader leaves


def read_one_line(*words: str) -> tuple[int, str]:
    """As `redraft ... | head -1`: the exit code, and what stands on standard error."""
    source = Path(trainer.__file__).parents[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "redraft", *words],
        env=os.environ | {"PYTHONPATH": str(source), "PYTHONUNBUFFERED": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    try:
        assert process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()
        process.stderr.close()
        return process.wait(60), said
    finally:
        process.kill()


def test_a_run_whose_reader_leaves_stops_and_can_be_continued():
    more = ["--train.steps", "3000", "--train.log-every", "2"]
    code, said = read_one_line("train", "--data", "my.txt", "--out", "run", *SMALL, *more)
    assert code == 128 + signal.SIGPIPE
    step = checkpoint.load_state(Path("run")).progress["step"]
    assert said == f"redraft: stopped at step {step}; go on with: redraft train --resume run\n"


# ------------------------------------------------------------------ what it takes


@pytest.mark.parametrize("form", [["--data", "my.smi"], ["--data=my.smi"]])
@pytest.mark.parametrize("recipe", ["tiny/vsdd", "stories/vsdd"])
def test_a_recipe_keeps_its_domain_with_another_file(recipe: str, form: list[str]):
    config = Train(data="my.smi", config=Train.default([recipe, *form]).config).resolved()
    before = read_recipe(recipe).data
    assert config.data.file == "my.smi"
    assert (config.data.domain, config.data.max_length) == (before.domain, before.max_length)


@pytest.mark.parametrize(
    ("words", "domain"),
    [
        (["--data", "my.txt"], "lines"),
        (["tiny/vsdd", "--data", "my.txt", "--tokenizer", "words"], "lines"),
        (["tiny/vsdd", "--tokenizer=words", "--data=my.txt"], "lines"),
        (["tiny/mdlm", "--data", "playlists"], "playlists"),
        (["stories/vsdd", "--data", "zinc250k"], "molecules"),
    ],
)
def test_lines_and_names_bring_settings_of_their_own(words: list[str], domain: str):
    data = Train.default(words).config.data
    assert (data.domain, data.max_length, data.file) == (domain, None, None)


def test_molecules_of_ones_own_are_molecules():
    Path("my.smi").write_text("".join(f"{'C' * n}O\n{'C' * n}N\n" for n in range(1, 15)))
    assert main(["train", "tiny/vsdd", "--data", "my.smi", "--out", "run", *SMALL]) == 0
    assert checkpoint.load(Path("run")).config.data.domain == "molecules"
