"""What a model has learned from, and what it has never seen."""

from dataclasses import replace

from redraft.domains import Dataset, prepare
from redraft.errors import UserError
from redraft.evaluation.results import Run
from redraft.trainer import fingerprint


def dataset_of(run: Run, file: str | None = None) -> Dataset:
    """The data of a run; `file` if they lie elsewhere now."""
    config = run.config.data
    data = prepare(config if file is None else replace(config, file=file), run.config.seed)
    if fingerprint(data) != run.summary["data_sha256"]:
        raise UserError(f"{data.origin} That is not what the model was trained on")
    return data


def learned(data: Dataset) -> set[str]:
    """Training items, as they were written."""
    return {data.tokenizer.decode(ids) for ids in data.train}


def unseen(data: Dataset, n: int | None = None) -> list[str]:
    """The first n validation items, or all."""
    return [data.tokenizer.decode(ids) for ids in data.validation[:n]]


def held_out(data: Dataset, n: int) -> list[str]:
    """The first n items like those it has learned from, which were kept from it."""
    return [data.tokenizer.decode(ids) for ids in data.held_out[:n]]
