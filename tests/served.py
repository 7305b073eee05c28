"""Asking the page's server, hearing what it tells, and small models for it to show."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tiny import tiny

import redraft
from redraft import domains
from redraft.config import DataConfig
from redraft.data.playlists import synthetic
from redraft.model import Model
from redraft.tokenizers import SemanticIdTokenizer
from redraft.web import app as web
from redraft.web.desk import Desk
from redraft.web.shelf import Shelf


@contextmanager
def visiting(shelf: Shelf, desk: Desk | None = None) -> Iterator[TestClient]:
    app = web.create(shelf, desk)
    with TestClient(app, "http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


DRAWS = ("repair", "revise", "sample", "infill", "continue", "redraft")


def post(client: TestClient, path: str, /, **form: Any):
    """What draws has a seed."""
    seed = {"seed": 0} if path.endswith(DRAWS) else {}
    return client.post(f"/api/{path}", json={"model": "tiny", **seed, **form})


def events(answer: Any) -> list[dict]:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    parts = answer.text.split("\n\n")
    return [json.loads(part.removeprefix("data: ")) for part in parts if part.startswith("data: ")]


def film(answer: Any) -> tuple[list[dict], dict]:
    """The frames, whole as the page puts them together, and the end."""
    *before, last = events(answer)
    assert last["kind"] == "done", last
    frames = [event for event in before if event["kind"] == "frame"]
    rows = [{} for _ in frames[0]["rows"]] if frames else []
    for frame in frames:
        rows = [old | new for old, new in zip(rows, frame["rows"], strict=True)]
        frame["rows"] = rows
    return frames, last


def refusal(answer: Any) -> str:
    """One sentence, which is not ours to be sorry for."""
    assert 400 <= answer.status_code < 500, answer.text
    said = answer.json()["error"]
    assert 5 < len(said) < 300 and "\n" not in said and "Traceback" not in said
    return said


# ------------------------------------------------------------------ models


def story_model(folder: Path, method: str, T: int = 5, **data: Any) -> Model:
    data = {"vocabulary": 400, "max_length": 160, "long": "drop", **data}
    own = DataConfig(domain="stories", synthetic=60, **data)
    config = tiny(method, steps=4, batch=4, validate=8, device="cpu")
    noise = replace(config.noise, T=T)
    return redraft.train(replace(config, data=own, noise=noise), folder)


def playlist_model(folder: Path) -> Model:
    """Its tracks have so few codes between them that whatever is drawn are some track's."""

    def few_codes(config: DataConfig, seed: int):
        corpus, rows = synthetic(config.synthetic, seed)
        return corpus, SemanticIdTokenizer.fit(rows, bits=2)

    config = tiny("vsdd", steps=4, batch=4, validate=8, device="cpu")
    data = DataConfig(domain="playlists", synthetic=60)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(domains.DOMAINS, "playlists", few_codes)
        return redraft.train(replace(config, data=data), folder)
