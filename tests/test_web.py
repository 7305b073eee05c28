"""The page's server: what it answers, to whom, and that nothing a request says can hurt it."""

import asyncio
import gc
import json
import re
import socket
import threading
import time
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import httpx2 as httpx
import pytest
from served import events, film, post, refusal, visiting
from starlette.datastructures import Headers
from starlette.testclient import TestClient

import redraft
from redraft.cli import main
from redraft.data.molecules import canonical_or_none
from redraft.report.structure import cleaned, structure
from redraft.web import app as web
from redraft.web import molecules as pages
from redraft.web.desk import Busy, Desk, Job
from redraft.web.guard import HEADERS, LARGEST, Guard
from redraft.web.shelf import Served

WHOLE, BROKEN = "CC(=O)NC", "CC(=O)NC("


@pytest.fixture(scope="module")
def shelf(molecules: Path):
    return {"tiny": Served.of(redraft.load(molecules, "cpu"))}


@pytest.fixture
def client(shelf):
    with visiting(shelf) as client:
        yield client


# ------------------------------------------------------------------ main paths


def test_the_page_tells_which_models_there_are(client: TestClient):
    told = client.get("/api/models").json()
    [tiny] = told["models"]
    assert all(map(canonical_or_none, tiny.pop("examples").values())) and not tiny.pop("trouble")
    assert tiny == {"name": "tiny", "domain": "molecules", "method": "vsdd", "T": 5, "noise": True}


@pytest.mark.parametrize(("smiles", "valid"), [(WHOLE, True), (BROKEN, False)])
def test_a_look_draws_what_parses(smiles: str, valid: bool, client: TestClient):
    seen = post(client, "molecules/look", smiles=smiles).json()
    assert seen["valid"] == valid == (seen["svg"] is not None)
    assert "".join(seen["tokens"]) == smiles and seen["remark"] == ""


def test_a_look_says_what_the_model_does_not_take(client: TestClient):
    assert "300 tokens" in post(client, "molecules/look", smiles="C" * 300).json()["remark"]
    assert "'?'" in post(client, "molecules/look", smiles="CC?").json()["remark"]


def test_what_was_broken_does_not_parse(client: TestClient):
    for seed in range(5):
        seen = post(client, "molecules/break", smiles=WHOLE, seed=seed).json()
        assert seen["original"] == WHOLE and not seen["valid"]
        assert canonical_or_none(seen["smiles"]) is None
    assert post(client, "molecules/break", smiles=BROKEN).status_code == 422


def test_a_revision_is_told_step_by_step(client: TestClient):
    frames, end = film(post(client, "molecules/revise", smiles=WHOLE, strength=0.8, n=3, seed=1))
    assert len(frames) == 1 + 4  # as given, and 0.8 of five steps
    assert {row["text"] for row in frames[0]["rows"]} == {WHOLE}
    assert [row["text"] for row in frames[-1]["rows"]] == [c["text"] for c in end["candidates"]]
    for before, after in pairwise(frames):
        for old, new in zip(before["rows"], after["rows"], strict=True):
            pairs = zip(old["tokens"], new["tokens"], strict=True)
            assert new["changed"] == [n for n, (a, b) in enumerate(pairs) if a != b]
    for one in end["candidates"]:
        parses = canonical_or_none(one["text"]) is not None
        assert parses == (one["svg"] is not None) == (one["similarity"] is not None)


def test_the_same_seed_tells_the_same(client: TestClient):
    first, second = (events(post(client, "molecules/sample", n=2, seed=7)) for _ in range(2))
    assert [e for e in first if e["kind"] != "waiting"] == [
        e for e in second if e["kind"] != "waiting"
    ]


def test_a_repair_shows_what_it_tries_and_ends_with_molecules(client: TestClient):
    frames, end = film(post(client, "molecules/repair", smiles=BROKEN, original=WHOLE, seed=0))
    best = end["candidates"][0]
    assert frames[0]["rows"][0]["text"] == BROKEN
    assert frames[-1]["rows"][0]["text"] == best["text"]
    forms = [canonical_or_none(c["text"]) for c in end["candidates"]]
    assert None not in forms and len({*forms}) == len(forms)
    assert best["edits"] == min(c["edits"] for c in end["candidates"]) >= 1
    assert 0 < sum(c["sure"] for c in end["candidates"]) <= 1 + 1e-6


def test_a_repair_by_revisions_is_watched_too(client: TestClient, monkeypatch):
    monkeypatch.setattr("redraft.web.molecules.Watched.valid", lambda self, candidates: {})
    frames, end = film(post(client, "molecules/repair", smiles=BROKEN, seed=0))
    assert any(frame["label"].startswith("revision") for frame in frames)
    assert end["candidates"] == [] and "Not repaired" in end["note"]


