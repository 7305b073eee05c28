"""The page in a real browser: `make test-web`. Not part of `make test`, hence its name.

Every test fails on an error in the console, on an exception of the page, and on an answer of 500.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from served import playlist_model, story_model
from visit import drag, says, serving, watched


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Models that know next to nothing: one of stories, with many steps to watch, and one of
    playlists."""
    folder = tmp_path_factory.mktemp("runs")
    story_model(folder / "stories", "mdlm", T=200, vocabulary=620)
    playlist_model(folder / "playlists")
    return folder


@pytest.fixture(scope="module")
def address(runs: Path) -> Iterator[str]:
    with serving("molecules", str(runs / "stories"), str(runs / "playlists")) as address:
        yield address


@pytest.fixture(params=[(1280, 900), (390, 844)], ids=["desktop", "phone"])
def page(browser: Any, address: str, request: pytest.FixtureRequest) -> Iterator[Any]:
    with watched(browser, *request.param) as page:
        page.goto(address)
        page.wait_for_selector(".given svg")
        yield page


def test_a_broken_molecule_is_repaired(page: Any):
    page.fill("[name=smiles]", "CC(=O)Nc1ccc(O)cc")
    page.wait_for_selector(".verdict.bad")
    page.click("[data-do=repair]")
    says(page, "Repaired with 1 edit")
    assert page.inner_text(".candidate >> nth=0 >> .mono") == "CC(=O)Nc1ccc(O)cc1"
    says(page, "Play", where=".play")
    page.focus(".slider")
    page.keyboard.press("Home")
    assert page.inner_text(".where").endswith("as given")
    assert page.text_content(".current") == "CC(=O)Nc1ccc(O)cc"
    page.keyboard.press("End")
    assert page.text_content(".current") == "CC(=O)Nc1ccc(O)cc1"


def test_what_is_broken_here_can_be_repaired_and_revised(page: Any):
    page.select_option("[name=example]", label="caffeine")
    page.wait_for_selector(".verdict.good")
    page.click("[data-do=break]")
    says(page, "Broken by one random edit")
    page.click("[data-do=repair]")
    says(page, "Repaired")
    assert "before it was broken" in page.inner_text(".against")
    page.select_option("[name=example]", label="aspirin")
    page.click("[data-do=revise]")
    says(page, "candidates")
    assert page.locator(".candidate").count() == 4


def test_a_cancelled_computation_lets_the_next_one_begin(page: Any):
    page.click("summary")
    page.select_option("[name=n]", "6")
    page.click("[data-do=sample]")
    page.wait_for_selector(".tokens li")
    page.keyboard.press("Escape")
    says(page, "Cancelled")
    page.click("[data-do=repair]")
    says(page, "valid as it is")


def test_a_reload_in_the_middle(page: Any):
    page.click("[data-do=sample]")
    page.wait_for_selector(".tokens li")
    page.reload()
    page.wait_for_selector(".given svg")
    page.click("[data-do=repair]")
    says(page, "valid as it is")


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", "<img/src=x/onerror=alert(1)>"])
def test_scripts_are_text(text: str, page: Any):
    page.fill("[name=smiles]", text)
    page.wait_for_selector(".verdict.bad")
    page.click("[data-do=repair]")
    says(page, "Not repaired")
    assert page.locator("main script, main img").count() == 0


def test_a_megabyte_is_cut_and_told(page: Any):
    page.fill("[name=smiles]", "C" * 1_000_000)
    says(page, "the model takes at most", where=".verdict")


EVERYBODY = """async () => Promise.all([...Array(20).keys()].map(async (seed) => {
  const body = JSON.stringify({ model: "molecules", n: 1, steps: 10, seed });
  const headers = { "Content-Type": "application/json" };
  const answer = await fetch("api/molecules/sample", { method: "POST", headers, body });
  return (await answer.text()).includes('"kind": "done"');
}))"""


def test_twenty_at_once(page: Any):
    assert page.evaluate(EVERYBODY) == [True] * 20


