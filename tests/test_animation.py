"""The animation shows every step, and marks what changed."""

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from redraft.report.animation import animation
from redraft.tokenizers.base import EOS, PAD

TOKENS = ["[PAD]", "[MASK]", "[EOS]", "<b>", "a&b", "C", "O"]
SVG = "{http://www.w3.org/2000/svg}"
rows = st.lists(st.integers(EOS, len(TOKENS) - 1), min_size=5, max_size=5)


def pictured(text: str) -> str | None:
    return '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"></svg>' if text else None


@given(st.lists(rows, min_size=1, max_size=6))
def test_every_frame_is_there_and_what_changed_is_marked(drawn):
    frames = [(len(drawn) - n, [*row, PAD]) for n, row in enumerate(drawn)]
    root = ElementTree.fromstring(animation(frames, TOKENS, pictured, "<title> & more"))
    assert root.findtext(f"{SVG}title") == "<title> & more"
    groups = root.findall(f"{SVG}g")
    assert len(groups) == len(drawn)
    for n, (group, row) in enumerate(zip(groups, drawn, strict=True)):
        label, *words = [e for e in group.findall(f"{SVG}text") if e.text != "not valid yet"]
        assert label.text == f"t = {len(drawn) - n}"
        assert [word.text for word in words] == [TOKENS[i] for i in row]
        marked = [word.get("class") == "new" for word in words]
        before = drawn[max(n - 1, 0)]
        assert marked == [i != old for i, old in zip(row, before, strict=True)]
        assert (group.find(f"{SVG}svg") is None) == (row[0] == EOS)  # an empty text has no picture


def test_a_reader_who_wants_no_motion_sees_the_last_frame():
    text = animation([(2, [5]), (1, [6])], TOKENS, pictured, "two")
    still = text[text.index("prefers-reduced-motion") :]
    assert still.index("animation:none") < still.index(".f1{visibility:visible}")
