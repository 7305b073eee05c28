"""`redraft playlist`: names for tracks, votes for next ones, and repeats that are replaced."""

import io
import json
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mistakes import message
from tiny import tiny

import redraft
from redraft import playlist
from redraft.cli import main
from redraft.commands.playlist import Continue, Repair
from redraft.config import DataConfig
from redraft.data import playlists as data
from redraft.domains import prepare_playlists
from redraft.evaluation.playlists import smoothness
from redraft.playlist import TEMPERATURE, Curator, Names, listed, windows_of
from redraft.sampler import Sampler
from redraft.tokenizers.base import MASK

TRACKS = 90
TWIN = 55
"""Has the name of track 0."""


def write(file: Path, lists: int = 60) -> Path:
    """Tracks of nine artists, and lists that walk among them."""
    rng = np.random.default_rng(lists)
    rows: list[dict] = []
    for i in range(TRACKS):
        name = {"artist": f"Artist {i % 9}", "title": f"Song {i}"}
        if i in (0, TWIN):
            name = {"artist": "Beyoncé", "title": "Halo"}
        audio = {"energy": rng.random(), "valence": rng.random()} if i % 4 else None
        rows.append({"index": i, **name, "audio": audio, "tags": []})
    for i in range(lists):
        own = (i + np.cumsum(rng.integers(-3, 4, size=60))) % TRACKS
        rows.append({"kind": "playlist", "group": f"list {i}", "tracks": own.tolist()})
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REDRAFT_CACHE", str(folder))
        prepare_playlists(data.Request((str(write(folder / "made.jsonl")),)))
        yield folder


def trained(method: str, folder: Path, config: DataConfig) -> Path:
    few = tiny(method, steps=4, batch=4, validate=4, log_every=2, device="cpu")
    redraft.train(replace(few, data=config), folder)
    return folder


@pytest.fixture(scope="module")
def run(cache, tmp_path_factory) -> Path:
    config = DataConfig(domain="playlists", file="playlists", max_length=150)
    return trained("mdlm", tmp_path_factory.mktemp("runs") / "mdlm", config)


@pytest.fixture(scope="module")
def model(run: Path) -> redraft.Model:
    return redraft.load(run, "cpu")


@pytest.fixture(scope="module")
def curator(model) -> Curator:
    return Curator.of(model, draws=4)


@pytest.fixture(scope="module")
def names(curator) -> Names:
    return curator.names


@pytest.fixture(scope="module")
def alone(curator) -> list[int]:
    """Tracks whose codes no other track has, and whose name neither."""
    tracks = range(TRACKS)
    sizes = [len(curator.tokenizer.tracks(tuple(row))) for row in curator.tokenizer.codes.tolist()]
    called = Counter(map(curator.names.twin, tracks))
    return [track for track in tracks if sizes[track] == called[curator.names.twin(track)] == 1]


class Script:
    """Draws that are known beforehand: what stands at hidden places is told row by row."""

    def __init__(self, tokenizer):
        self.tokenizer, self.answers, self.read = tokenizer, [], []

    def infill(self, x, mask, *_):
        self.read.append((x[0].view(-1, 3).numpy(), mask[0].view(-1, 3).all(-1).numpy()))
        rows = [self.tokenizer.ids(self.answers.pop(0)) for _ in x]
        return x.masked_scatter(mask, torch.tensor(rows))


@pytest.fixture
def script(curator, monkeypatch) -> Script:
    found = Script(curator.tokenizer)
    monkeypatch.setattr(Sampler, "infill", lambda _, *given: found.infill(*given))
    return found


def ids(curator: Curator, tracks: Iterable[int]) -> list[str]:
    return [curator.names[track].id for track in tracks]


# ------------------------------------------------------------------ names