def test_the_noise_can_be_read_by_mouse_and_by_keys(page: Any):
    page.focus("[role=tab][aria-selected=true]")
    page.keyboard.press("End")
    page.wait_for_selector(".map td[tabindex='0']")
    reading = page.inner_text(".reading")
    assert "uniform" in reading
    page.focus(".map td[tabindex='0']")
    page.keyboard.press("ArrowDown")
    assert page.inner_text(".reading") != reading
    page.hover(".map td[data-i='3'][data-j='5']")
    assert page.inner_text(".reading") == page.get_attribute(
        ".map td[data-i='3'][data-j='5']", "aria-label"
    )
    before = page.inner_text(".bars")
    page.select_option("[name=token]", "C")
    assert page.inner_text(".bars") != before
    page.focus("[name=t]")
    page.keyboard.press("End")
    says(page, "t = 50 of 50", where="[name=shown]")


# ------------------------------------------------------------------ stories

STORY = "Once upon a time there was a little girl named Anna."


def story(page: Any, text: str = STORY, word: str = "Anna") -> Any:
    """The words of a text, one of which the example does not have."""
    page.click("#tab-stories")
    page.fill("[name=text]", text)
    words = page.locator("#stories .words [role=option]")
    words.filter(has_text=word).wait_for()
    return words


def hidden(page: Any) -> list[str]:
    return page.locator("#stories .words [aria-selected=true]").all_inner_texts()


def test_hidden_words_are_filled_in(page: Any):
    words = story(page)
    assert words.all_inner_texts() == STORY.replace(".", " .").split()
    words.nth(2).click()
    drag(page, words.nth(7), words.nth(9))
    assert hidden(page) == ["a", "little", "girl", "named"]
    words.nth(8).click()  # and back
    page.click("#stories [data-do=infill]")
    says(page, "4 drawn")
    alternative = page.locator("#stories .candidates .text").first
    assert alternative.inner_text().startswith("Once upon") and alternative.locator("ins").count()
    says(page, "Play", where=".play")
    page.focus("#stories .slider")
    page.keyboard.press("Home")
    assert page.locator("#stories .tokens .masked").count() >= 3
    page.keyboard.press("End")
    assert page.locator("#stories .tokens .masked").count() == 0
    text = alternative.inner_text()
    page.click("#stories .candidates li >> nth=0 >> text=Take it")
    says(page, "Taken")
    assert page.input_value("[name=text]").split() == text.split()


def test_words_are_hidden_by_keys_alone(page: Any):
    words = story(page)
    words.first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    assert hidden(page) == ["upon", "a", "time"]
    page.keyboard.press("Enter")  # back again
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    assert hidden(page) == ["upon", "a", "."]
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    moved = page.evaluate("document.activeElement.textContent")
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.textContent") == "Once"
    assert moved == "Once" or page.viewport_size["width"] < 1280
    page.focus("#stories [data-do=infill]")
    page.keyboard.press("Enter")
    says(page, "4 drawn")


def test_a_range_by_shift_and_nothing_hidden(page: Any):
    words = story(page)
    words.nth(1).click()
    words.nth(4).click(modifiers=["Shift"])
    assert hidden(page) == ["upon", "a", "time", "there"]
    says(page, "4 words hidden", where=".hidden-words")
    page.fill("[name=text]", STORY.replace("girl", "dog"))
    words.filter(has_text="dog").wait_for()
    assert hidden(page) == ["upon", "a", "time", "there"]  # an edit elsewhere leaves them hidden
    page.click("#stories [data-do=clear]")
    page.click("#stories [data-do=infill]")
    says(page, "Hide some words first")


def test_a_revision_of_a_story_is_a_diff(page: Any):
    story(page)
    page.click("#stories [data-do=revise]")
    says(page, "as it was given")
    assert page.locator("#stories .candidates ins").count()
    assert page.locator("#stories .candidates del").count()


