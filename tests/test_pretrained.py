"""Models that travel: save_pretrained, from_pretrained, the hub, and folders of older formats."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import tiny

import redraft
from redraft import checkpoint, model, trainer
from redraft.errors import UserError
from redraft.folder import seal

OLD = Path(__file__).parent / "data" / "format-1"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> redraft.Model:
    folder = tmp_path_factory.mktemp("run") / "run"
    return redraft.Model(trainer.train(tiny("vsdd", steps=6), folder))


def test_saved_and_loaded_models_sample_alike(trained, tmp_path: Path):
    trained.save_pretrained(tmp_path / "model")
    again = redraft.Model.from_pretrained(tmp_path / "model")
    assert again.sample(6, seed=1) == trained.sample(6, seed=1)
    assert redraft.load(tmp_path / "model").config == trained.config
    assert "vsdd" in (tmp_path / "model/README.md").read_text(encoding="utf-8")


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
    monkeypatch.setattr("huggingface_hub.hub_mixin.hf_hub_download", lambda **_: None)
    monkeypatch.setattr("redraft.model.ModelHubMixin.from_pretrained", _without_config())
    assert redraft.load("someone/molecules").sample(3, seed=0) == trained.sample(3, seed=0)
    assert asked["name"] == "someone/molecules"


def _without_config():
    """The mixin's own download of config.json left out: there is no network in a test."""

    def from_pretrained(cls, name, **options):
        return cls._from_pretrained(model_id=str(name), **options)

    return classmethod(from_pretrained)


def test_an_unreachable_hub_gets_a_sentence(monkeypatch):
    def refuse(*_, **__):
        raise ConnectionError("no network\nhere")

    monkeypatch.setattr("huggingface_hub.hub_mixin.hf_hub_download", refuse)
    monkeypatch.setattr(model, "snapshot_download", refuse)
    with pytest.raises(UserError, match="not to be had from the hub: no network here"):
        redraft.load("someone/nothing")


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


def test_a_format_from_the_future_names_both_versions(tmp_path: Path):
    shutil.copytree(OLD, tmp_path / "model")
    path = tmp_path / "model/config.json"
    stored = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(stored | {"format": 99, "version": "7.0"}), encoding="utf-8")
    seal(tmp_path / "model")
    with pytest.raises(UserError, match=r"redraft 7.0 in format 99; .* up to 1"):
        checkpoint.load(tmp_path / "model")