def test_a_track_has_many_names(names):
    track = names.find("17")
    for text in ("Artist 8 - Song 17", "artist 8 – SONG 17", "song 17", "ARTIST 8: Song_17"):
        assert names.find(text) == track
    assert str(names[track]) == "Artist 8 - Song 17" and names[track].id == "17"
    assert names.find("Song: 17!") == track  # a title, however it is written
    assert names.find("artist 2 - song 2") != names.find("artist 2 song 20")
    assert names.find("beyonce ha") == names.twin(names.find("0")) == names.twin(names.find("55"))
    assert names.twin(track) == track


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("90", "there is no track 90: ids are from 0 to 89"),
        ("-1", "there is no track -1"),
        ("9" * 5000, "there is no track 99999999999999999999: ids"),
        ("Soong 17", "the nearest are 'Artist 8 - Song 17'"),
        ("artist 8", "begins 10 tracks, such as 'Artist 8 - Song"),
        ("Artst 8 - Sonk 17", "the nearest are 'Artist 8 - Song 17'"),
        ("qqq", "a title or 'artist - title' of one of 90 tracks"),
        ("", "unknown track ''"),
    ],
)
def test_an_unknown_track_is_told_with_what_is_near(names, text, said):
    assert said in message(names.find, text)


def test_a_list_is_lines_or_json():
    assert listed("\n a - b \r\n\n[c] - d\n") == ["a - b", "[c] - d"]
    assert listed('[1, "a - b", {"id": "7", "title": "x"}]') == ["1", "a - b", "7"]
    assert listed("") == []
    nested = "[" * 9999 + "]" * 9999
    for text in (nested, "[1, 2,]", "[[1]]", "[true]", "[1.5]", "[null]", '[{"title": "x"}]'):
        assert "JSON list" in message(listed, text)


# ------------------------------------------------------------------ votes


def test_votes_are_counted_by_draw_and_go_to_new_tracks(curator, alone):
    a, b, c, d = alone[:4]
    codes = {track: tuple(curator.tokenizer.codes[track].tolist()) for track in alone[:4]}
    draws = [[codes[i] for i in own] for own in ([a, a, d], [b, a, d], [b, c, d], [b, b, d])]
    found = curator.votes([*draws, [(None, 0, 0)] * 3], [d])
    assert [(vote.track, vote.share) for vote in found] == [(b, 0.6), (a, 0.4), (c, 0.2)]
    assert {vote.sharing for vote in found} == {1}


def test_codes_mean_the_most_played_track_that_is_not_there_yet(curator, names, monkeypatch):
    """Three tracks share these codes, and the first has the name of one that is there."""
    shared = [names.find("55"), 1, 2]
    monkeypatch.setattr(type(curator.tokenizer), "tracks", lambda _, triplet: shared)
    for playlist_, meant in (([3], shared[0]), ([names.find("0")], 1), ([*shared[:2]], 2)):
        (vote,) = curator.votes([[(5, 6, 7)]], playlist_)
        assert (vote.track, vote.sharing) == (meant, 3)
    assert curator.votes([[(5, 6, 7)]], shared) == []


# ------------------------------------------------------------------ next tracks


@pytest.mark.parametrize("given", [4, 47, 48, 70])
def test_the_last_tracks_are_read_and_the_next_are_ranked(curator, script, alone, given):
    tracks = np.resize(alone[10:], given).tolist()
    a, b, c, *_ = alone
    script.answers = [[a, b, b], [b, a, c], [b, b, b], [b, a, a]]
    found = curator.continued(tracks, n=3, alternatives=2, seed=0)
    ((read, hidden),) = script.read
    assert hidden.tolist() == [False] * min(given, 47) + [True] * 3
    assert (read[hidden] == MASK).all()
    expected = curator.tokenizer.ids(tracks[-47:])
    assert read[~hidden].ravel().tolist() == expected
    assert (found.given, found.read, found.draws, found.known) == (given, min(given, 47), 4, 1)
    assert [track.share for track in found.tracks] == [1, 0.75, 0.25]
    assert [track.id for track in found.tracks] == ids(curator, (b, a, c))
    assert found.alternatives == []


# ------------------------------------------------------------------ repair


def test_what_comes_again_is_replaced_and_nothing_else(curator, script, alone):
    a, b, c, d, new, other = alone[:6]
    tracks = [a, b, a, c, d, b]
    script.answers = [[a, new], [a, b], [new, new], [other, other]]
    found = curator.repaired(tracks, seed=0)
    ((read, hidden),) = script.read
    assert np.flatnonzero(hidden).tolist() == [2, 5]
    assert read.ravel().tolist() == curator.tokenizer.ids(tracks)
    assert [(change.place, change.reason) for change in found.changes] == [
        (3, "repeats 1"),
        (6, "repeats 2"),
    ]
    after = [a, b, new, c, d, other]  # what a draw has put elsewhere is there already
    assert [track.id for track in found.after] == ids(curator, after)
    assert [track.id for track in found.before] == ids(curator, tracks)
    shares = [change.after and change.after.share for change in found.changes]
    assert shares == [0.25, 0.25]


