"""The loop: it improves, repeats itself, and keeps what was good."""

import json
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from tiny import tiny

from redraft import checkpoint, trainer
from redraft.batches import Batch
from redraft.domains import prepare
from redraft.errors import UserError
from redraft.folder import seal
from redraft.methods import METHODS
from redraft.methods.fixed import Fixed
from redraft.methods.method import Method, Player


@pytest.mark.parametrize("method", METHODS)
def test_training_lowers_the_exact_bound_on_held_out_molecules(method: str, tmp_path: Path):
    trained = trainer.train(tiny(method), tmp_path / "run")
    assert trained.summary["bound_end"] < trained.summary["bound_start"]
    assert trained.summary["steps"] == 30


@pytest.mark.parametrize("method", METHODS)
def test_a_saved_run_samples_as_the_trained_one(method: str, tmp_path: Path):
    trained = trainer.train(tiny(method, steps=6), tmp_path / "run")
    loaded = checkpoint.load(tmp_path / "run")
    assert loaded.config == trained.config
    assert loaded.tokenizer == trained.tokenizer
    x = torch.tensor([[3, 4, 5, 2], [6, 7, 2, 0]])
    t = torch.tensor([2, 5])
    assert torch.equal(loaded.denoiser(x, t), trained.denoiser(x, t))
    p = torch.full((2, 4, len(trained.tokenizer)), 1.0) / len(trained.tokenizer)
    assert torch.equal(loaded.process.reverse(x, p, t), trained.process.reverse(x, p, t))


