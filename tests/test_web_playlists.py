"""The playlists tab's server: tracks by name, what follows, what is redrafted, mistakes."""

import dataclasses
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from served import events, film, playlist_model, post, refusal, visiting
from starlette.testclient import TestClient

import redraft
from redraft.data import made_up
from redraft.playlist import Curator, tokenizer_of
from redraft.web import playlists
from redraft.web.forms import Search
from redraft.web.shelf import Served

MINE = [5, 17, 3, 200, 41, 9]


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Served:
    return Served.of(playlist_model(tmp_path_factory.mktemp("runs") / "playlists"))


@pytest.fixture
def client(served: Served):
    with visiting({"tiny": served}) as client:
        yield client


# ------------------------------------------------------------------ names


def test_examples_are_playlists_of_known_tracks(client: TestClient):
    [told] = client.get("/api/models").json()["models"]
    assert told["trouble"] == "" and told["examples"]
    for text in told["examples"].values():
        tracks = [int(word) for word in text.split()]
        named = post(client, "playlists/look", tracks=tracks).json()["tracks"]
        assert [one["track"] for one in named] == tracks
        assert named[0]["title"] == made_up.title(tracks[0])


def test_a_search_is_bounded_and_begins_words(client: TestClient):
    found = post(client, "playlists/search", text="LOST Ri").json()["tracks"]
    assert [(one["track"], one["title"]) for one in found] == [(5, "Lost River")]
    found = post(client, "playlists/search", text="lost").json()["tracks"]
    assert [one["track"] for one in islice(found, 3)] == [5, 55, 105]
    assert len(post(client, "playlists/search", text="the").json()["tracks"]) == playlists.FOUND
    for nothing in ("ost river", "<script>", "  ", "\0", "📻"):
        assert post(client, "playlists/search", text=nothing).json() == {"tracks": []}


@given(text=st.text(max_size=12))
def test_any_text_may_be_searched(served: Served, text: str):
    found = playlists.search(served.opened, Search(model="tiny", text=text or "x"))["tracks"]
    assert len(found) <= playlists.FOUND


# ------------------------------------------------------------------ continued


def test_a_continuation_is_what_the_curator_says(client: TestClient, served: Served):
    ask = {"tracks": MINE, "n": 2, "draws": 6, "seed": 3}
    frames, end = film(post(client, "playlists/continue", **ask))
    assert len(frames) == 5 and len(frames[-1]["rows"]) == 6
    assert all(row["tokens"][0].startswith("7  ") for row in frames[-1]["rows"])
    said = Curator.of(served.model, draws=6).continued(MINE, 2, playlists.MORE, seed=3)
    expected = [(p.title, p.share, p.sharing) for p in (*said.tracks, *said.alternatives)]
    found = end["candidates"]
    assert [(one["title"], one["share"], one["sharing"]) for one in found] == expected
    assert not {one["track"] for one in found} & {*MINE}


def test_a_proposal_leads_to_a_draw_that_has_it(client: TestClient, served: Served):
    frames, end = film(post(client, "playlists/continue", tracks=MINE, n=2, draws=6))
    codes = tokenizer_of(served.model).codes
    for one in end["candidates"]:
        drawn = frames[-1]["rows"][one["row"]]["tokens"]
        same = [t for t in range(len(codes)) if (codes[t] == codes[one["track"]]).all()]
        assert any(word.endswith(made_up.title(same[0])) for word in drawn)


def test_a_long_playlist_is_read_from_its_end(client: TestClient):
    tracks = list(range(120))
    frames, end = film(post(client, "playlists/continue", tracks=tracks, n=1, draws=2))
    assert "the last 49 of 120" in end["note"]
    assert frames[0]["rows"][0]["tokens"][0].startswith("121  ")


# ------------------------------------------------------------------ redrafted


def test_marked_places_alone_are_redrafted(client: TestClient, served: Served):
    ask = {"tracks": MINE, "at": [5, 2], "draws": 6, "seed": 1}
    frames, end = film(post(client, "playlists/redraft", **ask))
    assert [word.split()[0] for word in frames[0]["rows"][0]["tokens"]] == ["2", "5"]
    places = [one["place"] for one in end["candidates"]]
    assert places == sorted(places) and {*places} == {1, 4}
    said = Curator.of(served.model, draws=6).repaired(MINE, [2, 5], seed=1)
    best = {one["place"]: one for one in reversed(end["candidates"])}
    for change in said.changes:
        assert change.after is not None
        one = best[change.place - 1]
        assert (one["title"], one["share"]) == (change.after.title, change.after.share)


def test_without_marks_it_is_those_that_come_again(client: TestClient):
    frames, end = film(post(client, "playlists/redraft", tracks=[*MINE, 17], draws=6, seed=1))
    assert {one["place"] for one in end["candidates"]} == {6}
    frames, end = film(post(client, "playlists/redraft", tracks=MINE, draws=2))
    assert not frames and not end["candidates"] and "mark those" in end["note"]


# ------------------------------------------------------------------ mistakes

HOSTILE = {
    "few tracks": ("continue", {"tracks": MINE[:3]}),
    "no tracks": ("continue", {}),
    "unknown track": ("continue", {"tracks": [*MINE, 999_999]}),
    "unknown track to look at": ("look", {"tracks": [999_999]}),
    "huge track": ("look", {"tracks": [10**12]}),
    "track before the first": ("look", {"tracks": [-1]}),
    "track as text": ("continue", {"tracks": ["1", "2", "3", "4"]}),
    "track as truth": ("continue", {"tracks": [True, 2, 3, 4]}),
    "very many tracks": ("continue", {"tracks": [1] * 201}),
    "more than the model reads": ("redraft", {"tracks": list(range(60)), "at": [1]}),
    "place 0": ("redraft", {"tracks": MINE, "at": [0]}),
    "no such place": ("redraft", {"tracks": MINE, "at": [7]}),
    "all places": ("redraft", {"tracks": MINE, "at": [1, 2, 3, 4, 5, 6]}),
    "no strength": ("redraft", {"tracks": MINE, "at": [1], "strength": 0}),
    "many draws": ("continue", {"tracks": MINE, "draws": 21}),
    "empty search": ("search", {"text": ""}),
    "long search": ("search", {"text": "a" * 101}),
    "search by number": ("search", {"text": 17}),
    "unknown field": ("look", {"tracks": MINE, "path": "/etc/passwd"}),
    "unknown model": ("look", {"tracks": MINE, "model": "/etc/passwd"}),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_input_gets_one_sentence(case: str, client: TestClient):
    path, form = HOSTILE[case]
    assert "passwd" not in refusal(post(client, f"playlists/{path}", **form))


def test_steps_beyond_the_model_are_told_in_the_stream(client: TestClient):
    last = events(post(client, "playlists/continue", tracks=MINE, steps=6))[-1]
    assert last["kind"] == "error" and "1..5" in last["message"]


def test_a_model_whose_tracks_have_no_names_here_is_told(
    served: Served, tmp_path, monkeypatch, caplog
):
    monkeypatch.setenv("REDRAFT_CACHE", str(tmp_path))
    config = served.model.config
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, file="playlists"))
    model = redraft.Model(dataclasses.replace(served.model.trained, config=config))
    with visiting({"tiny": Served.of(model)}) as client:
        [told] = client.get("/api/models").json()["models"]
        assert "names of its tracks" in told["trouble"] and told["examples"] == {}
        assert refusal(post(client, "playlists/look", tracks=[1])) == told["trouble"]
    assert "redraft data playlists" in caplog.text and str(tmp_path) not in told["trouble"]
