"""What listing and search answer: cursors that come back as they were, coverage in words."""

import base64
import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perdure.errors import InvalidValue
from perdure.model import values
from perdure.store.found import Coverage, Found, Hit, cursor_of, question_of, read_cursor
from perdure.testing.strategies import integers, json_values, strings, texts
from tests.support import scaled

URL_SAFE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")

HITS = (bool, int)
ORDER = (bool, str, int, int)
SESSIONS = (Any, str)

ASKED, OTHER = question_of("one"), question_of("another")


def text_of(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def refused(cursor: Any, kinds: tuple[Any, ...]) -> bool:
    """Whether it is refused, as what the caller gave for `after`."""
    try:
        read_cursor(cursor, ASKED, kinds)
    except InvalidValue as error:
        return (error.path, bool(error.hint), bool(str(error).encode())) == ("after", True, True)
    return False


# --- cursors --------------------------------------------------------------------------------------


@settings(max_examples=scaled(3000))
@given(st.booleans(), texts(), integers(), integers())
@example(fallback=True, session="\ud83d", seq=0, digest=-(2**63))
def test_a_cursor_comes_back(fallback: bool, session: str, seq: int, digest: int) -> None:
    """A place is text that can stand in a URL, and that text is the place again."""
    cursor = cursor_of(ASKED, fallback, session, seq, digest)
    assert {*cursor} <= URL_SAFE
    assert read_cursor(cursor, ASKED, ORDER) == (fallback, session, seq, digest)


@settings(max_examples=scaled(3000))
@given(json_values(max_leaves=3), texts())
def test_a_place_may_be_any_value(value: Any, id: str) -> None:
    """What a listing is sorted by is a text, a number or nothing, and comes back as it was."""
    found = read_cursor(cursor_of(ASKED, value, id), ASKED, SESSIONS)
    assert found == (value, id)
    assert values.canonical(found[0]) == values.canonical(value)


def test_a_cursor_of_another_question_is_refused() -> None:
    """A number says what was asked; so do how many values there are, and of what kinds."""
    hits, order = cursor_of(ASKED, False, 20), cursor_of(ASKED, True, "s", 1, 2)
    assert not refused(hits, HITS)
    assert not refused(order, ORDER)
    assert refused(hits, ORDER)
    assert refused(order, HITS)
    assert refused(cursor_of(OTHER, False, 20), HITS)


@pytest.mark.parametrize(
    "place",
    [
        (ASKED,),
        ("hits",),
        (ASKED, False),
        (ASKED, False, 20, 20),
        (ASKED, 0, 20),
        (ASKED, None, 20),
        (ASKED, False, "20"),
        (ASKED, False, None),
        (ASKED, False, 1.5),
        (ASKED, False, True),
        (ASKED, False, [20]),
        ([ASKED], False, 20),
        (None, False, 20),
        (str(ASKED), False, 20),
    ],
)
def test_values_of_other_kinds_are_refused(place: tuple[Any, ...]) -> None:
    """A place has as many values as its question has, each of its kind."""
    assert refused(cursor_of(*place), HITS)


@pytest.mark.parametrize(
    "value", [{"0": "hits"}, "hits", 5, None, True, {"hits": False}, [[["hits", False, 20]]]]
)
def test_a_value_that_is_no_list_is_refused(value: Any) -> None:
    """A cursor is a list of values, and nothing else that JSON has."""
    assert refused(text_of(json.dumps(value).encode()), HITS)


RAW = [
    b"",
    b"[",
    b'["hits",false,20',
    b'["hits",false,NaN]',
    b"\xff\xfe",
    b"[" * 100_000,
    b'["hits",false,20] x',
    b'["hits",false,' + b"9" * 5000 + b"]",
]


@pytest.mark.parametrize("raw", RAW, ids=range(len(RAW)))
def test_text_that_is_no_value_is_refused(raw: bytes) -> None:
    """What is no JSON, or none that can be read, is refused, however deep or long it is."""
    assert refused(text_of(raw), HITS)


ODD: list[Any] = [
    *(
        "",
        "=",
        "====",
        "x",
        "a b",
        "\n",
        "\0",
        "é",
        "\ud800",
        "WyJoaXRzIl",
        "..",
        "%%%",
        "x" * 10**6,
    ),
    *(5, 1.5, True, [], {}, b"WyJoaXRzIixmYWxzZSwyMF0", object(), (ASKED, False, 20)),
]


@pytest.mark.parametrize("cursor", ODD, ids=range(len(ODD)))
def test_what_is_no_cursor_is_refused(cursor: Any) -> None:
    """What no answer gave is refused with one error, whatever it is."""
    assert refused(cursor, HITS)
    assert refused(cursor, ORDER)
    assert refused(cursor, SESSIONS)


@pytest.mark.parametrize("kinds", [HITS, ORDER, SESSIONS], ids=["hits", "order", "sessions"])
@settings(max_examples=scaled(3000))
@given(st.text() | strings() | st.text(sorted(URL_SAFE)) | json_values(max_leaves=3))
def test_any_text_is_a_cursor_or_refused(kinds: tuple[Any, ...], cursor: Any) -> None:
    """Nothing but the one error comes of what somebody made up."""
    refused(cursor, kinds)


@settings(max_examples=scaled(5000))
@given(st.data())
def test_a_cursor_that_was_changed_is_another_one(data: st.DataObject) -> None:
    """With a character more, less or another one it is refused, or the cursor of another place."""
    whole = cursor_of(ASKED, False, data.draw(texts(max_size=5)), 5, -7)
    at = data.draw(st.integers(0, len(whole)))
    new = data.draw(st.text(max_size=1))
    cursor = whole[:at] + new + whole[at + data.draw(st.integers(0, 1)) :]
    if not refused(cursor, ORDER):
        assert cursor_of(ASKED, *read_cursor(cursor, ASKED, ORDER)) == cursor


# --- coverage -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("coverage", "said", "complete"),
    [
        (Coverage(0, 0, 0, ()), "indexed 0 of 0 sessions", True),
        (Coverage(1, 1, 0, ()), "indexed 1 of 1 session", True),
        (Coverage(1000, 999, 0, ()), "indexed 999 of 1000 sessions", False),
        (Coverage(2, 2, 1, ()), "indexed 2 of 2 sessions, 1 record skipped", False),
        (
            Coverage(2, 2, 5, (("s", "too odd"), ("t", "worse"))),
            "indexed 2 of 2 sessions, 5 records skipped: too odd (s)",
            False,
        ),
        (
            Coverage(2, 2, 0, (("half \ud83d", "damaged"),)),
            "indexed 2 of 2 sessions: damaged (half \ufffd)",
            False,
        ),
    ],
)
def test_coverage_says_what_was_left_out(coverage: Coverage, said: str, complete: bool) -> None:
    """An answer says in words how much it knows of, and whether that is everything."""
    assert str(coverage) == said
    assert coverage.complete is complete


