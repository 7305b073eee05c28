"""The page in a real browser: `make test-web`. Not part of `make test`, hence its name.

Every test fails on an error in the console, on an exception of the page, and on an answer of 500.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install playwright"
    )
    if CHROMIUM is None:
        pytest.skip("there is no chromium on the PATH: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        sandbox = [] if os.getuid() else ["--no-sandbox"]  # root has none
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=sandbox)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Where `redraft serve` answers, as a user starts it."""
    words = [sys.executable, "-m", "redraft", "serve", "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        found = re.search(r"http://\S+", server.stdout.readline())
        assert found is not None, "redraft serve said no address"
        yield found[0]
        server.terminate()


@pytest.fixture(params=[(1280, 900), (390, 844)], ids=["desktop", "phone"])
def page(browser: Any, address: str, request: pytest.FixtureRequest) -> Iterator[Any]:
    width, height = request.param
    page = browser.new_page(viewport={"width": width, "height": height})
    page.set_default_timeout(15_000)
    complaints: list[str] = []
    page.on("console", lambda said: said.type == "error" and complaints.append(said.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append("a dialog") or dialog.dismiss())
    page.on("response", lambda got: got.status >= 500 and complaints.append(got.url))
    page.goto(address)
    page.wait_for_selector(".given svg")
    yield page
    overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    page.close()
    assert not complaints
    assert overflow <= 0, "the page is wider than the screen"


def says(page: Any, words: str, where: str = ".status") -> None:
    """Sooner or later; by a locator, for the page's own policy lets nobody evaluate strings."""
    page.locator(where, has_text=words).wait_for()


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
  const answer = await fetch("api/sample", { method: "POST", headers, body });
  return (await answer.text()).includes('"kind": "done"');
}))"""


def test_twenty_at_once(page: Any):
    assert page.evaluate(EVERYBODY) == [True] * 20


def test_the_noise_can_be_read_by_mouse_and_by_keys(page: Any):
    page.focus("[role=tab][aria-selected=true]")
    page.keyboard.press("ArrowRight")
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
