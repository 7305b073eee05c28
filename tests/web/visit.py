"""A server as a user starts it, and a browser before it."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from redraft.bench.serve import served

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def serving(*models: str) -> Iterator[str]:
    """Where `redraft serve` answers."""
    with served(*models) as (address, _):
        yield address


@contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        sandbox = [] if os.getuid() else ["--no-sandbox"]  # root has none
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=sandbox)
        yield browser
        browser.close()


@contextmanager
def watched(browser: Any, width: int, height: int, **more: Any) -> Iterator[Any]:
    """A page of which nobody complains: no error in the console, no failure, nothing too wide."""
    page = browser.new_page(viewport={"width": width, "height": height}, **more)
    page.set_default_timeout(15_000)
    complaints: list[str] = []
    page.on("console", lambda said: said.type == "error" and complaints.append(said.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append("a dialog") or dialog.dismiss())
    page.on("response", lambda got: got.status >= 500 and complaints.append(got.url))
    yield page
    overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    page.close()
    assert not complaints
    assert overflow <= 0, "the page is wider than the screen"


def says(page: Any, words: str, where: str = ".status") -> None:
    """Sooner or later, in the tab that is open; by a locator, for the page's own policy lets
    nobody evaluate strings."""
    page.locator(f".panel:not([hidden]) {where}", has_text=words).first.wait_for()


def drag(page: Any, first: Any, last: Any) -> None:
    first.scroll_into_view_if_needed()
    start, end = first.bounding_box(), last.bounding_box()
    page.mouse.move(start["x"] + 3, start["y"] + start["height"] / 2)
    page.mouse.down()
    page.mouse.move(end["x"] + 3, end["y"] + end["height"] / 2, steps=4)
    page.mouse.up()