def test_two_tracks_of_one_name_are_a_repeat(curator, names):
    tracks = [names.find("0"), 3, 4, names.find("55"), 3]
    places = {tracks.index(3, 2): "repeats 2", 3: "repeats 1"}
    assert curator.repeats(tracks) == places


def test_named_places_are_redrafted_although_they_are_not_repeated(curator, script, alone):
    tracks, new = alone[1:7], alone[0]
    script.answers = [[new]] * 3 + [tracks[1:2]]
    found = curator.repaired(tracks, at=[2], seed=0)
    assert [change.reason for change in found.changes] == ["named"]
    assert [found.after[1].id] == ids(curator, [new])
    script.answers = [tracks[1:2]] * 4  # only what is there already
    (change,) = (same := curator.repaired(tracks, at=[2], seed=0)).changes
    assert change.after is None and same.after == same.before


def test_a_long_playlist_is_repaired_around_its_places(curator, script, alone):
    """Of two places far apart each is read in its own window, the first one repaired by then."""
    tracks, new = np.resize(alone[2:], 130).tolist(), alone[:2]
    script.answers = [[new[0]]] * 4 + [[new[1]]] * 4
    found = curator.repaired(tracks, at=[5, 120], seed=0)
    assert [len(read) for read, _ in script.read] == [50, 50]
    first, second = (np.flatnonzero(hidden).tolist() for _, hidden in script.read)
    assert (first, second) == ([4], [119 - 80])
    assert script.read[1][0].ravel().tolist() == curator.tokenizer.ids(tracks[80:])
    assert [found.after[i].id for i in (4, 119)] == ids(curator, new)


@given(st.data(), st.integers(8, 60), st.integers(4, 50))
def test_windows_have_every_place_once_and_its_surroundings(draw, n, most):
    places = sorted(draw.draw(st.sets(st.integers(0, n - 1), min_size=1)))
    found = list(windows_of(places, n, most))
    assert [place for _, own in found for place in own] == places
    for window, own in found:
        assert len(window) == min(n, most) and window.start >= 0 and window.stop <= n
        least = most // 4 - 1
        for place in own:
            assert place - window.start >= min(least, place)
            assert window.stop - 1 - place >= min(least, n - 1 - place)


def test_how_it_sounds_is_told_where_it_is_known(curator, script, alone):
    catalogue = curator.names.catalogue
    sounds = catalogue.by_triplet(curator.tokenizer.codes)

    def smooth(tracks: list[int]) -> float:
        return smoothness(sounds.audio_of(map(tuple, curator.tokenizer.codes[tracks].tolist())))

    new, *tracks = [track for track in alone if catalogue.heard[track]][:6]
    script.answers = [[new]] * 8
    found = curator.repaired(tracks, at=[3], seed=0)
    assert found.smoothness_before == pytest.approx(smooth(tracks))
    assert found.smoothness_after == pytest.approx(smooth([*tracks[:2], new, *tracks[3:]]))
    assert found.smoothness_before != found.smoothness_after
    silent = [track for track in alone if not catalogue.heard[track]][:5]
    assert curator.repaired(silent, at=[1], seed=0).smoothness_before is None


# ------------------------------------------------------------------ draws of a model


@pytest.fixture(scope="module")
def made_up(tmp_path_factory) -> Path:
    """A run on playlists that are not prepared."""
    folder = tmp_path_factory.mktemp("runs") / "made-up"
    return trained("vsdd", folder, DataConfig(domain="playlists", synthetic=40))


@pytest.mark.parametrize("strength", [0.4, 1.0])
def test_only_free_tokens_are_drawn_and_a_seed_tells_how(made_up, strength):
    model = redraft.load(made_up, "cpu")
    row = np.array(model.tokenizer.ids(range(20)))
    free = np.repeat(np.isin(np.arange(20), (3, 11)), 3)

    def draw(seed: int) -> np.ndarray:
        own = (model, model.sampler(), [row] * 6, [free] * 6, seed)
        triplets = playlist.drawn(*own, strength=strength)
        return np.array(triplets, float).reshape(6, -1)

    first, again, other = draw(0), draw(0), draw(1)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other, equal_nan=True)
    kept = np.array(model.tokenizer.decode(row.tolist())).ravel()
    assert (first[:, ~free] == kept[~free]).all()
    assert (first[:, free] != kept[free]).any()


