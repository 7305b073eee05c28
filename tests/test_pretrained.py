"""Models that travel: save_pretrained, from_pretrained, the hub, and folders of older formats."""

import copy
import dataclasses
import json
import runpy
import shutil
import socket
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mistakes import message
from tiny import bits, on_lines, tiny, write_lines

import redraft
from redraft import checkpoint, model, trainer
from redraft.errors import UserError
from redraft.folder import Sealed, seal, write_tensors
from redraft.methods import METHODS
from redraft.noise.committed import CommittedProcess, Draft, SettledProcess
from redraft.noise.confusion import Confusions
from redraft.noise.markov import SMALL
from redraft.noise.semantic import BilinearScores, SemanticProcess

SHIP = Path(__file__).parents[1] / "scripts" / "ship.py"
OLD = Path(__file__).parent / "data" / "format-1"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> redraft.Model:
    folder = tmp_path_factory.mktemp("run") / "run"
    return redraft.Model(trainer.train(tiny("vsdd", steps=5), folder))  # the leader has just moved


def test_saved_and_loaded_models_sample_alike(trained, tmp_path: Path):
    trained.save_pretrained(tmp_path / "model")
    again = redraft.Model.from_pretrained(tmp_path / "model")
    assert again.sample(6, seed=1) == trained.sample(6, seed=1)
    assert redraft.load(tmp_path / "model").config == trained.config
    assert "vsdd" in (tmp_path / "model/README.md").read_text(encoding="utf-8")


def test_what_a_denoiser_is_told_travels_with_it(tmp_path: Path):
    """As its recipe says, unless something else is asked for."""
    config = tiny("d3pm-uniform")
    config = dataclasses.replace(
        config, denoiser=dataclasses.replace(config.denoiser, infills=False, told="t")
    )
    redraft.Model(trainer.assemble(config).trained).save_pretrained(tmp_path / "model")
    again = redraft.load(tmp_path / "model")
    assert again.sampler().told == "t" and again.sampler(told="share").told == "share"


@pytest.mark.parametrize("compact", [False, True])
def test_the_stacks_of_a_loaded_model_are_built_once(trained, tmp_path: Path, monkeypatch, compact):
    """They take half a minute at V = 2048."""
    trained.save_pretrained(tmp_path / "model", compact=compact)
    built: list[int] = []
    make = Draft.__init__

    def counted(self: Draft, *given: torch.Tensor) -> None:
        built.append(1)
        make(self, *given)

    monkeypatch.setattr(Draft, "__init__", counted)
    again = redraft.load(tmp_path / "model")
    assert built == [1]
    before, after = (model.trained.process for model in (trained, again))
    assert isinstance(before, CommittedProcess) and isinstance(after, CommittedProcess)
    assert torch.equal(after.Q_bar, before.Q_bar)


def test_saving_over_an_older_model_replaces_it_and_keeps_other_files(trained, tmp_path: Path):
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    trained.save(tmp_path)
    trained.save(tmp_path)
    assert redraft.load(tmp_path).sample(3, seed=0) == trained.sample(3, seed=0)
    assert (tmp_path / "notes.txt").read_text(encoding="utf-8") == "mine"
    assert not [
        path for path in tmp_path.parent.iterdir() if path.name.startswith(f".{tmp_path.name}")
    ]


def test_a_hub_id_is_fetched_whole_and_verified(trained, tmp_path: Path, monkeypatch):
    trained.save(tmp_path / "repo")
    asked = {}

    def fetch(name: str, **options) -> str:
        asked["name"] = name
        return str(tmp_path / "repo")

    monkeypatch.setattr(model, "snapshot_download", fetch)
    for load in (redraft.load, redraft.Model.from_pretrained):
        asked.clear()
        assert load("someone/molecules").sample(3, seed=0) == trained.sample(3, seed=0)
        assert asked["name"] == "someone/molecules"


