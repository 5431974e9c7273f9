"""Connections to PostgreSQL that break at every byte of a commit, and servers that refuse it."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg
import pytest

from perdure.errors import SessionNotFound, StorageFull, StorageUnavailable
from perdure.store import Store
from perdure.store.store import open_store
from tests.postgres.proxy import TO_CLIENT, TO_SERVER, Proxy
from tests.postgres.server import SECONDS, Server, until
from tests.proof.summary import summarise
from tests.support import SOAK

pytestmark = pytest.mark.proof

PATIENT = 30.0
"""Time-out of stores that have to get over everything by themselves."""

RETURNS_SECONDS = 15.0
"""Nothing that is cut once takes longer, on a machine that does much else."""


class Place:
    """A schema of a server, with a proxy in front of it."""

    def __init__(self, server: Server, schema: str, proxy: Proxy) -> None:
        self.server = server
        self.schema = schema
        self.proxy = proxy

    def open(self, timeout: float = PATIENT) -> Store:
        """Open the store through the proxy."""
        url = self.server.tcp_url(schema=self.schema)
        url = url.replace(f":{self.server.port}/", f":{self.proxy.port}/")
        # Not packed: many events are many records, which go another way than few.
        return open_store(f"{url}&timeout={timeout:g}", index=False, pack=False)

    def straight(self) -> Store:
        """Open it past the proxy."""
        return open_store(self.server.url(schema=self.schema), index=False)


@pytest.fixture
def place(postgres: Server, fresh_schema: Callable[[], str]) -> Iterator[Place]:
    """Return a place that is not made yet."""
    with Proxy(postgres.port) as proxy:
        yield Place(postgres, fresh_schema(), proxy)


def points(
    place: Place, draw: random.Random, dry: Callable[[], object], full: int
) -> Iterator[Any]:
    """Give bytes of what passes while something is done: all of them in the soak."""
    # What is prepared is said in fewer bytes: so many pass each time.
    dry()
    place.proxy.count()
    dry()
    counts = place.proxy.count()
    every = [(way, byte) for way in (TO_SERVER, TO_CLIENT) for byte in range(counts[way] + 1)]
    # The beginning and the end of each way: nothing sent, all sent, nothing of the answer.
    ends = [(TO_SERVER, 0), (TO_SERVER, counts[0]), (TO_CLIENT, 0)]
    ends += [(TO_CLIENT, counts[1] - left) for left in (5, 1, 0)]
    few = min(len(every), full if SOAK else full // 20)
    yield from (*ends, *draw.sample(every, few))


@contextmanager
def at_once(took: list[float]) -> Iterator[None]:
    """Note how long something takes, which must not be for long."""
    began = time.monotonic()
    yield
    took.append(time.monotonic() - began)
    assert took[-1] < RETURNS_SECONDS


def data_of(store: Store, session: str) -> list[Any]:
    return [event.data for event in store.read_from(session)]


# --- appending ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 5, 15])
@pytest.mark.parametrize("keyed", [False, True])
def test_an_append_that_is_cut(
    place: Place, size: int, rng: random.Random, seed: int, *, keyed: bool
) -> None:
    """Wherever its connection is cut, an append returns by itself; it is stored once, in order."""
    written: list[Any] = []
    took: list[float] = []
    with place.open() as store, store.create("s") as session:

        def append() -> None:
            first = len(written)
            drafts = [
                {"type": "x", "data": number, **({"key": f"k{number}"} if keyed else {})}
                for number in range(first, first + size)
            ]
            events = session.append_many(drafts)
            assert [event.seq for event in events] == [*range(first, first + size)]
            written.extend(event.data for event in events)

        append()
        for way, byte in points(place, rng, append, 400):
            place.proxy.arm(way, byte)
            with at_once(took):
                append()
            place.proxy.count()
        assert data_of(store, "s") == written
    with place.straight() as store:
        assert data_of(store, "s") == written == [*range(len(written))]
        assert store.verify("s").sound
    counts = {"cuts": place.proxy.cuts, "appends": len(took), "ms at most": ms(max(took))}
    summarise(f"appends of {size} that are cut, keys: {keyed}", seed, counts)
    assert place.proxy.cuts >= len(took) // 2


def ms(seconds: float) -> int:
    return round(seconds * 1000)


@pytest.mark.parametrize("size", [1, 15])
def test_an_append_whose_server_stays_away(
    place: Place, size: int, rng: random.Random, seed: int
) -> None:
    """After the time-out the writer is told, typed; opened again, its log says what was stored."""
    counts = {"answered": 0, "stored": 0, "not stored": 0, "still open": 0}
    took: list[float] = []
    expected: list[Any] = []
    with place.open(timeout=1) as store:
        session = store.create("t")
        session.append("x", "first")
        expected.append("first")

        def batch() -> list[Any]:
            return [f"{len(expected) + number}" for number in range(size)]

        def append(data: list[Any]) -> None:
            session.append_many([{"type": "x", "data": each} for each in data])
            expected.extend(data)

        drawn = points(place, rng, lambda: append(batch()), 60)
        # What says that the transaction has ended; others end beside it.
        done = (TO_CLIENT, b"INSERT 0 1\0" if size == 1 else b"COMMIT\0")
        for way, byte in (*drawn, *[done] * 4):
            data = batch()
            place.proxy.arm(way, byte, then_refuse=True)
            cuts = place.proxy.cuts
            failure = None
            with at_once(took):
                try:
                    append(data)
                except StorageUnavailable as error:
                    failure = error
            place.proxy.count()
            if place.proxy.cuts > cuts:
                place.proxy.accept()
            if failure is None:
                counts["answered"] += 1
                continue
            if not session.closed:
                # It is certain that nothing of it was stored.
                assert failure.retryable
                counts["still open"] += 1
                append(["it goes on"])
                continue
            assert [event.data for event in failure.lost] == data
            # What the backend said; the session says that it has to be opened again.
            assert isinstance(failure.__cause__, StorageUnavailable)
            assert failure.__cause__.retryable
            session = store.writer("t", wait=10)
            now = data_of(store, "t")
            assert now in (expected, [*expected, *data])
            counts["stored" if now != expected else "not stored"] += 1
            expected[:] = now
            append(["and it goes on"])
        session.close()
    with place.straight() as store:
        assert data_of(store, "t") == expected
        assert store.verify("t").sound
    summarise("appends that nobody answers", seed, {**counts, "ms at most": ms(max(took))})
    assert counts["not stored"]
    assert counts["stored"]


def test_a_server_that_refuses_for_a_while(place: Place) -> None:
    """An append that finds nobody waits for the server's return, and needs no help."""
    with place.open() as store, store.create("s") as session:
        session.append("x", 0)
        place.proxy.refuse()
        place.proxy.cut()
        thread = threading.Thread(target=session.append, args=("x", 1))
        thread.start()
        thread.join(0.5)
        assert thread.is_alive()
        assert session.position.seq == 0
        place.proxy.accept()
        thread.join(SECONDS)
        assert session.position.seq == 1
        assert data_of(store, "s") == [0, 1]


