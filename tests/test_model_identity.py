"""From ids to names on disk: no two meet, none leaves its folder."""

import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.errors import InvalidValue
from perdure.model import limits
from perdure.model.identity import NAME_BYTES_MAX, escape_id
from perdure.testing.strategies import session_ids
from tests.support import scaled

DEVICES = {"con", "prn", "aux", "nul"} | {f"{p}{n}" for p in ("com", "lpt") for n in range(10)}

SAFE = re.compile(r"[a-z0-9%_-]([a-z0-9%._-]*[a-z0-9%_-])?")


@settings(max_examples=scaled(5000))
@given(session_ids())
def test_names_are_safe_everywhere(id: str) -> None:
    """A name is one plain path component: no separator, no dot at its ends, no device, not long."""
    # case 37
    name = escape_id(id)

    assert SAFE.fullmatch(name)
    assert name not in {"", ".", ".."}
    assert name.split(".")[0] not in DEVICES
    assert len(name.encode()) <= NAME_BYTES_MAX
    assert name.casefold() == name
    assert all(unicodedata.normalize(form, name) == name for form in ("NFC", "NFD", "NFKD"))


def neighbours(id: str) -> list[str]:
    """Ids that a careless escaping would confuse with `id`."""
    forms = [unicodedata.normalize(form, id) for form in ("NFC", "NFD", "NFKC", "NFKD")]
    return [
        *forms,
        id.upper(),
        id.lower(),
        id.swapcase(),
        id.strip(),
        escape_id(id),
        id + ".",
        "." + id,
    ]


@settings(max_examples=scaled(5000))
@given(session_ids(), session_ids())
def test_different_ids_have_different_names(a: str, b: str) -> None:
    """Two ids share a name only if they are the same id, also where case or form is ignored."""
    ids = [x for x in {a, b, *neighbours(a), *neighbours(b)} if 0 < len(x) <= limits.ID_CHARS_MAX]

    assert len({escape_id(id) for id in ids}) == len(ids)


@given(st.text("aA.%", min_size=60, max_size=400), st.text("aA.%", max_size=3))
def test_long_ids_differ_behind_the_cut(common: str, end: str) -> None:
    """Ids that differ only behind what a shortened name shows have different names."""
    names = {escape_id(common + end + last) for last in ("x", "y", "X", "%%")}

    assert len(names) == 4


@pytest.mark.parametrize(
    ("id", "name"),
    [
        ("abc-1_2", "abc-1_2"),
        ("a.b", "a.b"),
        (".", "%2e"),
        ("..", "%2e%2e"),
        ("a/b", "a%2fb"),
        ("A", "%41"),
        ("con", "%63on"),
        ("con.txt", "%63on.txt"),
        ("COM1", "%43%4f%4d1"),
        ("com1", "%63om1"),
        ("a.", "a%2e"),
        ("\u00e9", "%c3%a9"),
        ("e\u0301", "e%cc%81"),
        ("\ud800", "%ed%a0%80"),
        ("%41", "%2541"),
        (" ", "%20"),
    ],
)
def test_names_are_as_documented(id: str, name: str) -> None:
    """The escaping is the one of the format page, byte for byte."""
    assert escape_id(id) == name


def test_names_end_at_their_limit() -> None:
    """A name of 200 bytes stands for itself, one more byte gets it shortened."""
    assert escape_id("a" * 200) == "a" * 200
    assert escape_id("a" * 201).startswith("a" * 100 + "%%")
    assert len(escape_id("\U0001f600" * limits.ID_CHARS_MAX)) <= NAME_BYTES_MAX


@pytest.mark.parametrize("id", ["", "x" * (limits.ID_CHARS_MAX + 1), None, 5, b"a"])
def test_what_names_no_session_is_refused(id: object) -> None:
    """An id is a string of 1 to 1,024 characters."""
    # heinzel 14
    with pytest.raises(InvalidValue):
        escape_id(id)  # type: ignore[arg-type]
