"""Tables of the README and the docs say what the results say."""

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[1]
tables = runpy.run_path(str(ROOT / "scripts" / "tables"))


def test_every_table_is_up_to_date():
    assert tables["main"](check=True) == 0, "run python scripts/tables"


def test_a_stale_table_is_seen_and_renewed():
    page = "before\n<!-- table: train-molecules -->\n| old |\n<!-- end -->\nafter\n"
    new = tables["filled"](page)
    assert "| mdlm |" in new and "old" not in new
    assert new.startswith("before\n") and new.endswith("\nafter\n")
    assert tables["filled"](new) == new


def test_pages_name_only_tables_that_exist():
    for page in tables["PAGES"]:
        named = re.findall(r"<!-- table: (.*?) -->", (ROOT / page).read_text(encoding="utf-8"))
        assert named and set(named) <= set(tables["TABLES"])
