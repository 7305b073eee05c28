"""A browser for all that is shown in one."""

from collections.abc import Iterator
from typing import Any

import pytest
from visit import CHROMIUM, chromium


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install playwright"
    )
    if CHROMIUM is None:
        pytest.skip("there is no chromium on the PATH: apt-get install chromium")
    with chromium() as browser:
        yield browser