def test_a_story_is_cancelled_and_the_next_one_begins(page: Any):
    words = story(page)
    page.click("#stories [data-do=sample]")
    page.wait_for_selector("#stories .tokens li")
    page.click("#stories .cancel")
    says(page, "Cancelled")
    words.nth(1).click()
    page.click("#stories summary")
    page.fill("#stories [name=steps]", "5")
    page.click("#stories [data-do=infill]")
    says(page, "4 drawn")


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", "<img src=x onerror=alert(1)>"])
def test_scripts_in_a_story_are_text(text: str, page: Any):
    words = story(page, text, "alert")
    words.first.click()
    page.click("#stories [data-do=infill]")
    says(page, "4 drawn")
    assert page.locator("main script, main img").count() == 0


def test_a_megabyte_of_story_is_told(page: Any):
    page.click("#tab-stories")
    page.fill("[name=text]", "word " * 200_000)
    says(page, "at most", where="#remark")
    page.click("#stories [data-do=infill]")
    says(page, "at most")


WRONG = [
    ("stories/infill", {"text": 3, "hidden": "all"}),
    ("stories/infill", {"text": "a" * 1_000_000}),
    ("stories/revise", {"text": ["a"], "strength": "much"}),
    ("playlists/continue", {"tracks": ["a"]}),
    ("playlists/search", {"text": {"a": 1}}),
    ("playlists/redraft", {"tracks": [10**12], "at": [0]}),
]


def test_wrong_types_are_refused(page: Any, address: str):
    for path, form in WRONG:
        body = {"model": path.split("/")[0], **form}
        assert 400 <= page.request.post(f"{address}api/{path}", data=body).status < 500


def test_where_no_model_is_served_the_tab_says_how_to_get_one(browser: Any, runs: Path):
    with serving(str(runs / "stories")) as address:
        page = browser.new_page()
        page.goto(address)
        page.wait_for_selector("#stories .words [role=option]")  # what is served comes first
        page.click("#tab-molecules")
        says(page, "redraft serve molecules", where=".absent")
        page.click("#tab-playlists")
        says(page, "redraft serve playlists", where=".absent")
        page.close()


# ------------------------------------------------------------------ playlists


def playlist(page: Any) -> Any:
    page.click("#tab-playlists")
    assert page.input_value("#playlists [name=temperature]") == "0.7"
    tracks = page.locator("#playlists .playlist [role=option]")
    tracks.first.wait_for()
    return tracks


def test_a_playlist_is_continued(page: Any):
    tracks = playlist(page)
    given = tracks.count()
    page.click("#playlists [data-do=continue]")
    says(page, "Shares of 20 draws")
    proposals = page.locator("#playlists .candidates li")
    first = proposals.first.locator(".text").inner_text()
    page.click("#playlists >> text=Take the best")
    assert tracks.count() == given + 4 and first in tracks.nth(given).inner_text()
    says(page, "Play", where=".play")
    page.focus("#playlists .slider")
    page.keyboard.press("Home")
    assert page.locator("#playlists .tokens li").count() == 4


def test_marked_tracks_are_redrafted_by_keys(page: Any):
    tracks = playlist(page)
    before = tracks.all_inner_texts()
    tracks.first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    page.focus("#playlists [data-do=redraft]")
    page.keyboard.press("Enter")
    says(page, "1 of 1 places redrafted")
    page.locator("#playlists .candidates >> text=Take it").first.press("Enter")
    after = tracks.all_inner_texts()
    assert [n for n, pair in enumerate(zip(before, after, strict=True)) if len({*pair}) > 1] == [1]


def test_tracks_are_searched_added_and_removed(page: Any):
    tracks = playlist(page)
    given = tracks.count()
    page.fill("[name=search]", "lost ri")
    page.locator("#playlists .found button", has_text="Lost River").first.wait_for()
    assert 1 <= page.locator("#playlists .found button").count() <= 20
    page.press("[name=search]", "Enter")
    assert tracks.count() == given + 1 and "Lost River" in tracks.last.inner_text()
    tracks.last.click()
    page.click("#playlists [data-do=remove]")
    assert tracks.count() == given
    page.fill("[name=search]", "<script>alert(1)</script>")
    says(page, "No track is called so", where="#found-how")
    page.click("#playlists [data-do=clear]")
    page.click("#playlists [data-do=continue]")
    says(page, "at least 4 tracks")
