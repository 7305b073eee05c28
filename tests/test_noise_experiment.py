"""What a learned kernel has become, on kernels whose answers are known."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mistakes import message
from scipy.stats import spearmanr
from tiny import tiny

import redraft
from redraft.cli import main
from redraft.experiments import noise
from redraft.experiments.noise import Kernel, measures
from redraft.noise.semantic import BilinearScores, SemanticProcess
from redraft.tokenizers.base import EOS


@pytest.fixture
def model(molecules) -> redraft.Model:
    return redraft.load(molecules, "cpu")


def kernel_of(model: redraft.Model) -> Kernel:
    kernel = noise.kernel_of(model)
    assert kernel is not None
    return kernel


def play(model: redraft.Model, scale: float) -> None:
    """A = scale * I at all times: the kernel is a softmax of scaled cosines."""
    process = model.trained.process
    assert isinstance(process, SemanticProcess)
    assert isinstance(process.committed, BilinearScores)
    head, D = process.committed.head, process.embeddings.shape[1]
    with torch.no_grad():
        head.weight.zero_()
        head.bias.copy_(scale * torch.eye(D).flatten())
    process.rebuild()


@given(n=st.integers(3, 9), seed=st.integers(0, 100))
def test_the_correlation_is_that_of_all_pairs(n, seed):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, n, n)).round(1)  # with ties
    off = ~np.eye(n, dtype=bool)
    found = noise.spearman(a, b, seed)
    assert found.value == pytest.approx(spearmanr(a[off], b[off])[0])
    assert -1 <= found.low <= found.high <= 1


def test_a_kernel_of_similarity_follows_the_embeddings(model):
    play(model, 3.0)
    found = measures(kernel_of(model))
    assert all(found[f"spearman@{t}"].value > 0.8 for t in noise.times_of(5))
    assert found["entropy_share"].value < 1


def test_without_preferences_there_is_nothing_to_follow(model):
    play(model, 0.0)
    found = measures(kernel_of(model))
    assert found["entropy_share"].value == pytest.approx(1, abs=1e-5)
    V = len(model.tokenizer) - EOS
    assert found["entropy_mean"].value == pytest.approx(math.log(V - 1), rel=1e-5)
    M = kernel_of(model).M
    np.testing.assert_allclose(M[:, ~np.eye(V, dtype=bool)], 1 / (V - 1), rtol=1e-4)


def test_a_collapsed_kernel_is_seen(model):
    play(model, 200.0)
    found = measures(kernel_of(model))
    assert found["entropy_min"].value <= found["entropy_mean"].value
    assert found["entropy_share"].value < 0.25
    (first, *_) = noise.collapse_table(kernel_of(model))
    assert first["becomes"][0][1] > 0.5


def test_the_table_names_what_tokens_become(model):
    kernel = kernel_of(model)
    M, tokens = kernel.M, kernel.tokens[EOS:]
    table = noise.collapse_table(kernel, t=2, rows=3, top=2)
    shares = [row["share"] for row in table]
    assert len(table) == 3 and shares == sorted(shares, reverse=True)
    for row in table:
        i = tokens.index(row["token"])
        assert [p for _, p in row["becomes"]] == sorted(M[1, i], reverse=True)[:2]


def test_a_kernel_is_read_as_it_was_written(model, tmp_path: Path):
    play(model, 3.0)
    kernel, path = kernel_of(model), tmp_path / "noise.safetensors"
    path.write_bytes(kernel.to_bytes())
    again = Kernel.read(path)
    for name in ("Q", "embeddings", "counts"):
        np.testing.assert_array_equal(getattr(again, name), getattr(kernel, name), strict=True)
    assert again.tokens == model.tokenizer.tokens
    assert measures(again) == measures(kernel)
    path.write_bytes(kernel.to_bytes()[:-8])
    assert "noise.safetensors is damaged" in message(Kernel.read, path)


def test_a_part_of_a_kernel_says_what_the_whole_says(model, tmp_path: Path, monkeypatch):
    play(model, 3.0)
    whole = kernel_of(model)
    monkeypatch.setattr(noise, "LARGE", 3)
    part = kernel_of(model)
    assert part.part is not None and part.times.tolist() == noise.times_of(5)
    assert measures(part) == measures(whole)
    assert noise.collapse_table(part) == noise.collapse_table(whole)
    assert len(part) == len(whole) == 5
    for t in noise.times_of(5):
        np.testing.assert_array_equal(part[t - 1][EOS:], whole[t - 1][EOS:])
        np.testing.assert_array_equal(whole[t - 1], whole.Q[t - 1])
    (tmp_path / "noise.safetensors").write_bytes(part.to_bytes())
    assert measures(Kernel.read(tmp_path / "noise.safetensors")) == measures(part)


def test_of_a_large_kernel_the_most_frequent_tokens_are_kept(model, monkeypatch):
    play(model, 3.0)
    whole = kernel_of(model)
    monkeypatch.setattr(noise, "LARGE", 3)
    monkeypatch.setattr(noise, "MOST", 6)
    part = kernel_of(model)
    assert part.Q.shape[1:] == (6, len(part.tokens)) and len(part.embeddings) == 6
    least = part.counts[part.states].min()
    assert sorted(part.counts[EOS:])[-6] == least
    np.testing.assert_array_equal(part.M[0], whole.M[0][part.valid])
    assert noise.collapse_table(part, rows=6) == noise.collapse_table(whole, rows=6)
    rest = np.setdiff1d(np.arange(len(part.tokens)), part.states)
    assert not part[0][rest].any() and part[2][part.states].any()  # the nearest time


@pytest.mark.parametrize("large", [256, 3])
def test_the_command_writes_numbers_and_a_figure(
    molecules, large: int, tmp_path: Path, capsys, monkeypatch
):
    monkeypatch.setattr(noise, "LARGE", large)
    assert main(["noise", str(molecules), "--out", str(tmp_path)]) == 0
    assert "spearman@1" in capsys.readouterr().out
    result = json.loads((tmp_path / "molecules" / "noise-vsdd.json").read_text())
    assert result["experiment"] == "noise" and len(result["collapse"]) == 10
    assert (tmp_path / "molecules" / "noise-vsdd.png").stat().st_size > 10_000


def test_fixed_noise_has_no_kernel_to_look_at(tmp_path: Path, capsys):
    redraft.train(tiny("mdlm", steps=2), tmp_path / "run")
    assert main(["noise", str(tmp_path / "run")]) == 2
    assert "mdlm has no learned kernel" in capsys.readouterr().err
