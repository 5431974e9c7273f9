"""The vocabulary: payloads of perdure's types, and of those that a program adds."""

import dataclasses
from typing import Any, Literal, NamedTuple, TypedDict

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perdure
from perdure.errors import InvalidValue
from perdure.model import vocabulary
from perdure.model.event import Event, draft
from perdure.model.vocabulary import (
    NATIVE,
    PAYLOADS,
    JobEnd,
    SessionRun,
    Usage,
    Vocabulary,
    fitting,
    payload,
)
from perdure.testing.strategies import json_values
from tests.support import scaled


class Deploy(msgspec.Struct, frozen=True):
    host: str
    tries: int = 1


@dataclasses.dataclass(frozen=True)
class Rollback:
    host: str


class Alert(NamedTuple):
    level: int


class Note(TypedDict):
    text: str


def event(kind: str, data: Any, *, ignorable: bool = False) -> Event:
    return draft(kind, data, time=0, ignorable=ignorable).at(3)


# --- types of a program --------------------------------------------------------------------------


def test_a_program_has_types_of_its_own() -> None:
    """Structs, dataclasses, named tuples and typed dicts make typed payloads of their types."""
    mine = Vocabulary(
        {
            "acme/deploy": Deploy,
            "acme/rollback": Rollback,
            "acme/alert": Alert,
            "acme/note": Note,
            "acme/tags": list[str],
        }
    )

    assert mine.payload(event("acme/deploy", {"host": "web", "more": 1})) == Deploy("web")
    assert mine.payload(event("acme/rollback", {"host": "web"})) == Rollback("web")
    assert mine.payload(event("acme/alert", [3])) == Alert(3)
    assert mine.payload(event("acme/note", {"text": "x"})) == {"text": "x"}
    assert mine.payload(event("acme/tags", ["a"])) == ["a"]
    assert mine.payload(event("turn/end", {"reason": "done"})) == payload(
        event("turn/end", {"reason": "done"})
    )
    assert mine.payload(event("acme/unknown", {"host": "web"})) is None
    assert repr(Vocabulary({"acme/note": Note})) == "<Vocabulary perdure/1 and ['acme/note']>"


def test_two_vocabularies_know_nothing_of_each_other() -> None:
    """Making a vocabulary changes no other, nor what the mapping that it was made of becomes."""
    types: dict[str, type] = {"acme/deploy": Deploy}
    one = Vocabulary(types)
    types["acme/deploy"] = Rollback
    other = Vocabulary(types)

    found = event("acme/deploy", {"host": "web"})
    assert (one.payload(found), other.payload(found)) == (Deploy("web"), Rollback("web"))
    assert payload(found) is None
    assert "acme/deploy" not in PAYLOADS


def test_a_vocabulary_is_a_mapping_of_types() -> None:
    """It lists perdure's types and those that were added."""
    mine = Vocabulary({"acme/deploy": Deploy})

    assert list(mine) == [*PAYLOADS, "acme/deploy"]
    assert len(mine) == len(PAYLOADS) + 1
    assert mine["acme/deploy"] is Deploy
    assert dict(NATIVE) == PAYLOADS
    with pytest.raises(KeyError):
        NATIVE["acme/deploy"]


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        ("turn/end", Deploy),
        ("session/of-mine", Deploy),
        ("usage", Deploy),
        ("Acme", Deploy),
        ("", Deploy),
        (7, Deploy),
        ("acme/x", object),
        ("acme/x", type("Plain", (), {})),
        ("acme/x", "Deploy"),
        ("acme/x", Deploy("web")),
    ],
)
def test_what_cannot_be_a_type_is_refused(kind: Any, shape: Any) -> None:
    """Perdure's families, names that are no types, and classes not made of JSON are refused."""
    with pytest.raises(InvalidValue):
        Vocabulary({kind: shape})


def test_a_payload_becomes_an_event() -> None:
    """A typed payload gives what `append` takes, and comes back from the log as it was."""
    mine = Vocabulary({"acme/deploy": Deploy, "acme/undeploy": Rollback, "acme/back": Rollback})
    with perdure.open("memory:") as store, store.create("s") as session:
        one = session.append(**mine.event(Deploy("web", tries=2)), turn="t")
        end = session.append(**mine.event(JobEnd(id="j", status="completed")))
        two, three = session.append_many(
            [mine.event(Deploy("db")), mine.event(Rollback("db"), type="acme/back")]
        )

    assert (one.type, one.turn) == ("acme/deploy", "t")
    assert [mine.payload(each) for each in (one, end, two, three)] == [
        Deploy("web", tries=2),
        JobEnd(id="j", status="completed"),
        Deploy("db"),
        Rollback("db"),
    ]
    assert three.type == "acme/back"


