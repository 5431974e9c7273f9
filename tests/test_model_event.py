"""The event: what is accepted, what is refused, and what cannot change afterwards."""

from typing import Any

import pytest
from hypothesis import given, settings

from perdure.errors import InvalidValue
from perdure.model import limits
from perdure.model.event import Draft, draft
from perdure.testing.strategies import drafts
from tests.support import scaled


@settings(max_examples=scaled(1000))
@given(drafts())
def test_an_event_has_what_was_drafted(made: Draft) -> None:
    """An event carries every field of its draft and equals another one made from it."""
    event = made.at(7)

    fields = (event.type, event.time, event.agent, event.turn, event.key, event.ignorable)
    drafted = (made.type, made.time, made.agent, made.turn, made.key, made.ignorable)
    assert fields == drafted
    assert event == made.at(7)
    assert hash(event) == hash(made.at(7))
    assert event != made.at(8)
    assert made.same_fact(event)


def test_equality_is_of_json_values() -> None:
    """Two events are equal when their data is the same JSON value, whatever the key order."""
    one = draft("a", {"x": 1, "y": 2}, time=0).at(0)
    other = draft("a", {"y": 2, "x": 1}, time=0).at(0)

    assert one == other
    assert one != draft("a", {"x": 1, "y": 2.0}, time=0).at(0)
    assert one != "an event"


def test_an_event_is_frozen() -> None:
    """No field of an event can be set."""
    # deepseek-harness 19
    event = draft("a", None, time=0).at(0)

    for name in ("seq", "type", "time", "agent", "turn", "key", "ignorable", "raw"):
        with pytest.raises(AttributeError):
            setattr(event, name, 1)


def test_a_plain_dict_has_the_order_of_the_line() -> None:
    """`as_dict` names what is there, in the order of the record line."""
    full = draft("a", [1], time=5, agent="x", turn="t", key="k", ignorable=True).at(3)
    bare = draft("a", [1], time=5).at(3)

    assert list(full.as_dict()) == [
        "seq", "type", "time", "agent", "turn", "key", "ignorable", "data"
    ]  # fmt: skip
    assert bare.as_dict() == {"seq": 3, "type": "a", "time": 5, "data": [1]}


LONGEST: list[tuple[str, Any, Any]] = [
    ("type", "t" * 128, "t" * 129),
    ("type", "a", ""),
    ("type", "a/b.c-d_e9", "A"),
    ("type", "z", "9a"),
    ("type", "z", "a b"),
    ("type", "z", "a\n"),
    ("type", "z", "é"),
    ("type", "z", None),
    ("time", limits.TIME_MS_MAX, limits.TIME_MS_MAX + 1),
    ("time", -limits.TIME_MS_MAX, -limits.TIME_MS_MAX - 1),
    ("time", 0, 0.0),
    ("time", 1, True),
    ("agent", "a" * limits.AGENT_CHARS_MAX, "a" * (limits.AGENT_CHARS_MAX + 1)),
    ("agent", None, ""),
    ("turn", "é" * limits.TURN_CHARS_MAX, "é" * (limits.TURN_CHARS_MAX + 1)),
    ("turn", "t", 5),
    ("key", "k" * limits.KEY_CHARS_MAX, "k" * (limits.KEY_CHARS_MAX + 1)),
    ("key", "k", b"k"),
    ("ignorable", True, 1),
    ("ignorable", False, None),
]


@pytest.mark.parametrize(("field", "kept", "refused"), LONGEST)
def test_each_field_ends_at_its_limit(field: str, kept: Any, refused: Any) -> None:
    """What lies at the limit of a field is kept; one step further is refused, and named."""
    # heinzel 14
    usual: dict[str, Any] = {"type": "a", "data": None, "time": 0}

    assert getattr(draft(**{**usual, field: kept}).at(0), field) == kept
    with pytest.raises(InvalidValue) as error:
        draft(**{**usual, field: refused})
    assert error.value.path == field


def test_data_ends_at_its_limit() -> None:
    """Data of 64 KiB below a record is kept; one byte more is refused with the way out."""
    # heinzel 14
    room = limits.RECORD_BYTES_MAX - 64 * 1024 - len('""')

    assert len(draft("a", "x" * room, time=0).raw) == room + 2
    with pytest.raises(InvalidValue) as error:
        draft("a", "x" * (room + 1), time=0)
    assert error.value.path == "data"
    assert "digest" in error.value.hint


def test_data_is_encoded_at_the_call() -> None:
    """What the caller changes after the call is not stored."""
    # deepseek-harness 24
    data = {"items": [1, {"a": "before"}]}
    made = draft("a", data, time=0)
    data["items"].append(2)
    data["items"][1]["a"] = "after"  # type: ignore[index]

    assert made.at(0).data == {"items": [1, {"a": "before"}]}
    assert made.value == {"items": [1, {"a": "before"}]}


class Posing(str):
    """A string that says of itself that it is a plain one."""

    __slots__ = ()
    __class__ = property(lambda _: str)


@pytest.mark.parametrize("field", ["type", "agent", "turn", "key"])
def test_what_poses_as_a_string_is_none(field: str) -> None:
    """A subclass of str is refused under a name that is well known, whatever it calls itself."""
    draft("a/b", None, time=0, agent="a/b", turn="a/b", key="a/b")
    fields: dict[str, Any] = {"type": "a/b", "data": None, "time": 0, field: Posing("a/b")}
    with pytest.raises(InvalidValue) as refused:
        draft(**fields)
    assert refused.value.path == field
