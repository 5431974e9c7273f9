"""Codex: whole sessions as one JSON object over many lines."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.codex_lines import call, fed, model, output, read, rows, stored, typed, user
from tests.lens_lines import Record, texts

ITEMS = [
    each["payload"]
    for each in (
        user('is {"a": [ sound?'),
        model("yes\n}"),
        call("c", arguments='{"x": "]"}'),
        output("c", "a\\"),
        user("and now?"),
        model("no"),
    )
]
SESSION: Record = {"id": "s-1", "timestamp": "2025-05-01T10:00:00Z", "instructions": ""}


def lines_of(document: Record, indent: int | str = 2) -> list[str]:
    return [f"{text}\n" for text in json.dumps(document, indent=indent).split("\n")]


@pytest.mark.parametrize("indent", [2, 4, "\t"])
def test_a_document_over_many_lines_says_what_one_line_says(indent: int | str) -> None:
    """Items are read one by one, each with the number of the line on which it begins."""
    lines = lines_of({"session": SESSION, "items": ITEMS}, indent)
    said, lens = fed(stored(lines))
    assert [row[1:] for row in rows(said)] == [
        ("turn", "prompt-7"),
        ("user", "prompt-7", ['is {"a": [ sound?']),
        ("model", "prompt-7", ["yes\n}", ("c", "sh", {"x": "]"})]),
        ("call", "prompt-7", "c"),
        ("result", "prompt-7", "c", ["a\\"]),
        ("turn", "prompt-38"),
        ("user", "prompt-38", ["and now?"]),
        ("model", "prompt-38", ["no"]),
    ]
    begun = [at for at, text in enumerate(lines) if text.rstrip() == lines[7].rstrip()]
    assert {row[0] for row in rows(said)} <= set(begun)
    assert (lens.facts.id, lens.told, lens.missed, dict(lens.raw)) == ("s-1", 6, 0, {})
    assert sum(lens.understood.values()) == len(lines)
    assert texts(said) == texts(fed(stored([json.dumps({"session": SESSION, "items": ITEMS})]))[0])


def test_members_of_all_shapes_are_passed() -> None:
    """Empty members, those of other names, and items that are none are counted as what they are."""
    document = {"version": 1, "session": {}, "other": {"a": [1]}, "items": [{}, 5, *ITEMS[:1]]}
    lines = lines_of(document)
    said, lens = fed(stored(lines))
    assert [row[1] for row in rows(said)] == ["turn", "user"]
    assert (lens.told, lens.missed, dict(lens.raw)) == (1, 1, {"record": 7, "message": 1})
    assert sum(lens.understood.values()) + sum(lens.raw.values()) == len(lines)
    assert fed(stored(lines_of({"session": SESSION, "items": []})))[1].facts.id == "s-1"


def test_a_document_that_is_cut_off_says_what_is_whole() -> None:
    """Lines of an item that never ends are raw."""
    lines = lines_of({"session": SESSION, "items": ITEMS})
    said, lens = fed(stored(lines[:30]))
    assert texts(said) == ['is {"a": [ sound?', "yes\n}"]
    assert (dict(lens.raw), lens.missed) == ({"record": 3}, 0)
    assert sum(lens.understood.values()) == 27


def test_a_log_whose_first_line_is_damaged_is_a_log() -> None:
    """What cannot be a document is read line by line again."""
    for damaged in (["{"], ["{", '  "session": {', '    "id": "x",'], ["{", "}"]):
        said, lens = fed(stored([*damaged, json.dumps(typed("go")), json.dumps(model("ok"))]))
        assert texts(said) == ["go", "ok"]
        assert sum(lens.understood.values()) + sum(lens.raw.values()) == len(damaged) + 2
    assert read({}, typed("go"))[1].raw == {"record": 1}


@given(st.data())
def test_mutilated_documents_never_raise(data: st.DataObject) -> None:
    """Whatever happens to its lines, each is counted once."""
    lines = lines_of({"session": SESSION, "items": ITEMS})
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(lines) - 1))
        odd = st.sampled_from(["{", "}", "]", '{"type":"x"}', '"', "\x00", "[[[[", "\ud800", "{}"])
        lines[at] = data.draw(st.one_of(odd, st.just(lines[at][: len(lines[at]) // 2])))
    said, lens = fed(stored(lines))
    assert sum(lens.understood.values()) + sum(lens.raw.values()) == len(lines)
    assert [event.seq for event in said] == sorted(event.seq for event in said)
