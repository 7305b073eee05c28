"""A report in a real browser, opened from the disk: part of `make test-web`."""

import re
from pathlib import Path
from typing import Any

import pytest
from visit import watched

import redraft
from redraft.experiments.noise import kernel_of
from redraft.report.page import page as report
from redraft.report.runs import gather

SHIPPED = Path(redraft.__file__).parent / "models" / "molecules"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the model that comes with the package."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(report(gather([SHIPPED], Path("nowhere"), 0), 0).text, encoding="utf-8")
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)], ids=["desktop", "phone"])
def test_a_cell_of_a_noise_map_tells_its_probability(
    browser: Any, file: Path, width: int, height: int, scheme: str
):
    asked: list[str] = []
    with watched(browser, width, height, color_scheme=scheme) as page:
        page.on("request", lambda request: asked.append(request.url))
        page.goto(file.as_uri())
        cells = page.locator(".cells").first
        cells.scroll_into_view_if_needed()
        box = cells.bounding_box()
        for x, y in ((0.02, 0.3), (0.5, 0.02), (0.97, 0.6)):
            page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
            tip = page.locator("#tip")
            tip.wait_for(state="visible")
            told = re.fullmatch(r"(\S+) → (\S+), t = 1: ([\d.e-]+), .*", tip.inner_text())
            assert told is not None, tip.inner_text()
            assert float(told[3]) == pytest.approx(probability(told[1], told[2]), rel=0.01)
        page.mouse.move(2, 2)
        tip.wait_for(state="hidden")
    assert asked == [file.as_uri()], "nothing else is fetched"


def probability(before: str, after: str) -> float:
    """Of M_1, by the kernel itself."""
    kernel = kernel_of(redraft.load("molecules"))
    assert kernel is not None
    i, j = (kernel.tokens.index(name) for name in (before, after))
    Q = kernel.Q[0]
    return float(Q[i, j] / (Q[i].sum() - Q[i, i]))
