"""Snippets: a bounded piece of the text that shows what was found, in its own characters."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.catalog import Snippet, parse, snippet
from perdure.testing.strategies import strings
from tests.test_catalog_analysis import DENSE, NAMES, SHAPES, Index, calls


def marked(found: Snippet) -> list[str]:
    """The characters of each span."""
    return [found.text[first:last] for first, last in found.spans]


# --- what is marked -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "query", "spans"),
    [
        ("the Cat sat", "cat ", ["Cat"]),
        ("the Café is", "cafe", ["Café"]),
        ("the Cafe\u0301 is", "café", ["Cafe\u0301"]),
        ("cats and cat", "cat", ["cats", "cat"]),
        ("cats and cat", "cat ", ["cat"]),
        ("one two, three two", '"two three"', ["two, three"]),
        ("one two\n\t three", '"two three"', ["two\n\t three"]),
        ("call appendBatch now", "batch", ["Batch"]),
        ("call appendBatch now", "append_batch", ["appendBatch"]),
        ("call appendBatch now", '"append batch"', ["appendBatch"]),
        ("getItemList", "item_list", ["ItemList"]),
        ("see src/perdure/store.py:12", "perdure/store.py ", ["perdure/store.py"]),
        ("see src/perdure/store.py:12", "perdure/sto", ["perdure/store"]),
        ("in C++ or C", "c++", ["C++"]),
        ("1,234,567 rows", "1234567", ["1,234,567"]),
        ("v1.2.3", "1.2", ["1.2"]),
        ("重跑gen-itgc后", "itgc", ["itgc"]),
        ("重跑gen-itgc后", "gen-itgc", ["gen-itgc"]),
        ("这个悬空的指针", "悬空的", ["悬空的"]),
        ("日本の本", "本", ["本", "本"]),
        ("日本の本", "の本", ["の本"]),
        ("ｶﾞｲﾄﾞを", "ガイ", ["ｶﾞｲ"]),
        ("ก\uff9e", "ก", ["ก\uff9e"]),
        ("葛\U000e0100城", "葛", ["葛\U000e0100"]),
        ("\u1112\u1161\u11ab\u1100\u1173\u11af", "한", ["\u1112\u1161\u11ab"]),
        ("done ✅ ship", "✅", ["✅"]),
        ("family 👨\u200d👩\u200d👧", "👨\u200d👩", ["👨\u200d👩"]),
        ("\x1b[31mErr\x1b[0mor here", "error ", ["Err\x1b[0mor"]),
        ("aa aa aa", '"aa aa"', ["aa aa aa"]),
        ("x" * 300 + " end", "x" * 300 + " ", ["x" * 200]),
        ("nothing here", "cat", []),
        ("nothing here", "", []),
        ("", "cat", []),
    ],
)
def test_spans(text: str, query: str, spans: list[str]) -> None:
    """What was found is marked from its first to its last character, as it stands in the text."""
    assert marked(snippet(text, parse(query))) == spans


def test_parts_are_marked_only_where_the_whole_is_missing() -> None:
    """A word that the text does not have as typed is marked by its parts, and only such a word."""
    assert marked(snippet("a call of the tool", parse("tool-call"))) == ["call", "tool"]
    assert marked(snippet("call the tool-call", parse("tool-call"))) == ["tool-call"]
    assert marked(snippet("cat: only a tool", parse("cat tool-call"))) == ["cat", "tool"]


# --- which piece --------------------------------------------------------------------------------


def test_the_piece_with_the_most_terms_is_shown() -> None:
    """Of all pieces the one with the most different terms is shown, and of several the first."""
    text = "cat " * 50 + "x " * 300 + "dog and cat " + "y " * 300 + "dog cat bird " + "z " * 300
    assert set(marked(snippet(text, parse("cat dog bird ")))) == {"cat", "dog", "bird"}
    first = snippet(text, parse("cat dog "))
    assert marked(first) == ["dog", "cat"]
    assert "x" in first.text
    assert "y" in first.text
    assert snippet(text, parse("cat ")).start == 0


def test_a_piece_shows_what_is_around() -> None:
    """A hit in the middle has text on both sides, and the piece begins and ends between words."""
    text = "before " * 100 + "needle " + "after " * 100
    found = snippet(text, parse("needle "), chars=100)
    assert found.cut_before
    assert found.cut_after
    assert 60 <= len(found.text) <= 100
    assert set(found.text.split()) == {"before", "needle", "after"}
    assert found.text == text[found.start : found.start + len(found.text)]


@pytest.mark.parametrize(
    ("text", "chars", "expected", "before", "after"),
    [
        ("needle in hay", 200, "needle in hay", False, False),
        ("needle in hay", 13, "needle in hay", False, False),
        ("needle in hay", 9, "needle in", False, True),
        ("needle in hay", 8, "needle i", False, True),
        ("needle in hay", 6, "needle", False, True),
        ("needle in hay", 3, "nee", False, True),
        ("hay in needle", 6, "needle", True, False),
        ("hay in needle", 9, "in needle", True, False),
        ("hay in needle", 8, "n needle", True, False),
        ("needle in hay", 0, "", False, True),
        ("needle in hay", -5, "", False, True),
        ("\n needle\x00\x1b\r\n ", 200, "\n needle\x00\x1b\r\n ", False, False),
    ],
)
def test_pieces_are_bounded(
    text: str, chars: int, expected: str, before: bool, after: bool
) -> None:
    """A piece is as long as it may be, says on which sides it was cut, and changes nothing."""
    found = snippet(text, parse("needle "), chars=chars)
    assert (found.text, found.cut_before, found.cut_after) == (expected, before, after)


def test_without_hits_the_beginning_is_shown() -> None:
    """Where nothing is found, the piece is the beginning of the text."""
    text = "some words " * 100
    for query in ("needle", "", "-"):
        found = snippet(text, parse(query), chars=50)
        assert (found.start, found.spans, found.cut_before) == (0, (), False)
        assert text.startswith(found.text)
        assert 40 <= len(found.text) <= 50


@pytest.mark.parametrize("cluster", ["e\u0301", "👩\u200d👩\u200d👧", "👍🏽", "\ud83d\ude00", "☺️"])
def test_pieces_do_not_cut_characters_apart(cluster: str) -> None:
    """A cut never goes through what is seen as one character, if there is room beside the hit."""
    text = f"{cluster * 40} needle {cluster * 40}"
    for chars in range(20, 60):
        found = snippet(text, parse("needle "), chars=chars)
        left, _, right = found.text.partition(" needle ")
        assert left.replace(cluster, "") == right.replace(cluster, "") == ""


def test_a_hit_that_is_too_long_is_cut() -> None:
    """Of a phrase longer than the piece the beginning is shown and marked."""
    text = f"x {'one two ' * 20}y"
    found = snippet(text, parse(f'"{"one two " * 20}"'), chars=30)
    assert found.text == text[2:32]
    assert found.spans == ((0, 30),)


def test_hits_beyond_the_limit_are_not_looked_for() -> None:
    """What the index did not read is not searched for a snippet either."""
    text = "hay " * 50 + "needle"
    assert snippet(text, parse("needle"), limit=100).spans == ()
    assert snippet(text, parse("needle")).spans != ()


# --- whatever the text --------------------------------------------------------------------------


@given(strings(max_size=80), strings(max_size=20), st.integers(0, 40))
@example("\x1b[1mfo\x1b[0mo ﷺﷺ e\u0301", "foo ﷺ é", 7)
def test_every_snippet_is_a_piece(text: str, query: str, chars: int) -> None:
    """A snippet is a piece of the text within its bounds, with spans in order inside it."""
    found = snippet(text, parse(query), chars=chars)
    assert found.text == text[found.start : found.start + len(found.text)]
    assert len(found.text) <= chars
    assert found.cut_before == (found.start > 0)
    assert found.cut_after == (found.start + len(found.text) < len(text))
    edges = [edge for span in found.spans for edge in span]
    assert edges == sorted(set(edges))
    assert all(0 <= edge <= len(found.text) for edge in edges)


@given(
    strings(max_size=None),
    strings(max_size=None),
    st.sampled_from(["x", "the x", "a b"]),
    st.integers(4, 200),
)
@example("bd dep add beads-yyy " * 30, "beads-xxx " * 9, "x", 40)
def test_what_is_near_is_shown(before: str, after: str, query: str, chars: int) -> None:
    """A place that the caller names is in the piece and marked, word or not."""
    text, place = f"{before}->{after}", (len(before), len(before) + 2)
    found = snippet(text, parse(query), chars=chars, near=place)
    low, high = place[0] - found.start, place[1] - found.start
    assert found.text[low:high] == "->"
    assert any(start <= low and high <= end for start, end in found.spans)


@given(st.lists(NAMES | DENSE, min_size=1, max_size=6), st.data())
def test_what_the_index_finds_is_marked(words: list[str], data: st.DataObject) -> None:
    """A snippet has a span exactly if the index finds the text, with all terms or with any."""
    text = " ".join(words)
    drawn = data.draw(st.lists(NAMES | DENSE, min_size=1, max_size=2))
    query = data.draw(st.sampled_from([" ".join(drawn), f"{' '.join(drawn)} ", f'"{drawn[0]}"']))
    found = bool(Index(text).search(query, "any"))
    assert bool(snippet(text, parse(query)).spans) == found


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("query", ["needle", "some words", '"a a a b"', "a.a.a", "悬空的"])
def test_work_grows_with_the_text(shape: str, query: str) -> None:
    """A text four times as long takes at most four times the calls, whatever its shape."""
    small, large = SHAPES[shape](4_000), SHAPES[shape](16_000)
    parsed = parse(query)
    snippet(small, parsed)
    few = calls(lambda: snippet(small, parsed))
    assert calls(lambda: snippet(large, parsed)) <= 4.4 * few + 1000
