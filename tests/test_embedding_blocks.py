"""The pieces that a text is embedded in: all of it, bounded, overlapping, the same each time."""

import sys
from collections.abc import Callable
from itertools import pairwise
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.embedding import blocks
from perdure.embedding.blocks import BLOCK_CHARS, BLOCKS_MAX, OVERLAP_CHARS, Block, blocks_of
from perdure.testing.strategies import strings

WORDS = st.lists(
    st.sampled_from(("a", "word", "x" * 90, "y" * 300, "z" * 1_700, "日本語", "\ud800", "…")),
    max_size=40,
)
BLANKS = st.sampled_from((" ", "\n", "\n\n", "\t", "\u2003", " " * 50, "\n" * 900))


@st.composite
def long_texts(draw: st.DrawFn) -> str:
    """Texts of some pieces: words and blanks of all lengths."""
    words = draw(WORDS)
    many = draw(st.integers(1, 6))
    return "".join(word + draw(BLANKS) for _ in range(many) for word in words[:12])


ANY = long_texts() | strings(max_size=60) | st.integers(0, 6_000).map(lambda size: "x" * size)


def pieces(text: str) -> list[Block]:
    """The pieces of a text, with what holds of those of any text."""
    found = list(blocks_of(text))
    assert [each.part for each in found] == list(range(len(found)))
    assert len(found) <= BLOCKS_MAX
    for each in found:
        assert 0 <= each.start < each.end <= len(text)
        assert each.end - each.start <= BLOCK_CHARS
        assert text[each.start : each.end].strip()
    for one, other in pairwise(found):
        assert one.start < other.start
        assert one.end < other.end
    return found


@given(ANY)
def test_pieces_cover_the_text(text: str) -> None:
    """Each character that is no blank stands in a piece, unless there are too many pieces."""
    found = pieces(text)
    end = found[-1].end if len(found) == BLOCKS_MAX else len(text)
    inside = {at for each in found for at in range(each.start, each.end)}
    missed = [at for at in range(end) if at not in inside and not text[at].isspace()]
    assert missed == []


@given(ANY)
def test_pieces_overlap(text: str) -> None:
    """What stands at the edge of a piece stands within the next one, where there is text."""
    for one, other in pairwise(pieces(text)):
        if text[one.end : other.start].strip() or other.start < one.end:
            assert 0 < one.end - other.start <= OVERLAP_CHARS
        else:
            # Between them nothing is said for the length of a piece.
            assert text[one.end : other.start].isspace()


@given(ANY)
def test_the_same_text_is_cut_the_same(text: str) -> None:
    """Pieces depend on the text alone, and those of a beginning are those of the whole."""
    found = pieces(text)
    assert pieces(text) == found
    for each in found[:-1]:
        # A piece is known once the text behind it is longer than what is looked at.
        assert pieces(text[: each.start + BLOCK_CHARS + 1])[each.part] == each


@given(st.text("\t\n\r\x0b\x0c\x1c\x85 \u2028\u3000\xa0", max_size=30), st.integers(0, 200))
def test_a_blank_text_has_no_pieces(blank: str, times: int) -> None:
    """Of a text that says nothing nothing is embedded, however long it is."""
    assert list(blocks_of(blank * times)) == []


def test_a_short_text_is_one_piece() -> None:
    """A text that fits is one piece, blanks around it included."""
    for text in ("a", " a ", "x" * BLOCK_CHARS, "word " * (BLOCK_CHARS // 5)):
        assert list(blocks_of(text)) == [Block(0, 0, len(text))]


def test_pieces_end_and_begin_between_words() -> None:
    """No word is cut where a blank is near."""
    text = "word, " * 2_000
    for each in pieces(text):
        assert text[each.start : each.end].startswith("word")
        assert text[each.start : each.end].rstrip().endswith("word,")


def test_a_text_without_blanks_is_cut_evenly() -> None:
    """Where no blank is, pieces have their full length and overlap by as much as they may."""
    found = pieces("x" * 10_000)
    assert found[:3] == [
        Block(0, 0, BLOCK_CHARS),
        Block(1, BLOCK_CHARS - OVERLAP_CHARS, 2 * BLOCK_CHARS - OVERLAP_CHARS),
        Block(2, 2 * (BLOCK_CHARS - OVERLAP_CHARS), 3 * BLOCK_CHARS - 2 * OVERLAP_CHARS),
    ]
    assert found[-1].end == 10_000


def test_of_a_long_text_the_beginning_is_cut() -> None:
    """Of any text so many pieces are made at most, the first ones, and blanks count for none."""
    found = pieces("x" * 1_000_000)
    assert len(found) == BLOCKS_MAX
    assert found[-1].end > 40_000
    far = pieces("a" + "\n" * 500_000 + "b")
    assert len(far) == 2
    assert far[1].end == 500_002


def lines_run(call: Callable[[], Any]) -> int:
    """How many lines of the module are run."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if frame.f_code.co_filename != blocks.__file__:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize(
    "unit", ["x", "word ", " ", "x" * 900 + " ", "\n" * 900 + "x", "x" * 119 + " "]
)
def test_work_grows_with_the_text(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times the text is at most four times the work, a little aside."""
    monkeypatch.setattr(blocks, "BLOCKS_MAX", 10**9)

    def work(chars: int) -> int:
        text = unit * (chars // len(unit))
        return lines_run(lambda: list(blocks_of(text)))

    few = work(50_000)
    assert few <= 50_000
    assert work(200_000) <= 4.2 * few + 500