def test_below_full_strength_a_draw_begins_from_what_stands_there(model, monkeypatch):
    """Without noise a model of masks has nothing to draw."""
    process = type(model.trained.process)
    monkeypatch.setattr(process, "corrupt", lambda self, x0, t, generator: x0)
    row = np.array(model.tokenizer.ids(range(8)))
    own = (model, model.sampler(), [row] * 3, [row > 0] * 3, 0)
    same = [model.tokenizer.decode(row.tolist())] * 3
    assert playlist.drawn(*own, strength=0.5) == same
    assert playlist.drawn(*own, strength=1.0) != same


def test_playlists_that_were_made_up_have_names_and_numbers(made_up, capsys, tmp_path: Path):
    file = tmp_path / "list.json"
    file.write_text("[5, 6, 7, 8, 5]")
    code = main(["playlist", "repair", str(file), "--model", str(made_up), "--seed", "0"])
    lines = capsys.readouterr().out.splitlines()
    name = str(playlist.Names.of(redraft.load(made_up, "cpu"))[5])
    assert name.endswith(" - Lost River")
    assert lines[0] == f"    1  {name}" and lines[4][0] == "-!"[code]
    assert f"{name}  (repeats 1" in lines[4]
    file.write_text("[5, 6, 7, 2000]")
    assert main(["playlist", "repair", str(file), "--model", str(made_up)]) == 2
    assert "ids are from 0 to 1999" in capsys.readouterr().err


# ------------------------------------------------------------------ the command


@pytest.fixture
def mine(alone, names, tmp_path: Path) -> Path:
    file = tmp_path / "mine.txt"
    tracks = [*alone[5:10], alone[6]]
    file.write_text("".join(f"{names[track]}\n" for track in tracks))
    return file


def test_continue_prints_artists_and_titles(run, mine, script, alone, names, capsys, monkeypatch):
    a, b = alone[:2]
    script.answers = [[a, b], [a, a]]
    flags = ["--model", str(run), "-n", "2", "--draws", "2"]
    assert main(["playlist", "continue", str(mine), *flags]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [f" 1  100.0%  {names[a]}", f" 2   50.0%  {names[b]}"]
    assert err.startswith("shares of 2 draws, given the last 6 of 6 tracks; 100% of what was")
    script.answers = [[b], [b]]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(mine.read_bytes())))
    flags = ["--model", str(run), "-n", "1", "--draws", "2", "--alternatives", "1", "--json"]
    assert main(["playlist", "continue", *flags]) == 1  # there is no second one
    out, err = capsys.readouterr()
    assert err == "redraft: only 1 of 2 were found in 2 draws\n"
    found = json.loads(out)
    assert found["tracks"] == [{**vars(names[b]), "share": 1.0, "sharing": 1}]