def test_what_was_not_sent_costs_no_writer(place: Place) -> None:
    """Where the server was away before anything was sent, the same writer goes on later."""
    with place.open(timeout=1) as store, store.create("s") as session:
        session.append("x", 0)
        place.proxy.refuse()
        place.proxy.cut()
        with pytest.raises(StorageUnavailable) as raised:
            session.append("x", 1)
        assert raised.value.retryable
        assert not session.closed
        place.proxy.accept()
        session.append("x", 1)
        assert data_of(store, "s") == [0, 1]


# --- other changes --------------------------------------------------------------------------------


def test_a_session_whose_creation_is_cut(place: Place, rng: random.Random, seed: int) -> None:
    """A first commit that is cut returns by itself, and there is one session, with one event."""
    took: list[float] = []
    names: list[str] = []
    with place.open() as store:
        store.create("first").append("x", 0)

        def create() -> None:
            names.append(f"s{len(names)}")
            with store.create(names[-1]) as session:
                if len(names) % 2:
                    session.put_blob(names[-1].encode())
                assert session.append("x", names[-1]).seq == 0

        create()
        for way, byte in points(place, rng, create, 300):
            place.proxy.arm(way, byte)
            with at_once(took):
                create()
            place.proxy.count()
    with place.straight() as store:
        assert {each.id for each in store.list()} == {"first", *names}
        for name in names:
            assert data_of(store, name) == [name]
            assert store.verify(name).sound
        # Room that was made twice, as an answer was lost, is swept by the next who needs some.
        with store.create("last") as session:
            session.put_blob(b"content")
            session.append("x", 0)
    left = "SELECT count(*) FROM @sessions WHERE state = 'new'"
    assert place.server.ask(left.replace("@", f"{place.schema}.")) == 0
    counts = {"cuts": place.proxy.cuts, "creations": len(took), "ms at most": ms(max(took))}
    summarise("creations that are cut", seed, counts)


