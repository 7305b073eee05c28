"""A picture of every tab, as they stand in docs/screenshots: python tests/web/screenshots.py

By the models that come with the package; the same models and seed draw the same.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image
from visit import chromium, drag, says, serving

FOLDER = Path(__file__).parents[2] / "docs" / "screenshots"
LARGEST = 200_000
"""Bytes of a picture."""
SEED = "1"


def seeded(page: Any, tab: str) -> None:
    details = page.locator(f"#{tab} details")
    details.locator("summary").click()
    page.fill(f"#{tab} [name=seed]", SEED)
    details.locator("summary").click()


def molecules(page: Any) -> None:
    seeded(page, "molecules")
    page.fill("[name=smiles]", "CC(=O)Nc1ccc(O)cc")
    page.wait_for_selector(".verdict.bad")
    page.click("[data-do=repair]")
    says(page, "Repaired")


def stories(page: Any) -> None:
    seeded(page, "stories")
    page.select_option("#stories [name=example]", label="a lost ball")
    words = page.locator("#stories .words [role=option]")
    words.filter(has_text="cry").wait_for()
    words.nth(25).click()
    drag(page, words.nth(33), words.nth(42))
    page.click("#stories [data-do=infill]")
    says(page, "drawn")


def playlists(page: Any) -> None:
    seeded(page, "playlists")
    tracks = page.locator("#playlists .playlist [role=option]")
    tracks.nth(3).wait_for()
    page.click("#playlists [data-do=continue]")
    says(page, "Shares of")


def noise(page: Any) -> None:
    page.wait_for_selector(".map td[tabindex='0']")
    page.select_option("[name=token]", "C")


TABS: dict[str, Callable[[Any], None]] = {
    "molecules": molecules,
    "stories": stories,
    "playlists": playlists,
    "noise": noise,
}


def picture(page: Any, address: str, tab: str, file: Path) -> None:
    page.goto(f"{address}#{tab}")
    page.reload()
    page.wait_for_selector(f"#{tab}:not([hidden])")
    if page.locator(f"#{tab} .absent").count():
        return
    TABS[tab](page)
    page.mouse.move(0, 0)
    page.evaluate("document.activeElement.blur()")
    if page.locator(f"#{tab} .play").count():
        says(page, "Play", where=".play")  # the film has come to its end
    page.screenshot(path=file, full_page=True)
    with Image.open(file) as shot:
        shot.convert("RGB").quantize(128).save(file, optimize=True)
    size = file.stat().st_size
    assert size <= LARGEST, f"{file} has {size:,} bytes, at most {LARGEST:,} are meant"
    print(f"{file}  {size:,} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description="A picture of every tab.")
    parser.add_argument("--out", type=Path, default=FOLDER)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with serving() as address, chromium() as browser:
        for name, width, height in (("", 1180, 800), ("-phone", 390, 844)):
            view = {"width": width, "height": height}
            page = browser.new_page(viewport=view, reduced_motion="reduce")
            for tab in TABS:
                picture(page, address, tab, given.out / f"{tab}{name}.png")
            page.close()


if __name__ == "__main__":
    main()
