"""The wire: its types, its errors, its paths, and the document that describes them."""

import json
import re
from typing import Any, get_args
from urllib.parse import quote

import msgspec
import pytest

from perdure import errors
from perdure.catalog.contract import SORTS
from perdure.catalog.passages import KINDS
from perdure.errors import InvalidValue, PerdureError
from perdure.http import operations
from perdure.http.openapi import document
from perdure.http.paths import id_of, segment_of
from perdure.http.problems import STATUSES, error_of, shape_of, status_of
from perdure.http.server.handlers import HANDLERS
from perdure.http.server.live import SOURCES
from perdure.http.wire import shapes
from perdure.http.wire.events import event_shape
from perdure.model import values
from perdure.model.event import draft
from perdure.store.asking import STATUSES as SESSION_STATUSES
from perdure.store.nearness import MODES
from perdure.views.providers import FORMATS
from tests.test_hostile_ids import IDS as HOSTILE
from tests.test_store_errors import EXAMPLES


def test_the_wire_takes_what_the_store_takes() -> None:
    """Sorts, statuses, kinds, modes and formats are those of the store, no more and no fewer."""
    assert get_args(shapes.Sort) == SORTS
    assert get_args(shapes.Status) == tuple(SESSION_STATUSES)
    assert get_args(shapes.Kind) == KINDS
    assert get_args(shapes.Mode) == MODES
    assert get_args(shapes.Format) == tuple(FORMATS)


# --- errors ---------------------------------------------------------------------------------------


def classes(kind: type[PerdureError] = PerdureError) -> list[type[PerdureError]]:
    return [kind, *(each for below in kind.__subclasses__() for each in classes(below))]


def test_every_error_has_a_status() -> None:
    """No class of the error tree is without a status of its own, and none is of a success."""
    tree = {each for each in classes() if each.__module__.startswith("perdure.errors")}
    assert set(STATUSES) == tree
    assert all(400 <= status <= 599 for status in STATUSES.values())


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda each: type(each).__name__)
def test_an_error_comes_back_as_it_was(error: PerdureError) -> None:
    """The owner's client raises the class that the server met, with message, hint and facts."""
    raw = msgspec.json.encode(shape_of(error, owner=True))
    found = error_of(msgspec.json.decode(raw, type=shapes.ErrorShape).error)
    assert type(found) is type(error)
    assert (str(found), found.retryable, found.code) == (str(error), error.retryable, error.code)
    facts = {name: fact for name, fact in vars(error).items() if name != "retryable"}
    assert {name: vars(found)[name] for name in facts} == facts


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda each: type(each).__name__)
def test_others_are_told_nothing_of_the_machine(error: PerdureError) -> None:
    """Who is not the owner learns no path, process, host or address of the server."""
    told = msgspec.json.encode(shape_of(error, owner=False)).decode()
    for secret in ("/p", "/srv", "pid", '"h"', "https://e", "offline"):
        assert secret not in told or isinstance(error, errors.ServerUnavailable)
    assert json.loads(told)["error"]["code"] == error.code


def test_an_unknown_error_is_one_of_the_root() -> None:
    """What a newer server says is raised with its message, though its class is not known here."""
    body = shapes.ErrorBody(code="new", message="m", hint="h", retryable=True, facts={"a": [1]})
    found = error_of(body)
    assert type(found) is PerdureError
    assert (str(found), found.retryable) == ("m (h)", True)
    assert status_of(found) == 500


# --- paths ----------------------------------------------------------------------------------------

IDS = [*HOSTILE, "..", ".", "=", "=a", "a=b", "%2e", "a/b", "\\", "\x00", "\ud800", "a" * 1024]


@pytest.mark.parametrize("id", IDS, ids=lambda id: values.shown(id)[:30])
def test_an_id_is_one_segment(id: str) -> None:
    """Any id stands for itself in a URL, in a segment that nothing on the way changes."""
    segment = segment_of(id)
    assert id_of(segment) == id
    assert re.fullmatch(r"[A-Za-z0-9_.=-]+", segment)
    assert segment.strip(".") == segment
    assert quote(segment, safe="=") == segment


def test_two_ids_have_two_segments() -> None:
    """No id can be asked for by what stands for another."""
    assert len({segment_of(id) for id in IDS}) == len(set(IDS))


@pytest.mark.parametrize("segment", ["", "=", "=!", "=a", "=_w", "x" * 1025, "=" + "Y" * 8000])
def test_a_segment_that_stands_for_nothing_is_refused(segment: str) -> None:
    """What is no id in base64, or none at all, is an invalid value."""
    with pytest.raises(InvalidValue):
        id_of(segment)


# --- events ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [None, 2**200, -0.0, "é", "\ud800", {"\udfff": ["\ud83d"]}, "\u2028\x00", {"a": "\\ud800"}],
)
def test_an_event_is_told_as_it_is(data: Any) -> None:
    """Exactly, its data comes back equal; else lone surrogates alone are U+FFFD, in valid UTF-8."""
    event = draft("a/b", data, time=5, agent="é", turn="t", key="k").at(7)
    exact = event_shape(event, exact=True)
    assert values.decode(exact) == event.as_dict()
    assert b"\n" not in exact
    shown = json.loads(event_shape(event).decode("utf-8"))
    assert json.dumps(shown) == json.dumps(event.as_dict()).replace("\\udfff", "\\ufffd").replace(
        "\\ud83d", "\\ufffd"
    ).replace('"\\ud800', '"\\ufffd')


# --- the document ---------------------------------------------------------------------------------


def test_every_operation_is_answered() -> None:
    """Whatever the table has is answered, by one handler, and nothing else is."""
    names = [each.name for each in operations.OPERATIONS]
    assert len(set(names)) == len(names)
    assert {*HANDLERS, *SOURCES} == set(names)
    assert not HANDLERS.keys() & SOURCES.keys()
    places = [(each.method, each.path) for each in operations.OPERATIONS]
    assert len(set(places)) == len(places)


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if "$ref" in value else set()
        return own.union(*(references(each) for each in value.values()))
    if isinstance(value, list):
        return set().union(*(references(each) for each in value))
    return set()


def test_the_document_holds_together() -> None:
    """It has each operation, and every reference in it leads to a schema that is there."""
    told = json.loads(json.dumps(document("1")))
    for each in operations.OPERATIONS:
        operation = told["paths"][each.path][each.method.lower()]
        assert operation["operationId"] == each.name
        assert str(each.status) in operation["responses"]
        named = {p["name"] for p in operation["parameters"] if p["in"] == "path"}
        assert named == set(re.findall(r"\{(\w+)\}", each.path))
        asked = {p["name"] for p in operation["parameters"] if p["in"] == "query"}
        assert asked - {"namespace"} == set(each.query.__struct_fields__)
    schemas = told["components"]["schemas"]
    assert {ref.rpartition("/")[2] for ref in references(told)} <= set(schemas)