def test_an_unreachable_hub_is_asked_once_and_gets_a_sentence(monkeypatch):
    monkeypatch.setattr(
        socket, "getaddrinfo", Mock(side_effect=socket.gaierror("no network\nhere"))
    )
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("time.sleep", lambda _: pytest.fail("waits, to ask again"))
    said = message(redraft.load, "someone/nothing")
    assert said.startswith("someone/nothing is no folder here, and not to be had from the hub (")
    assert "no network here" in said and "accepted: a run folder" in said


def test_a_misspelt_run_is_not_looked_for_on_the_hub(trained, tmp_path: Path, monkeypatch):
    trained.save_pretrained(tmp_path / "runs/first")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(model, "snapshot_download", None)
    with pytest.raises(UserError, match="run folder 'runs/frist'; did you mean 'runs/first'"):
        redraft.load("runs/frist")


def test_a_model_is_not_saved_over_a_run(trained, tmp_path: Path):
    trainer.train(tiny("mdlm", steps=1), tmp_path / "run")
    before = (tmp_path / "run/config.json").read_bytes()
    with pytest.raises(UserError, match="choose another folder"):
        trained.save_pretrained(tmp_path / "run")
    assert (tmp_path / "run/config.json").read_bytes() == before


def test_push_to_hub_uploads_what_load_reads(trained, monkeypatch, tmp_path: Path):
    uploaded = tmp_path / "uploaded"

    class Api:
        def __init__(self, **_):
            pass

        def create_repo(self, repo_id, **_):
            return type("Url", (), {"repo_id": repo_id})()

        def upload_folder(self, folder_path, **_):
            shutil.copytree(folder_path, uploaded)
            return "url"

    monkeypatch.setattr("huggingface_hub.hub_mixin.HfApi", Api)
    trained.push_to_hub("someone/molecules")
    assert redraft.load(uploaded).sample(3, seed=0) == trained.sample(3, seed=0)


# What is being learned is for runs that go on, not for models


@pytest.mark.parametrize("method", METHODS)
def test_a_model_holds_no_noise_that_is_still_being_learned(method: str, tmp_path: Path):
    config = on_lines(method, write_lines(tmp_path / "lines.txt"), steps=5)
    trained = trainer.train(config, tmp_path / "run")
    kept, live = checkpoint.halves(trained.process)
    model = checkpoint.unflatten(Sealed(tmp_path / "run").tensors("model"))
    state = checkpoint.unflatten(Sealed(tmp_path / "run/state/00000005").tensors("state"))
    assert bits(model.get("process", {})) == bits(kept)
    assert bits(state.get("process", {})) == bits(live)
    again = checkpoint.load_state(tmp_path / "run").trained.process
    assert bits(again.state_dict()) == bits(trained.process.state_dict())


def test_in_a_loaded_model_nothing_was_learned_since_it_was_committed(trained, tmp_path: Path):
    trained.save(tmp_path)
    process = redraft.load(tmp_path, "cpu").trained.process
    assert isinstance(process, SemanticProcess)
    torch.testing.assert_close(process.draft(process.embeddings).Q, process.Q)
    moved = checkpoint.halves(trained.trained.process)[1]
    assert bits(process.halves()[1]) != bits(moved)


# Compact models


def rounded(model: redraft.Model) -> redraft.Model:
    """The same with weights of 16 bits."""
    denoiser = copy.deepcopy(model.trained.denoiser)
    for weight in denoiser.parameters():
        weight.data = weight.data.bfloat16().float()
    return redraft.Model(dataclasses.replace(model.trained, denoiser=denoiser))


@pytest.mark.parametrize("method", METHODS)
def test_a_compact_model_draws_what_its_rounded_weights_draw(method: str, tmp_path: Path):
    model = redraft.Model(trainer.train(tiny(method, steps=6), tmp_path / "run"))
    model.save_pretrained(tmp_path / "compact", compact=True)
    small, same = redraft.load(tmp_path / "compact", "cpu"), rounded(model)
    assert bits(small.trained.denoiser.state_dict()) == bits(same.trained.denoiser.state_dict())
    assert small.sample(6, seed=1) == same.sample(6, seed=1)
    item = ["CCO", "CCN"]
    assert small.revise(item, 0.5, seed=2) == same.revise(item, 0.5, seed=2)
    small.save(tmp_path / "again")
    assert bits(Sealed(tmp_path / "again").tensors("model")) == bits(
        Sealed(tmp_path / "compact").tensors("model")
    )