def test_the_same_seed_gives_the_same_run(tmp_path: Path):
    first = trainer.train(tiny("vsdd"), tmp_path / "a")
    second = trainer.train(tiny("vsdd"), tmp_path / "b")
    assert first.summary["bound_end"] == second.summary["bound_end"]
    for a, b in zip(first.denoiser.parameters(), second.denoiser.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("method", METHODS)
def test_a_rehearsal_leaves_no_trace(method: str, tmp_path: Path):
    """The steps that are thrown away compile what comes next, and do nothing else to it."""
    config = tiny(method, steps=6)
    plain = trainer.train(config, tmp_path / "plain")
    trainer.rehearse(config, prepare(config.data, config.seed))
    after = trainer.train(config, tmp_path / "after")
    for a, b in zip(plain.denoiser.parameters(), after.denoiser.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("method", METHODS)
def test_a_rehearsal_meets_all_that_a_run_does(method: str, monkeypatch):
    """Every kind of work on every kind of batch, so that nothing is left to be compiled later."""
    met: set[tuple] = set()
    work = Method.run

    def noted(self: Method, own, batch: Batch, phase):
        met.add((own.__name__, batch.x0.shape, batch.padded, phase))
        return work(self, own, batch, phase)

    monkeypatch.setattr(Method, "run", noted)
    config = tiny(method)
    trainer.rehearse(config, prepare(config.data, config.seed))
    rehearsed, met = met, set()
    run = trainer.assemble(config)
    for step in range(run.batches.per_epoch):
        run.method.step(run.batches[step], step / run.batches.per_epoch)
    assert len(met) > 1
    assert met <= rehearsed


@pytest.mark.parametrize("compiles", [False, True])
@pytest.mark.parametrize("seconds", [None, 9.0])
def test_seconds_are_not_for_compiling(compiles: bool, seconds: float | None, monkeypatch):
    """It comes before the run; where steps are counted it may come with the first."""
    config = tiny("vsdd", seconds=seconds, compile=compiles)
    monkeypatch.setattr(trainer, "rehearse", rehearse := Mock())
    monkeypatch.setattr(trainer, "assemble", assemble := Mock())
    assert trainer.ready(config) is assemble.return_value
    assert rehearse.called == (compiles and seconds is not None)


@pytest.mark.parametrize(("steps", "seen"), [(3, [3]), (10, [10]), (13, [10, 13])])
def test_the_watcher_sees_the_last_step_once(steps: int, seen: list[int], tmp_path: Path):
    told: list[int] = []

    def watch(step: int, progress: float, metrics: dict[str, float], rate: float) -> None:
        assert {"step", "seconds", "loss"} <= metrics.keys() and rate > 0
        told.append(step)

    trainer.train(tiny("mdlm", steps=steps), tmp_path / "run", watch)
    assert told == seen


def test_a_budget_of_seconds_ends_the_run(tmp_path: Path):
    trained = trainer.train(tiny("mdlm", steps=None, seconds=0.5), tmp_path / "run")
    assert trained.summary["steps"] >= 1


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_last_good_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    step = Fixed.step

    def poisoned(self, batch, progress):
        metrics = step(self, batch, progress)
        if self.steps_done == 17:
            with torch.no_grad():
                self.denoiser.head.weight.fill_(torch.nan)
            metrics["loss"] = torch.tensor(torch.nan)
        return metrics

    monkeypatch.setattr(Fixed, "step", poisoned)
    folder = tmp_path / "run"
    with pytest.raises(UserError, match=r"^loss: not a number at step 17; the last good") as error:
        trainer.train(tiny("mdlm"), folder)
    assert str(folder) in str(error.value)
    kept = checkpoint.load(folder)
    assert kept.summary["steps"] == 10
    assert all(p.isfinite().all() for p in kept.denoiser.parameters())


@pytest.mark.parametrize("at", [20, 30], ids=["before a save", "at the end"])
@pytest.mark.parametrize("who", ["the follower", "the leader"])
def test_a_gradient_that_is_no_number_spoils_no_state(
    who: str, at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The loss of that step is sound; its weights are not."""
    config, folder, move = tiny("vsdd"), tmp_path / "run", Player.move
    every = {"the follower": 1, "the leader": config.leader.block}[who]
    own = {"the follower": config.optimizer, "the leader": config.leader.optimizer}[who]
    moves: list[Player] = []

    def poisoned(self: Player) -> torch.Tensor:
        if self.config == own:
            moves.append(self)
            if len(moves) * every == at:
                self.parameters[0].grad = torch.full_like(self.parameters[0], torch.nan)
        return move(self)

    monkeypatch.setattr(Player, "move", poisoned)
    name = {"the follower": "gradient_norm", "the leader": "leader/gradient_norm"}[who]
    with pytest.raises(UserError, match=f"^{name}.*: not a number at step {at}; the last good"):
        trainer.train(config, folder)
    state = checkpoint.load_state(folder)
    assert state.progress["step"] == at - 10
    weights = (*state.tensors.values(), *state.trained.process.state_dict().values())
    assert all(x.isfinite().all() for x in weights if x.is_floating_point())


def test_a_run_never_overwrites_another(tmp_path: Path):
    trainer.train(tiny("mdlm", steps=2), tmp_path / "run")
    before = (tmp_path / "run/model.safetensors").read_bytes()
    with pytest.raises(UserError, match="already holds a run"):
        trainer.train(tiny("mdlm", steps=2), tmp_path / "run")
    assert (tmp_path / "run/model.safetensors").read_bytes() == before


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_damaged_folder_gets_a_sentence(name: str, tmp_path: Path):
    checkpoint.save(tmp_path / "model", trainer.train(tiny("mdlm", steps=2), tmp_path / "run"))
    path = tmp_path / "model" / name
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(UserError, match=name):
        checkpoint.load(tmp_path / "model")
    path.unlink()
    with pytest.raises(UserError, match=name):
        checkpoint.load(tmp_path / "model")


def test_a_run_whose_own_copy_is_damaged_loads_from_its_state(tmp_path: Path):
    trained = trainer.train(tiny("mdlm", steps=2), tmp_path / "run")
    (tmp_path / "run/model.safetensors").write_bytes(b"half")
    loaded = checkpoint.load(tmp_path / "run")
    for a, b in zip(loaded.denoiser.parameters(), trained.denoiser.parameters(), strict=True):
        assert torch.equal(a, b)


def test_weights_of_another_shape_get_a_sentence(tmp_path: Path):
    checkpoint.save(tmp_path / "model", trainer.train(tiny("mdlm", steps=2), tmp_path / "run"))
    path = tmp_path / "model/config.json"
    stored = json.loads(path.read_text())
    stored["config"]["denoiser"]["width"] = 32
    path.write_text(json.dumps(stored))
    seal(tmp_path / "model")
    with pytest.raises(UserError, match="do not fit: denoiser/blocks"):
        checkpoint.load(tmp_path / "model")
