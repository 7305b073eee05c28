"""Seeds that no generator takes are refused before anything is done."""

from pathlib import Path

import pytest
from mistakes import message

from redraft import cli
from redraft.config import Config

WORDS = {
    "train": ["train", "tiny/mdlm", "--out", "{out}"],
    "compare": ["compare", "tiny/mdlm", "--out", "{out}"],
    "quickstart": ["quickstart", "--out", "{out}"],
    "evaluate": ["evaluate", "nowhere", "--out", "{out}"],
    "noise": ["noise", "nowhere", "--out", "{out}"],
    "sample": ["sample", "nowhere"],
    "repair": ["repair", "C("],
}


@pytest.mark.parametrize("seed", [-1, 2**63])
@pytest.mark.parametrize("word", WORDS)
def test_commands_refuse_them(word, seed, tmp_path: Path, capsys):
    arguments = [part.format(out=tmp_path / "out") for part in WORDS[word]]
    assert cli.main([*arguments, "--seed", str(seed)]) == 2
    assert f"seed must be from 0 to 2^63 - 1, got {seed}" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_configs_refuse_them():
    assert "got -1" in message(Config, seed=-1)