def learned(V: int, T: int, D: int, seed: int) -> SemanticProcess:
    """A process that has learned something, and more since it was committed."""
    generator = torch.Generator().manual_seed(seed)
    scores = BilinearScores(T, D, hidden=4)
    process = SemanticProcess(scores, V, D, torch.linspace(0.9, 0.5, T))
    for _ in range(2):
        process.commit(torch.randn(V, D, generator=generator))
        for weight in scores.parameters():
            weight.data += torch.randn(weight.shape, generator=generator)
    return process


@given(st.integers(5, 12), st.integers(2, 6), st.integers(1, 24), st.integers(0, 99))
def test_settled_noise_is_the_same_noise_in_no_more_bytes(V: int, T: int, D: int, seed: int):
    process = learned(V, T, D, seed)
    settled = process.settled()
    assert torch.equal(settled.Q, process.Q)
    assert torch.equal(settled.Q_bar, process.Q_bar)
    sizes = [sum(x.nbytes for x in p.halves()[0].values()) for p in (settled, process)]
    assert sizes[0] == min(sizes[1], process.committed_kernel().nbytes)
    again = learned(V, T, D, seed + 1).kind_of(settled.halves()[0])
    again.load_state_dict(again.completed(settled.halves()[0]))
    assert torch.equal(again.Q_bar, process.Q_bar)


def test_a_large_vocabulary_is_corrupted_alike(generator):
    process = learned(SMALL + 1, 2, 512, 0)
    settled = process.settled()
    assert isinstance(settled, SettledProcess)
    x0, t = torch.arange(3, 200).view(1, -1).repeat(2, 1), torch.tensor([1, 2])
    again = torch.Generator().set_state(generator.get_state())
    assert torch.equal(settled.corrupt(x0, t, generator), process.corrupt(x0, t, again))


def test_few_bins_of_counts_are_smaller_than_their_kernel():
    counts = Confusions(T=6, V=8, bins=2, floor=0.1)
    process = SemanticProcess(counts, 8, 4, torch.linspace(0.9, 0.5, 6))
    assert process.settled() is process


def test_the_shipped_size_is_below_12_megabytes():
    config = tiny("vsdd")
    shape = dataclasses.replace(config.denoiser, width=256, layers=6, heads=8)
    noise = dataclasses.replace(config.noise, T=50, hidden=128)
    config = dataclasses.replace(config, denoiser=shape, noise=noise)
    denoiser, process = checkpoint.build(config, 65, 75)
    assert isinstance(process, CommittedProcess)
    kept, _ = process.settled().halves()
    weights = checkpoint.weights(denoiser, compact=True)
    assert sum(x.nbytes for x in (*weights.values(), *kept.values())) < 11.9e6


def test_nothing_goes_on_from_a_compact_model(trained, tmp_path: Path):
    trained.save(tmp_path / "compact", compact=True)
    for go_on in (redraft.resume, model.training_config):
        with pytest.raises(UserError, match=r"no state to continue from; .* saved or shipped"):
            go_on(tmp_path / "compact")


# Models that come with the package


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch) -> Path:
    """An empty place for shipped models."""
    monkeypatch.setattr(model, "SHIPPED", tmp_path / "models")
    return tmp_path / "models"


def test_a_shipped_model_is_loaded_by_its_name(trained, shelf: Path):
    trained.save(shelf / "molecules", compact=True)
    (shelf / "notes").mkdir()
    assert model.shipped() == ["molecules"]
    assert redraft.load("molecules", "cpu").trained.compact


def test_an_unknown_name_is_told_what_is_shipped(trained, shelf: Path):
    assert "(none with this copy of redraft)" in message(redraft.load, "molecules")
    for name in ("playlists", "molecules"):
        trained.save(shelf / name)
    assert "'molecule'" in message(redraft.load, "molecule")
    assert "a shipped model (molecules, playlists)" in message(redraft.load, "molecule")