def test_repair_prints_what_was_and_what_is(run, mine, script, alone, names, capsys):
    new = alone[0]
    script.answers = [[new]] * 20
    assert main(["playlist", "repair", str(mine), "--model", str(run)]) == 0
    out, err = capsys.readouterr()
    *kept, gone, come = out.splitlines()
    assert [line[7:] for line in kept] == mine.read_text().splitlines()[:5]
    assert gone == f"-   6  {names[alone[6]]}  (repeats 2)"
    assert come == f"+   6  {names[new]}  (100.0% of 20 draws)"
    assert err.startswith("1 of 1 places redrafted; smoothness 0.")
    flags = ["--model", str(run), "--at", "1, 3", "--draws", "1", "--json"]
    script.answers = [[new, alone[1]]]
    assert main(["playlist", "repair", str(mine), *flags]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [change["place"] for change in found["changes"]] == [1, 3]
    after = [names[track].id for track in (new, alone[6], alone[1])]
    assert listed(json.dumps(found["after"]))[:3] == after


def test_a_repair_that_finds_nothing_says_so(run, mine, script, alone, capsys):
    script.answers = [[alone[5]]] * 2  # which is there already
    flags = ["--model", str(run), "--draws", "2"]
    assert main(["playlist", "repair", str(mine), *flags]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[-1].startswith("!   6")
    assert err.endswith("\nredraft: nothing could be redrafted in 2 draws\n")


def test_a_playlist_without_repeats_is_left_alone(run, mine, script, capsys):
    mine.write_text("\n".join(mine.read_text().splitlines()[:5]))
    assert main(["playlist", "repair", str(mine), "--model", str(run)]) == 0
    out, err = capsys.readouterr()
    assert [line[7:] for line in out.splitlines()] == mine.read_text().splitlines()
    assert err.startswith("no track is repeated") and script.read == []


def test_likely_tracks_are_preferred_unless_one_wants_otherwise(model):
    assert Continue(model="m").temperature == Repair(model="m").temperature == TEMPERATURE < 1
    assert Curator.of(model).sampler.temperature == TEMPERATURE
    assert Curator.of(model, temperature=1).sampler.temperature == 1


@pytest.mark.parametrize(
    ("word", "flags", "said"),
    [
        ("continue", ["-n", "0"], "n must be in 1..46, got 0"),
        ("continue", ["-n", "47"], "n must be in 1..46, got 47"),
        ("continue", ["--alternatives", "-1"], "alternatives must be at least 0"),
        ("continue", ["--draws", "0"], "draws must be at least 1, got 0"),
        ("continue", ["--temperature", "-1"], "temperature must be >= 0"),
        ("repair", ["--at", "3,x"], "--at takes places with commas between them, got '3,x'"),
        ("repair", ["--at", "7"], "places are from 1 to 6, got 7"),
        ("repair", ["--at", "0"], "places are from 1 to 6, got 0"),
        ("repair", ["--at", "1,2,3,4,5,6"], "not all"),
        ("repair", ["--strength", "0"], "strength must be above 0 and at most 1, got 0"),
        ("repair", ["--strength", "1.5"], "strength must be above 0 and at most 1, got 1.5"),
    ],
)
def test_mistakes_in_flags(run, mine, capsys, word, flags, said):
    assert main(["playlist", word, str(mine), "--model", str(run), *flags]) == 2
    out, err = capsys.readouterr()
    assert out == "" and said in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1\n2\n3\n", "at least 4 tracks is needed, got 3"),
        ("", "at least 4 tracks is needed, got 0"),
        ("1\n2\n3\n4 songs\n", "unknown track '4 songs'"),
        ("[1, 2, 3, 90]", "ids are from 0 to 89"),
    ],
)
@pytest.mark.parametrize("word", ["continue", "repair"])
def test_mistakes_in_playlists(run, capsys, monkeypatch, word, text, said):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert main(["playlist", word, "--model", str(run)]) == 2
    assert said in capsys.readouterr().err


def test_a_closed_standard_input_is_told(run, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    assert main(["playlist", "continue", "--model", str(run)]) == 2
    err = capsys.readouterr().err
    assert "pipe one in" in err and err.count("\n") == 1


def test_mistakes_in_models_and_files(run, mine, molecules, cache: Path, monkeypatch, tmp_path):
    def answer(model: Path, file: Path = mine) -> str:
        from redraft.commands.playlist import Continue

        return message(Continue(model=str(model), playlist=str(file), device="cpu").run)

    assert "no file" in answer(run, tmp_path / "absent.txt")
    assert "unknown run folder" in answer(tmp_path / "absent")
    assert "this model knows molecules" in answer(molecules)
    monkeypatch.setenv("REDRAFT_CACHE", str(tmp_path / "empty"))
    assert "no playlists are prepared" in answer(run)
    monkeypatch.setenv("REDRAFT_CACHE", str(tmp_path))
    shutil.copytree(cache / "playlists", tmp_path / "playlists")
    (tmp_path / "playlists" / "tracks.json.gz").unlink()
    assert "not what is known of the tracks" in answer(run)
    prepare_playlists(data.Request((str(write(tmp_path / "other.jsonl", lists=50)),)))
    assert "has learned from other playlists" in answer(run)


def test_codes_are_infilled_for_a_person_too(run: Path, capsys, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["infill", "0 1 [MASK] 3", "--model", str(run), "-n", "2", "--seed", "0"]) == 0
    for line in capsys.readouterr().out.splitlines():
        assert re.match(r" +\d+ %  .*\(\d+, \d+, \d+\) \(", line), line
