"""Marks of sessions that are being written, in a server: as those in a folder."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import pytest

import perdure
from perdure.databases.postgres import Server, Work, parse_address
from perdure.store.marks import Mark
from perdure.store.server_marks import ServerMarks, is_catalogued
from perdure.testing.agents import ScriptedRuntime

if TYPE_CHECKING:
    from tests.postgres.server import Server as TestServer

RUNTIME = ScriptedRuntime("marks")


@pytest.fixture
def server(postgres: "TestServer", fresh_schema: Callable[[], str]) -> Iterator[Server]:
    made = Server(parse_address(postgres.url(schema=fresh_schema())), RUNTIME)
    yield made
    made.close()


def test_a_mark_is_there_until_it_is_taken_away(server: Server) -> None:
    """A mark names its session, whatever its id, to whoever looks, until it is cleared."""
    mine, other = (ServerMarks(server, namespace, RUNTIME) for namespace in ("", "\ud800"))
    assert [*mine.all()] == []
    mine.clear("nothing")
    for id in ("s", "\ud800", "\0", "x" * 2_000):
        name = mine.set(id)
        assert name is not None
        assert [*mine.all()] == [Mark(name, id)]
        assert [*other.all()] == []
        other.clear(name)
        mine.clear(name)
        assert [*mine.all()] == []


def test_each_writer_has_a_mark_of_its_own(server: Server) -> None:
    """Two that mark one session take away their own marks alone."""
    marks = ServerMarks(server, "n", RUNTIME)
    first, second = marks.set("s"), marks.set("s")
    marks.clear(first)
    assert [*marks.all()] == [Mark(str(second), "s")]


def test_a_mark_that_says_nothing_is_told_as_that(server: Server) -> None:
    """What somebody else wrote into a mark names no session, and raises nothing."""
    marks = ServerMarks(server, "", RUNTIME)
    name = marks.set("s")
    for raw in ("", "ff", "37", "7b", "5b5d"):
        text = f"UPDATE @marks SET session = '\\x{raw}'"  # noqa: S608
        server.change(partial(Work.run, statement=text))
        assert [*marks.all()] == [Mark(str(name), None)]


def test_a_catalog_is_wanted_where_there_is_one(
    postgres: "TestServer", fresh_schema: Callable[[], str]
) -> None:
    """A store without an index leaves marks where others keep one, and they are read by those."""
    url = postgres.url(schema=fresh_schema())
    server = Server(parse_address(url), RUNTIME)
    assert not is_catalogued(server, "")
    with perdure.open(url) as store:
        with store.create("one") as session:
            session.append("user/message", {"content": [{"type": "text", "text": "quokka"}]})
        assert [hit.session for hit in store.search("quokka").hits] == ["one"]
    assert is_catalogued(server, "")
    assert not is_catalogued(server, "n")
    with perdure.open(url, index=False) as store, store.resume("one") as session:
        session.append("user/message", {"content": [{"type": "text", "text": "zebra"}]})
    assert [mark.session for mark in ServerMarks(server, "", RUNTIME).all()] == ["one"]
    with perdure.open(url) as store:
        assert [hit.session for hit in store.search("zebra").hits] == ["one"]
    assert [*ServerMarks(server, "", RUNTIME).all()] == []
    server.close()