def test_a_run_is_shipped_with_a_card_that_tells_of_it(shelf: Path, tmp_path: Path):
    run = tmp_path / "run"
    trainer.train(on_lines("vsdd", write_lines(tmp_path / "lines.txt"), steps=5), run)
    trained_at = json.loads((run / "config.json").read_text(encoding="utf-8"))["commit"]
    validity = {"value": 0.9312, "low": 0.92, "high": 0.94}
    (tmp_path / "results.json").write_text(
        json.dumps({"n": 1500, "metrics": {"validity": validity}})
    )
    (shelf / "lines").mkdir(parents=True)
    (shelf / "lines/old.txt").touch()
    folder = runpy.run_path(str(SHIP))["ship"](run, "lines", tmp_path / "results.json")
    assert folder == shelf / "lines" and not (folder / "old.txt").exists()
    found = redraft.load("lines", "cpu")
    assert found.trained.compact and found.trained.summary["commit"] == trained_at
    card = (folder / "README.md").read_text(encoding="utf-8")
    told = (
        'load("lines")',
        "0.9312 (95 %: 0.92 to 0.94; n = 1,500)",
        "lines.txt",
        "seconds",
        "16 bits",
    )
    assert all(fact in card for fact in told), card


# Formats


def test_a_folder_of_format_1_still_loads():
    old = redraft.load(OLD, "cpu")
    expected = json.loads((OLD.parent / "format-1-expected.json").read_text(encoding="utf-8"))
    x = torch.tensor(expected["x"])
    t = torch.tensor(expected["t"])
    logits = old.trained.denoiser(x, t)[..., 2:]
    np.testing.assert_allclose(logits.detach().numpy(), expected["logits"], atol=1e-4)
    p = old.trained.denoiser(x, t).softmax(-1)
    reverse = old.trained.process.reverse(x, p, t)
    np.testing.assert_allclose(reverse.detach().numpy(), expected["reverse"], atol=1e-4)
    assert len(old.sample(4, seed=0)) == 4


def test_a_run_of_format_1_goes_on(tmp_path: Path):
    """Its states had what is being learned in the model."""
    config = on_lines("vsdd", write_lines(tmp_path / "lines.txt"), steps=9, save_every=5)
    trainer.train(config, tmp_path / "run")
    ends = Sealed(tmp_path / "run").tensors("model")
    shutil.rmtree(tmp_path / "run/state/00000009")
    state = tmp_path / "run/state/00000005"
    tensors = Sealed(state).tensors("state")
    live = {name: tensors.pop(name) for name in list(tensors) if name.startswith("process/")}
    assert live
    write_tensors(state, "state", tensors)
    write_tensors(state / "model", "model", Sealed(state / "model").tensors("model") | live)
    path = state / "model/config.json"
    stored = json.loads(path.read_text(encoding="utf-8"))
    del stored["compact"]
    path.write_text(json.dumps(stored | {"format": 1}), encoding="utf-8")
    seal(state)
    seal(state / "model")
    trainer.resume(tmp_path / "run")
    assert bits(Sealed(tmp_path / "run").tensors("model")) == bits(ends)


def test_a_format_from_the_future_names_both_versions(tmp_path: Path):
    shutil.copytree(OLD, tmp_path / "model")
    path = tmp_path / "model/config.json"
    stored = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(stored | {"format": 99, "version": "7.0"}), encoding="utf-8")
    seal(tmp_path / "model")
    with pytest.raises(UserError, match=r"redraft 7.0 in format 99; .* up to 2"):
        checkpoint.load(tmp_path / "model")


@pytest.mark.parametrize(("V", "together"), [(65, 256), (2048, 128)])
def test_fewer_long_texts_of_many_words_are_drawn_together(V: int, together: int):
    """So that their probabilities take a quarter of a gigabyte at most."""
    trained = Mock(lengths=np.zeros(257), tokenizer=range(V))
    trained.denoiser.embeddings.device = torch.device("cpu")
    assert redraft.Model(trained).batch == together