def test_what_is_valid_stays_and_what_is_unknown_is_told(client: TestClient):
    _, end = film(post(client, "molecules/repair", smiles=WHOLE))
    assert [c["text"] for c in end["candidates"]] == [WHOLE]
    frames, end = film(post(client, "molecules/repair", smiles="CC?"))
    assert not frames and not end["candidates"] and "'?'" in end["note"]


def test_the_noise_is_a_map_of_probabilities(client: TestClient):
    early, late = (
        client.get("/api/noise", params={"model": "tiny", "t": t}).json() for t in (1, 5)
    )
    assert early["tokens"] == late["tokens"] and early["T"] == 5
    for row, top in zip(early["p"], early["top"], strict=True):
        assert sum(row) <= 1 + 1e-3
        assert [p for _, p in top] == sorted((p for _, p in top), reverse=True)
        assert top[0][1] >= max(row)
    assert all(early["p"][i][i] == 0 for i in range(len(early["p"])))


def test_noise_that_was_not_learned_is_told(shelf):
    plain = {"plain": Served(shelf["tiny"].model, None)}
    with visiting(plain) as client:
        answer = client.get("/api/noise", params={"model": "plain", "t": 1})
    assert answer.status_code == 422 and "not learned" in answer.json()["error"]


# ------------------------------------------------------------------ hostile input

HOSTILE = {
    "script": ("molecules/repair", {"smiles": "<script>alert(1)</script>" * 3}),
    "long": ("molecules/look", {"smiles": "C" * 401}),
    "too many tokens to break": ("molecules/break", {"smiles": "C" * 300}),
    "too many tokens to revise": ("molecules/revise", {"smiles": "C" * 300}),
    "too many tokens to repair": ("molecules/repair", {"smiles": "C" * 300}),
    "empty": ("molecules/repair", {"smiles": ""}),
    "spaces": ("molecules/repair", {"smiles": "C C"}),
    "not ASCII": ("molecules/look", {"smiles": "Cé"}),
    "null byte": ("molecules/look", {"smiles": "C\0C"}),
    "a number": ("molecules/look", {"smiles": 3}),
    "a list": ("molecules/revise", {"smiles": ["C"]}),
    "no SMILES": ("molecules/revise", {}),
    "unknown token": ("molecules/revise", {"smiles": "CC?"}),
    "unknown field": ("molecules/look", {"smiles": "C", "path": "/etc/passwd"}),
    "unknown model": ("molecules/look", {"smiles": "C", "model": "../../etc/passwd"}),
    "model of another type": ("molecules/sample", {"model": None}),
    "n too large": ("molecules/sample", {"n": 7}),
    "n as text": ("molecules/sample", {"n": "4"}),
    "n as a float": ("molecules/sample", {"n": 2.5}),
    "negative seed": ("molecules/sample", {"seed": -1}),
    "huge seed": ("molecules/sample", {"seed": 10**400}),
    "no strength": ("molecules/revise", {"smiles": "C", "strength": 0}),
    "strength as truth": ("molecules/revise", {"smiles": "C", "strength": "true"}),
    "temperature": ("molecules/sample", {"temperature": -1}),
    "renew": ("molecules/sample", {"renew": 1.5}),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_input_gets_one_sentence(case: str, client: TestClient):
    path, form = HOSTILE[case]
    said = refusal(post(client, path, **form))
    assert "passwd" not in said and "<script>" not in said


def test_a_script_in_smiles_comes_back_as_text_alone(client: TestClient):
    seen = post(client, "molecules/look", smiles="<b>&'").json()
    assert seen["svg"] is None and not seen["valid"]


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[" * 8000, b"\xff\xfe", b"null", b"3", b'{"model": "tiny", "smiles": "\\ud800"}',
     b'{"model": "tiny", "smiles": "C", "seed": NaN}'],
    ids=repr,
)  # fmt: skip
@pytest.mark.parametrize("kind", ["application/json", "text/plain"])
def test_what_is_no_form_is_refused(body: bytes, kind: str, client: TestClient):
    answer = client.post("/api/molecules/break", content=body, headers={"content-type": kind})
    assert 400 <= answer.status_code < 500
    assert "\n" not in answer.json()["error"]


def test_steps_beyond_the_model_are_told_in_the_stream(client: TestClient):
    last = events(post(client, "molecules/sample", steps=6))[-1]
    assert last["kind"] == "error" and "1..5" in last["message"]