def test_content_that_is_cut(place: Place, rng: random.Random, seed: int) -> None:
    """Content whose connection is cut is stored once, whole, and named by the event after it."""
    took: list[float] = []
    digests: dict[str, bytes] = {}
    with place.open() as store, store.create("s") as session:
        session.append("x", 0)

        def put() -> None:
            content = rng.randbytes(3000)
            digest = session.put_blob(content)
            session.append("x", {"blob": digest})
            digests[digest] = content

        put()
        for way, byte in points(place, rng, put, 100):
            place.proxy.arm(way, byte)
            with at_once(took):
                put()
            place.proxy.count()
    with place.straight() as store:
        assert {blob.digest for blob in store.blobs("s")} == {*digests}
        assert all(store.blob("s", digest) == content for digest, content in digests.items())
        assert store.verify("s").sound
    summarise("content that is cut", seed, {"cuts": place.proxy.cuts, "ms": ms(max(took))})


def test_a_deletion_that_is_cut(place: Place, rng: random.Random, seed: int) -> None:
    """A session that is deleted and restored over connections that are cut is what it was."""
    took: list[float] = []
    with place.open() as store:
        with store.create("s") as session:
            session.append("x", 0)

        def turn() -> None:
            store.delete("s")
            with pytest.raises(SessionNotFound):
                store.inspect("s")
            store.restore("s")
            assert data_of(store, "s") == [0]

        turn()
        for way, byte in points(place, rng, turn, 200):
            place.proxy.arm(way, byte)
            with at_once(took):
                turn()
            place.proxy.count()
        with store.writer("s") as session:
            session.append("x", 1)
    with place.straight() as store:
        assert data_of(store, "s") == [0, 1]
        assert [*store.trash()] == []
        assert store.verify("s").sound
    summarise("deletions that are cut", seed, {"cuts": place.proxy.cuts, "ms": ms(max(took))})


# --- servers that refuse --------------------------------------------------------------------------

FULL = """
CREATE FUNCTION {0}.full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100';
END $$;
CREATE TRIGGER full_disk BEFORE INSERT ON {0}.records FOR EACH ROW EXECUTE FUNCTION {0}.full();
"""


@pytest.mark.parametrize("size", [1, 5, 15])
def test_a_full_disk(place: Place, size: int) -> None:
    """A server without room says so; nothing of the commit is kept, and the writer goes on."""
    batch = [{"type": "x", "data": number} for number in range(1, 1 + size)]
    with place.open() as store, store.create("s") as session:
        session.append("x", 0)
        for statement in FULL.format(place.schema).split(";\nCREATE TRIGGER"):
            begin = "CREATE TRIGGER" if "full_disk BEFORE" in statement else ""
            place.server.ask(begin + statement)
        for _ in range(3):
            with pytest.raises(StorageFull) as raised:
                session.append_many(batch)
            assert raised.value.retryable
            with pytest.raises(StorageFull):
                store.create("t").append("x", 0)
        assert data_of(store, "s") == [0]
        place.server.ask(f"DROP TRIGGER full_disk ON {place.schema}.records")
        session.append_many(batch)
        assert data_of(store, "s") == [*range(1 + size)]
        store.create("t").append("x", 0)
        assert store.verify("s").sound


@pytest.fixture
def demoted(place: Place) -> Iterator[Callable[[], None]]:
    """Return what lets a server take no more changes; at the end it takes them again."""
    server = place.server

    def let(value: str) -> None:
        server.ask(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
        server.ask("SELECT pg_reload_conf()")
        until(partial(shows, server, value), "the setting is another one")

    yield partial(let, "on")
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = off")
        connection.execute("ALTER SYSTEM RESET default_transaction_read_only")
    server.ask("SELECT pg_reload_conf()")
    until(partial(shows, server, "off"), "the setting is another one")


def shows(server: Server, value: str) -> bool:
    return bool(server.ask("SHOW default_transaction_read_only") == value)


@pytest.mark.parametrize("size", [1, 15])
def test_a_server_that_was_demoted(place: Place, demoted: Callable[[], None], size: int) -> None:
    """A server that takes no changes says so after the time-out; readers go on, nothing is lost."""
    with place.open(timeout=1) as store, store.create("s") as session:
        session.append("x", 0)
        demoted()
        with pytest.raises(StorageUnavailable, match="read-only") as raised:
            session.append_many([{"type": "x", "data": number} for number in range(size)])
        assert raised.value.retryable
        assert not session.closed
        with pytest.raises(StorageUnavailable, match="read-only") as raised:
            store.create("t").append("x", 0)
        assert raised.value.retryable
        assert data_of(store, "s") == [0]
        with place.straight() as other:
            assert data_of(other, "s") == [0]
            assert other.verify("s").sound