def test_values_without_a_class_become_events_of_the_type_that_is_named() -> None:
    """A typed dict or a list is an event of its type if it fits, and of no other."""
    mine = Vocabulary({"acme/note": Note, "acme/tags": list[str], "acme/deploy": Deploy})

    assert mine.event(Note(text="x"), type="acme/note") == {
        "type": "acme/note",
        "data": {"text": "x"},
    }
    assert mine.event(["a"], type="acme/tags")["data"] == ["a"]
    for value, kind in (({"text": 5}, "acme/note"), ([1], "acme/tags"), ({"host": "h"}, None)):
        with pytest.raises(InvalidValue):
            mine.event(value, type=kind)
    with pytest.raises(InvalidValue):
        mine.event({"host": "web"}, type="acme/deploy")


def test_a_payload_of_no_type_or_of_several_is_refused() -> None:
    """A class that stands for no type, for several, or not for the one named says so."""
    run = SessionRun(run="r")
    assert NATIVE.event(run, type="session/resumed")["data"] == {"run": "r"}
    mistaken: list[tuple[Any, str | None]] = [
        (run, None),
        (run, "turn/end"),
        (Deploy("web"), None),
        (Deploy("web"), "acme/deploy"),
        ({"host": "web"}, None),
    ]
    for given_payload, kind in mistaken:
        with pytest.raises(InvalidValue):
            NATIVE.event(given_payload, type=kind)


def test_unknown_and_ignorable_types_live_on_untouched() -> None:
    """An event of a type that nobody knows comes back with its data, and has no payload."""
    with perdure.open("memory:") as store:
        with store.create("s") as session:
            session.append("acme/deploy", {"host": ["not", "a", "string"]})
            session.append("acme/hint", {"a": 1}, ignorable=True)
        deploy, hint = store.inspect("s").events

    assert (deploy.data, hint.data) == ({"host": ["not", "a", "string"]}, {"a": 1})
    assert hint.ignorable
    assert payload(deploy) is payload(hint) is None
    mine = Vocabulary({"acme/deploy": Deploy})
    assert mine.fitting(deploy) is mine.payload(hint) is None
    with pytest.raises(msgspec.ValidationError):
        mine.payload(deploy)


# --- perdure's own -------------------------------------------------------------------------------


@settings(max_examples=scaled(5000))
@given(st.sampled_from(sorted(PAYLOADS)), json_values(), st.data())
def test_data_that_does_not_fit_is_said_in_one_way(
    kind: str, junk: Any, data: st.DataObject
) -> None:
    """Whatever the data, there is a payload or a ValidationError, and `fitting` never raises."""
    names = [field.name for field in msgspec.structs.fields(PAYLOADS[kind])]
    named: list[str] = data.draw(st.lists(st.sampled_from(names))) if names else []
    if named:
        junk = dict.fromkeys(named, junk)
    found = event(kind, junk)
    try:
        made = payload(found)
    except msgspec.ValidationError:
        made = None
    assert fitting(found) == made
    assert made is None or isinstance(made, PAYLOADS[kind])


def test_members_that_nobody_knows_are_passed_by() -> None:
    """Further members are ignored, those with a lone surrogate in their names too, at any depth."""
    error = {"code": "C", "message": "m", "\udc00": 1, "more": 2}
    found = fitting(
        event("job/end", {"id": "\ud83d", "status": "failed", "error": error, "\ud83d": 1})
    )

    assert found.error == vocabulary.Error(code="C", message="m")
    assert found.id == "\ud83d"
    assert fitting(event("usage", {"input": 3, "\ud83d": 1})) == Usage(input=3)
    assert fitting(event("usage", {"\ud83d": 1, "input": "3"})) is None
    assert fitting(event("state/set", {"key": "k", "value": {"\ud83d": 1}})).value == {"\ud83d": 1}


def test_names_that_cannot_be_compared_do_not_fit() -> None:
    """A lone surrogate in a name is passed by in any class, and fits no list of allowed names."""
    mine = Vocabulary(
        {"acme/rollback": Rollback, "acme/note": Note, "acme/level": dict[Literal["a"], int]}
    )

    assert mine.payload(event("acme/rollback", {"host": "h", "\ud83d": 1})) == Rollback("h")
    assert mine.payload(event("acme/note", {"text": "t", "\ud83d": 1})) == {"text": "t"}
    assert mine.payload(event("acme/level", {"a": 1})) == {"a": 1}
    with pytest.raises(msgspec.ValidationError):
        mine.payload(event("acme/level", {"\ud83d": 1}))


def test_what_the_module_exports_is_there() -> None:
    """Every name of `__all__` can be imported, and every payload is among them."""
    assert [name for name in vocabulary.__all__ if not hasattr(vocabulary, name)] == []
    assert {shape.__name__ for shape in PAYLOADS.values()} <= set(vocabulary.__all__)