def test_large_bodies_are_refused_with_and_without_a_length(client: TestClient):
    answer = client.post("/api/molecules/look", content=b"x" * (LARGEST + 1))
    assert answer.status_code == 413
    parts = (b"x" * 1000 for _ in range(1000))
    answer = client.post(
        "/api/molecules/look", content=parts, headers={"content-type": "application/json"}
    )
    assert answer.status_code == 413


@pytest.mark.parametrize("t", ["0", "6", "-1", "x", "1e3", "9" * 400, ""])
def test_times_that_are_none(t: str, client: TestClient):
    answer = client.get("/api/noise", params={"model": "tiny", "t": t})
    assert answer.status_code == 422 and "\n" not in answer.json()["error"]


ELSEWHERE = ["/../app.py", "/static/../app.py", "/%2e%2e/app.py", "/docs", "/openapi.json",
             "/etc/passwd", "/page.js/", "/index.html%00"]  # fmt: skip


@pytest.mark.parametrize("path", ELSEWHERE)
def test_no_path_leads_to_the_disk(path: str, client: TestClient):
    answer = client.get(path, follow_redirects=False)
    assert answer.status_code in (307, 404)
    assert "import" not in answer.text


def test_a_failure_tells_nothing_of_the_inside(client: TestClient, monkeypatch, caplog):
    def fail(*_):
        raise RuntimeError("a secret")

    monkeypatch.setattr(pages, "sample", fail)
    monkeypatch.setattr(pages, "look", fail)
    [last] = [e for e in events(post(client, "molecules/sample")) if e["kind"] != "waiting"]
    assert last["kind"] == "error" and "secret" not in last["message"]
    assert "a secret" in caplog.text  # the terminal tells why
    answer = post(client, "molecules/look", smiles="C")
    assert answer.status_code == 500 and "secret" not in answer.text
    assert answer.headers["content-security-policy"] == HEADERS["Content-Security-Policy"]


# ------------------------------------------------------------------ hosts and headers


@pytest.mark.parametrize(
    ("host", "here", "public"),
    [
        ("127.0.0.1:8765", True, True),
        ("localhost", True, True),
        ("[::1]:80", True, True),
        ("192.168.1.5:8765", False, True),
        (socket.gethostname().lower(), False, True),
        ("evil.example", False, False),
        ("127.0.0.1.evil.example", False, False),
        ("localhost.evil.example:80", False, False),
        ("", False, False),
        ("[", False, False),
    ],
)
def test_names_that_are_not_ours_get_no_answer(host: str, here: bool, public: bool):
    for open_to_all, accepted in ((False, here), (True, public)):
        guard = Guard(lambda *_: None, open_to_all)  # pyright: ignore
        refusal = guard.refusal(Headers({"host": host}))
        assert (refusal is None) == accepted


def test_a_rebound_name_and_a_foreign_page_are_refused(client: TestClient):
    assert client.get("/", headers={"host": "evil.example"}).status_code == 421
    for origin in ("http://evil.example", "null", "http://127.0.0.1:9"):
        answer = client.get("/api/models", headers={"origin": origin})
        assert answer.status_code == 403
    assert client.get("/api/models", headers={"origin": "http://127.0.0.1"}).status_code == 200


@pytest.mark.parametrize(
    "path", ["/", "/page.js", "/api/models", "/nowhere", "/api/molecules/sample"]
)
def test_every_answer_carries_the_headers(path: str, client: TestClient):
    answer = client.get(path)
    for name, value in HEADERS.items():
        assert answer.headers[name] == value
    assert "unsafe" not in HEADERS["Content-Security-Policy"]