@settings(max_examples=scaled(1000))
@given(
    st.builds(
        Coverage,
        st.integers(0, 9),
        st.integers(0, 9),
        st.integers(0, 9),
        st.lists(st.tuples(texts(), texts()), max_size=2).map(tuple),
    )
)
@example(Coverage(1, 1, 0, (("s", "why \ud83d"),)))
def test_coverage_can_be_shown_and_sent(coverage: Coverage) -> None:
    """Whatever sessions and reasons are called, the words can be printed and the values sent."""
    str(coverage).encode()
    sent = values.decode(values.encode(coverage.as_dict()))
    assert sent == {
        "sessions": coverage.sessions,
        "indexed": coverage.indexed,
        "skipped": coverage.skipped,
        "reasons": [[*each] for each in coverage.reasons],
    }


def test_what_was_found_can_be_sent() -> None:
    """Hits and answers are plain values for JSON, members named as they are."""
    hit = Hit("s", 3, "user", None, 7, 1.5, "said it", ((0, 4), (5, 7)), (True, False))
    coverage = Coverage(1, 1, 0, (("s", "why"),))
    found = Found([hit], "c", "keyword", False, True, ("x",), coverage)
    sent = values.decode(values.encode(found.as_dict()))
    assert sent == found.as_dict()
    assert [*sent] == [*Found._fields]
    assert [*sent["hits"][0]] == [*Hit._fields]
    assert sent["hits"][0]["spans"] == [[0, 4], [5, 7]]
    assert sent["hits"][0]["cut"] == [True, False]
    assert sent["coverage"]["reasons"] == [["s", "why"]]