class Reading(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags: list[tuple[str, dict]] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


def test_the_page_has_nothing_inline_and_nothing_from_elsewhere(client: TestClient):
    page = Reading()
    page.feed(client.get("/").text)
    ids = [facts["id"] for _, facts in page.tags if "id" in facts]
    assert len(ids) == len({*ids})
    for tag, facts in page.tags:
        assert tag != "style" and "style" not in facts
        assert not any(name.startswith("on") for name in facts)
        assert tag != "script" or facts.get("src")
        for link in (facts.get("src"), facts.get("href")):
            if link and not link.startswith("#"):
                assert client.get(f"/{link}").status_code == 200
    for file in web.STATIC.iterdir():
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/", "")
        assert not re.search(r"https?://|innerHTML|eval\(|document\.write", text), file.name


def test_only_clean_paths_are_left_of_a_drawing():
    drawing = (
        "<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script>"
        "<path d='M 0,0 L 1,1' style='fill:none;stroke:#000000;stroke-width:2.0px'/>"
        "<path d='M 0,0' fill='url(evil)'/><path d='evil()' fill='#000000'/>"
        "<image href='evil'/></svg>"
    )
    found = cleaned(drawing)
    assert found.count("<path") == 1 and "currentColor" in found
    assert "alert" not in found and "evil" not in found


@pytest.mark.parametrize(
    "smiles", ["C[C@H](N)C(=O)[O-]", "BrCCl.[Na+]", "[13CH4]", "*C", "F/C=C/I"]
)
def test_structures_are_drawn(smiles: str):
    drawn = structure(smiles)
    assert drawn is not None and "<path" in drawn and "style" not in drawn


# ------------------------------------------------------------------ many at once


def test_twenty_at_once_all_get_an_answer(shelf):
    desk = Desk()

    async def everybody():
        transport = httpx.ASGITransport(app=web.create(shelf, desk))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            asks = [
                client.post("/api/molecules/sample", json={"model": "tiny", "n": 1, "seed": n})
                for n in range(20)
            ]
            return await asyncio.gather(*asks)

    answers = asyncio.run(everybody())
    desk.close()
    for answer in answers:
        assert film(answer)[1]["candidates"]


def test_a_full_line_says_for_how_long(shelf):
    with visiting(shelf, Desk(seats=0)) as client:
        answer = post(client, "molecules/sample")
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) >= 1
    assert "busy" in answer.json()["error"] and "seconds" in answer.json()["error"]


def test_the_desk_serves_in_order_and_forgets_who_leaves():
    desk, begun, gate, order = Desk(seats=2), threading.Event(), threading.Event(), []

    def patient(job: Job) -> None:
        begun.set()
        gate.wait(10)
        order.append("first")

    def quick(name: str) -> Job:
        return Job(lambda job: order.append(name), lambda event: None)

    desk.ask(Job(patient, lambda event: None))
    assert begun.wait(10)
    second, third = quick("second"), quick("third")
    desk.ask(second)
    desk.ask(third)
    assert desk.waiting(third) == (2, desk._seconds(2))
    with pytest.raises(Busy, match="2 others"):
        desk.ask(quick("fourth"))
    desk.withdraw(second)
    ended = threading.Event()
    desk.ask(Job(lambda job: ended.set(), lambda event: None))
    gate.set()
    assert ended.wait(10)
    desk.close()
    assert order == ["first", "third"]


def test_who_leaves_stops_the_computation(shelf, monkeypatch):
    """Two hear the first word of an endless story and go: it ends for each."""
    ended = threading.Semaphore(0)

    def endless(model, ask, job):
        try:
            while True:
                job.say("frame", label="on and on", rows=[])
                time.sleep(0.001)
        finally:
            ended.release()

    monkeypatch.setattr(pages, "sample", endless)
    desk = Desk()
    app = web.create(shelf, desk)
    body = json.dumps({"model": "tiny"}).encode()

    async def visit() -> None:
        heard, asked = asyncio.Event(), iter([{"type": "http.request", "body": body}])

        async def receive():
            if (first := next(asked, None)) is not None:
                return first
            await heard.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            if b"on and on" in message.get("body", b""):
                heard.set()

        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        path = "/api/molecules/sample"
        scope = {"type": "http", "method": "POST", "path": path, "headers": headers,
                 "query_string": b"", "asgi": {"spec_version": "2.3"}}  # fmt: skip
        await asyncio.wait_for(app(scope, receive, send), 20)

    for _ in range(2):
        asyncio.run(visit())
        assert ended.acquire(timeout=10)
    desk.close()


def test_nothing_of_a_request_is_kept(shelf):
    desk = Desk()
    with visiting(shelf, desk) as client:
        for seed in range(5):
            film(post(client, "molecules/sample", n=1, seed=seed))
            film(post(client, "molecules/repair", smiles=BROKEN, seed=seed))
    assert not desk.thread.is_alive() and not desk.line
    gc.collect()
    assert not [x for x in gc.get_objects() if type(x) is Job]


# ------------------------------------------------------------------ the command


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--host", "0.0.0.0"], "--anyone-may-connect"),
        (["--port", "70000"], "0..65535"),
        (["nowhere", "--port", "0"], "no model"),
        (["--host", "999.1.1.1", "--anyone-may-connect"], "cannot listen"),
    ],
)
def test_a_mistake_gets_one_sentence(flags: list[str], said: str, capsys):
    assert main(["serve", *flags]) == 2
    error = capsys.readouterr().err
    assert said in error and len(error.splitlines()) == 1


def test_a_port_that_is_taken_is_told(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["serve", "--port", str(taken.getsockname()[1])]) == 2
    assert "cannot listen" in capsys.readouterr().err
