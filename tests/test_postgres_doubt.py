"""Writers of a PostgreSQL store that are interrupted, cut off or raced: what they believe then."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

import perdure
from perdure.backends.postgres import PostgresBackend, content
from perdure.backends.postgres.holding import PostgresHold, own
from perdure.databases.postgres import Attempts, Server, Unsure, Work, parse_address
from perdure.durable import crash
from perdure.errors import SessionBusy, SessionClosed, StaleWriter, StorageUnavailable
from perdure.model.event import draft
from perdure.model.header import new_header
from perdure.model.record import Position, decode_line, seal
from perdure.store import Store
from tests.postgres.server import SECONDS, until
from tests.postgres.server import Server as Node


@pytest.fixture
def url(postgres: Node, fresh_schema: Callable[[], str]) -> str:
    return postgres.url(schema=fresh_schema())


@pytest.fixture
def node() -> Iterator[Node]:
    """Return a server of this test's own, whose configuration it may change."""
    with Node("doubt") as made:
        yield made


def configure(node: Node, statement: str) -> None:
    """Change the configuration and let it be read, without waiting for a standby."""
    with psycopg.connect(node.url(), autocommit=True) as connection:
        connection.execute("SET synchronous_commit = local")
        before = connection.execute("SELECT pg_conf_load_time()").fetchone()
        connection.execute(f"ALTER SYSTEM {statement}".encode())
        connection.execute("SELECT pg_reload_conf()")
    until(lambda: (node.ask("SELECT pg_conf_load_time()"),) != before, "it is not read")


def backend_of(store: Store) -> PostgresBackend:
    backend = store._backend
    assert isinstance(backend, PostgresBackend)
    return backend


@contextmanager
def without_standbys(node: Node) -> Iterator[None]:
    """Let each commit wait for a standby that does not exist."""
    configure(node, "SET synchronous_standby_names = 'nobody'")
    try:
        yield
    finally:
        configure(node, "RESET synchronous_standby_names")


WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


@contextmanager
def interrupted_when(happened: Callable[[], object]) -> Iterator[None]:
    """Interrupt the main thread, as Ctrl-C does, as soon as something has happened."""

    def interrupt() -> None:
        until(happened, "it does not happen")
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt), closing_thread(thread):
        yield


@contextmanager
def closing_thread(thread: threading.Thread) -> Iterator[None]:
    try:
        yield
    finally:
        thread.join()


def events(store: Store, session: str) -> list[Any]:
    return [event.data for event in store.read_from(session)]


# --- interrupts ---------------------------------------------------------------------------------


def test_what_no_standby_has_is_not_flushed(node: Node) -> None:
    """An interrupt that ends the wait for a standby does not make the commit a durable one."""
    with perdure.open(node.url(), index=False) as store:
        session = store.create("s")
        session.append("x", 1)
        with without_standbys(node):
            session.buffer("x", 2)
            with interrupted_when(lambda: node.ask(WAITING)):
                session.flush()
            # Nobody may say that it is flushed now.
            with pytest.raises(SessionClosed):
                session.flush()
            assert session.closed
        with store.writer("s") as again:
            again.append("x", 3)
        assert events(store, "s") == [1, 2, 3]


def test_an_interrupt_of_the_first_commit_keeps_nobody_out(node: Node) -> None:
    """A session that appeared while its writer was interrupted may be written at once."""
    with perdure.open(node.url(), index=False) as store:
        other = store.create("other")
        other.append("x", 0)
        session = store.create("s")
        with without_standbys(node):
            with interrupted_when(lambda: node.ask(WAITING)):
                session.append("x", 1)
            assert session.closed
        # This process goes on writing, and so its sign of life holds.
        other.append("x", 1)
        with store.writer("s") as again:
            again.append("x", 2)
        assert events(store, "s") == [1, 2]


def test_an_interrupt_while_the_server_is_away_takes_the_event_back(node: Node) -> None:
    """What was interrupted before anything was sent is not stored later, and nobody waits."""
    with perdure.open(node.url(), index=False) as store:
        session = store.create("s")
        session.append("x", 1)
        node.stop()
        tried = threading.Event()
        pause = Attempts.pause

        def tell(self: Attempts) -> bool:
            tried.set()
            return pause(self)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Attempts, "pause", tell)
            with interrupted_when(tried.is_set):
                session.append("x", 2)
        assert not session.closed
        node.start()
        session.append("x", 3)
        session.close()
        assert events(store, "s") == [1, 3]


@contextmanager
def interrupted_at(point: str, *, first: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Interrupt whoever comes to a crash point, once."""
    left = [point]

    def interrupt(name: str) -> None:
        if name in left:
            left.clear()
            first()
            raise KeyboardInterrupt

    crash.arm(hook=interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        crash.arm()
    assert not left


def test_an_interrupt_without_an_answer_ends_the_session(node: Node) -> None:
    """Where nobody can say what became of what was sent, the writer writes no more."""
    with perdure.open(f"{node.url()}&timeout=1", index=False) as store:
        session = store.create("s")
        session.append("x", 1)
        with interrupted_at("postgres.appended", first=node.kill):
            session.append("x", 2)
        assert session.closed
        node.start()
        with store.writer("s", wait=SECONDS) as again:
            again.append("x", 3)
        assert events(store, "s") == [1, 2, 3]


@pytest.mark.parametrize("point", ["postgres.changed", "postgres.committed"])
def test_an_interrupt_of_the_first_commit_after_content(url: str, point: str) -> None:
    """What was published although its writer was interrupted is not taken away again."""
    with perdure.open(url, index=False) as store:
        session = store.create("s")
        session.put_blob(b"content")
        with interrupted_at(point):
            session.append("x", 1)
        if not session.closed:
            session.append("x", 1)
            session.close()
        with store.writer("s") as again:
            again.append("x", 2)
        assert events(store, "s") == [1, 2]
        assert len([*backend_of(store).blobs("s")]) == 1


def test_what_another_one_wrote_meanwhile_is_not_taken_for_ones_own(url: str) -> None:
    """After an interrupt nothing is flushed because somebody else's events stand at its place."""
    with perdure.open(url, index=False) as store, perdure.open(url, index=False) as other:
        session = store.create("s")
        session.append("x", 0)

        def take_over() -> None:
            free = "UPDATE @tails SET owner = NULL"
            backend_of(other)._server.change(lambda work: work.run(free))
            with other.writer("s") as theirs:
                theirs.append("y", "theirs")

        session.buffer("x", "mine")
        with interrupted_at("postgres.begun", first=take_over):
            session.flush()
        with pytest.raises((SessionClosed, StaleWriter)):
            session.flush()
        assert events(store, "s") == [0, "theirs"]


def test_an_interrupt_of_a_release_keeps_nobody_out(url: str) -> None:
    """What could not be given back is given back by the next who does anything."""
    with perdure.open(url, index=False) as store, perdure.open(url, index=False) as other:
        kept = store.create("kept")
        kept.append("x", 0)
        with store.create("s") as session:
            session.append("x", 0)
        backend = backend_of(store)
        hold = backend.lock("s")
        with interrupted_at("postgres.changed"):
            hold.release()
        backend._presence.tidy()
        backend_of(other).lock("s").release()


def test_a_position_is_looked_up_by_one_thread(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks where a log stands while another one looks gets no hold taken for dead."""
    with perdure.open(url, index=False) as store:
        backend = backend_of(store)
        header = new_header("s", created_at=1)
        start = seal(Position(-1, header.genesis), [draft("x", 0, time=1)])
        hold = own(backend.publish(header, start))
        first = seal(hold.position, [draft("x", 1, time=1)])
        with interrupted_at("postgres.appended"):
            backend.commit(hold, hold.position, first)
        look, reached, go_on = PostgresHold._look, threading.Event(), threading.Event()

        def slow(each: PostgresHold, pending: Position) -> None:
            reached.set()
            assert go_on.wait(SECONDS)
            look(each, pending)

        monkeypatch.setattr(PostgresHold, "_look", slow)
        asking = threading.Thread(target=lambda: hold.position)
        asking.start()
        assert reached.wait(SECONDS)
        failed: list[BaseException] = []

        def commit() -> None:
            try:
                after = first[-1].position
                backend.commit(hold, after, seal(after, [draft("x", 2, time=1)]))
            except BaseException as error:
                failed.append(error)
                raise

        committing = threading.Thread(target=commit)
        committing.start()
        committing.join(0.1)
        assert committing.is_alive()
        go_on.set()
        for thread in (asking, committing):
            thread.join(SECONDS)
        assert not failed
        assert not hold.dead
        hold.release()
        assert events(store, "s") == [0, 1, 2]


# --- the configuration --------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["off", "local"])
def test_a_new_configuration_makes_no_commit_less_durable(node: Node, value: str) -> None:
    """A connection commits as it did when it was made, whatever the server is told meanwhile."""
    with perdure.open(node.url(), index=False) as store, store.create("s") as session:
        session.append("x", 1)
        configure(node, f"SET synchronous_commit = '{value}'")
        pool = backend_of(store)._server._connections()
        assert pool._idle
        for connection in pool._idle:
            assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)


@pytest.mark.parametrize("synced", [True, False])
def test_bounds_hold_behind_a_pooler(url: str, *, synced: bool) -> None:
    """Where no setting outlives a transaction, each one says how long its locks may last."""
    found: list[Any] = []
    with perdure.open(f"{url}&pooled=true&timeout=7&lease=90", index=False) as store:
        store.create("s").append("x", 1)

        def look(work: Work) -> None:
            names = ("lock_timeout", "idle_in_transaction_session_timeout", "synchronous_commit")
            found.extend(work.row(f"SHOW {name}") for name in names)

        backend_of(store)._server.change(look, synced=synced)
    assert found == [("7s",), ("90s",), ("on" if synced else "off",)]


# --- who holds it -------------------------------------------------------------------------------


class Losing:
    """Lets the answers to commits of one server be lost, while it is told to."""

    def __init__(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        self.on = False
        commit = Server.commit

        def lost(each: Server, work: Work, *, synced: bool = True) -> None:
            commit(each, work, synced=synced)
            if self.on and synced and each is server:
                raise Unsure

        monkeypatch.setattr(Server, "commit", lost)

    def __enter__(self) -> None:
        self.on = True

    def __exit__(self, *_: object) -> None:
        self.on = False


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """Return a store in which this process writes something all the time."""
    with perdure.open(f"{url}&timeout=1", index=False) as made, made.create("kept") as kept:
        kept.append("x", 0)
        for name in ("a", "b"):
            with made.create(name) as session:
                session.append("x", 0)
        yield made


@pytest.fixture
def losing(store: Store, monkeypatch: pytest.MonkeyPatch) -> Losing:
    return Losing(backend_of(store)._server, monkeypatch)


def test_a_replacement_of_which_the_answer_is_lost(store: Store, losing: Losing) -> None:
    """Whoever may have replaced a log writes no more to it, and the session is free again."""
    backend = backend_of(store)
    hold = backend.lock("a")
    header = backend.stored("a").header
    assert header is not None
    records = [decode_line(line) for piece in backend.scan("a", 0) for line in piece.lines]
    with losing, pytest.raises(StorageUnavailable):
        backend.replace(hold, header, records, place="repair-1", reason="test")
    assert hold.dead
    hold.release()
    with store.writer("a") as session:
        session.append("x", 1)
    assert events(store, "a") == [0, 1]
    assert len([*backend.asides("a")]) == 1


def test_a_deletion_of_which_the_answer_is_lost(
    store: Store, losing: Losing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was deleted perhaps can be brought back at once by whoever sees that it was."""
    change = PostgresHold.change

    def lost(hold: PostgresHold, do: Callable[[Work], object], **how: bool) -> None:
        with losing:
            change(hold, do, **how)

    with monkeypatch.context() as patched:
        patched.setattr(PostgresHold, "change", lost)
        with pytest.raises(StorageUnavailable):
            store.delete("a")
    assert [each.id for each in store.trash()] == ["a"]
    store.restore("a")
    with store.writer("a") as session:
        session.append("x", 1)
    assert events(store, "a") == [0, 1]


@pytest.mark.parametrize("which", ["claim", "restoration"])
def test_a_restoration_of_which_the_answer_is_lost(
    store: Store, losing: Losing, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """What was brought back perhaps can be written at once, or be brought back again."""
    store.delete("a")
    changed = PostgresBackend._changed

    def lost(backend: PostgresBackend, change: Callable[[Work], None]) -> None:
        with losing:
            changed(backend, change)

    with monkeypatch.context() as patched:
        if which == "restoration":
            patched.setattr(PostgresBackend, "_changed", lost)
            with pytest.raises(StorageUnavailable):
                store.restore("a")
        else:
            with losing, pytest.raises(SessionBusy):
                backend_of(store).restore("a", lambda: None)
            store.restore("a")
    with store.writer("a") as session:
        session.append("x", 1)
    assert events(store, "a") == [0, 1]


def test_a_row_that_no_hold_stands_behind_is_free(store: Store, postgres: Node) -> None:
    """A session that this process has by its row alone is nobody's."""
    backend = backend_of(store)
    found = backend._find("a")
    schema = backend._server.address.schema
    with postgres.connect() as connection:
        connection.execute(f"SET search_path = {schema}".encode())
        connection.execute(
            "UPDATE tails SET owner = %s, hold = 'gone' WHERE session = %s",
            (backend._presence.id, found.number),
        )
    with store.writer("a") as session:
        session.append("x", 1)
        # And one that a hold stands behind is not.
        with pytest.raises(SessionBusy):
            store.writer("a")


def test_who_failed_to_take_a_session_leaves_it_to_the_next(
    store: Store, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that was cut off while it took a session gives nothing back that is another's."""
    mine = backend_of(store)
    commit, pause = Server.commit, Attempts.pause
    broken: list[bool] = []
    taken: list[Any] = []
    with perdure.open(url, index=False) as other:
        theirs = backend_of(other)

        def cut(server: Server, work: Work, *, synced: bool = True) -> None:
            if server is mine._server and synced and not broken:
                broken.append(True)
                work.connection.close()
            commit(server, work, synced=synced)

        def between(attempts: Attempts) -> bool:
            if broken and not taken:
                taken.append(None)
                taken[0] = theirs.lock("a")
            return pause(attempts)

        with monkeypatch.context() as patched:
            patched.setattr(Server, "commit", cut)
            patched.setattr(Attempts, "pause", between)
            with pytest.raises(SessionBusy):
                mine.lock("a")
        hold = taken[0]
        assert isinstance(hold, PostgresHold)
        holder = mine.holder("a")
        assert holder is not None
        with pytest.raises(SessionBusy):
            mine.lock("a")
        hold.release()
        mine.lock("a").release()


def test_content_keeps_no_commit_waiting(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long content takes to be stored, the same session is appended to meanwhile."""
    put = content.store
    begun, ended = threading.Event(), threading.Event()

    def slow(*given: Any) -> None:
        put(*given)
        begun.set()
        assert ended.wait(SECONDS)

    monkeypatch.setattr(content, "store", slow)
    with store.writer("a") as session:
        thread = threading.Thread(target=lambda: session.put_blob(b"x" * 1000))
        thread.start()
        try:
            assert begun.wait(SECONDS)
            session.append("x", 1)
        finally:
            ended.set()
            thread.join()
        assert events(store, "a") == [0, 1]


def test_a_writer_is_waited_for_while_the_log_is_replaced(
    store: Store, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits for a session waits on when another log takes its place."""
    backend = backend_of(store)
    hold = own(backend.lock("a"))
    header = backend.stored("a").header
    assert header is not None
    records = [decode_line(line) for piece in backend.scan("a", 0) for line in piece.lines]
    got: list[Any] = []
    asked: list[int] = []
    with perdure.open(url, index=False) as other:
        waiting = backend_of(other)
        take = waiting._leases.take

        def tell(session: str, number: int, wait: float = 0.0) -> PostgresHold:
            asked.append(number)
            return take(session, number, wait)

        monkeypatch.setattr(waiting._leases, "take", tell)
        thread = threading.Thread(target=lambda: got.append(waiting.lock("a", wait=SECONDS)))
        thread.start()
        until(lambda: hold.number in asked, "nobody waits")
        for number in range(2):
            backend.replace(hold, header, records, place=f"repair-{number}", reason="test")
            until(lambda: hold.number in asked, "nobody waits for the new one")
        assert not got
        hold.release()
        thread.join(SECONDS)
        assert [each.number for each in got] == [hold.number]
        got[0].release()


def test_who_waits_for_nobody_is_told_soon(store: Store, postgres: Node) -> None:
    """A session of a writer that seems gone, and whose rows are locked, is busy."""
    backend = backend_of(store)
    found = backend._find("a")
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(f"SET search_path = {backend._server.address.schema}".encode())
        # As of a process whose connections broke, and which has not noticed.
        query = (
            "INSERT INTO writers (pid, host, since, beat_at, incarnation, held) SELECT pid, host,"
            " since, clock_timestamp() + interval '10 seconds', incarnation, held FROM writers"
            " LIMIT 1 RETURNING id"
        )
        (writer,) = connection.execute(query).fetchone() or (0,)
        connection.execute("UPDATE tails SET owner = %s WHERE session = %s", (writer, found.number))
        connection.execute("BEGIN")
        connection.execute("SELECT 1 FROM sessions WHERE session = %s FOR UPDATE", (found.number,))
        began = time.monotonic()
        with pytest.raises(SessionBusy):
            backend.lock("a")
        assert time.monotonic() - began < SECONDS / 3
        connection.execute("ROLLBACK")


def test_a_creation_of_which_the_answer_is_lost_for_good(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is tried after a lost answer, who cannot know what was stored says so."""
    with perdure.open(f"{node.url()}&timeout=1", index=False) as store:
        with store.create("a") as session:
            session.append("x", 0)
        commit = Server.commit
        lost: list[bool] = []

        def away(server: Server, work: Work, *, synced: bool = True) -> None:
            commit(server, work, synced=synced)
            if synced and not lost:
                lost.append(True)
                node.kill()
                raise Unsure

        header = new_header("b", created_at=1)
        records = seal(Position(-1, header.genesis), [draft("x", 0, time=1)])
        backend_of(store)._presence.enter("test")
        with monkeypatch.context() as patched:
            patched.setattr(Server, "commit", away)
            with pytest.raises(StorageUnavailable) as raised:
                backend_of(store).publish(header, records)
        assert raised.value.uncertain
        node.start()
        assert events(store, "b") == [0]
        with store.writer("b", wait=SECONDS) as again:
            again.append("x", 1)
        backend_of(store)._presence.leave("test")


# --- the sign of life ---------------------------------------------------------------------------


def test_half_a_sign_of_life_is_none(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer whose thread could not be started is begun anew, and holds what it takes then."""
    with perdure.open(url, index=False) as store, store.create("s") as session:
        session.append("x", 0)
    with perdure.open(url, index=False) as store, perdure.open(url, index=False) as other:
        backend = backend_of(store)

        def fail(*_: object) -> Any:
            raise OSError(24, "Too many open files")

        with monkeypatch.context() as patched:
            patched.setattr(socket, "socketpair", fail)
            with pytest.raises(OSError, match="Too many"):
                backend.lock("s")
        assert _connections_of(backend) == 0
        hold = backend.lock("s")
        with pytest.raises(SessionBusy):
            backend_of(other).lock("s", wait=1.0)
        hold.release()


def _connections_of(backend: PostgresBackend) -> int:
    return int(backend._presence._connection is not None)


def _connections(postgres: Node, schema: str) -> int:
    query = (
        "SELECT count(*) FROM pg_locks l WHERE l.locktype = 'advisory'"
        " AND l.classid = hashtext('perdure ' || %s)::oid"
    )
    return int(postgres.ask(query, schema))


def test_no_sign_of_life_comes_after_the_end(
    url: str, postgres: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that was closed while its thread was about to speak has no connection any more."""
    with perdure.open(url, index=False) as store:
        presence = backend_of(store)._presence
        speak = type(presence)._speak
        reached, go_on = threading.Event(), threading.Event()

        def late(self: Any, *, beats: bool) -> None:
            if self is presence and self._changed:
                reached.set()
                assert go_on.wait(SECONDS)
            speak(self, beats=beats)

        monkeypatch.setattr(type(presence), "_speak", late)
        session = store.create("s")
        session.append("x", 1)
        assert reached.wait(SECONDS)
        thread = presence._thread
        assert thread is not None
        session.close()
    go_on.set()
    thread.join(SECONDS)
    assert not thread.is_alive()
    assert presence._connection is None
    assert _connections(postgres, presence._server.address.schema) == 0


def test_what_was_changed_last_is_told_at_the_end(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever follows hears of the last change of a store that is closed right after it."""
    heard = threading.Event()
    with perdure.open(url, index=False) as reading, perdure.open(url, index=False) as writing:
        with writing.create("s") as session:
            session.append("x", 0)
        end = reading.subscribe("s", heard.set)
        assert end is not None
        # It is told of something that it began to hear of.
        assert heard.wait(SECONDS)
        found = backend_of(writing)._presence
        with writing.writer("s") as session:
            heard.clear()
            session.append("x", 1)
            assert heard.wait(SECONDS)
            until(lambda: not found._changed, "it does not tell")
            heard.clear()
            # From here on the thread never gets to it.
            monkeypatch.setattr(type(found), "_speak", lambda *_, **__: None)
            session.append("x", 2)
        writing.close()
        assert heard.wait(SECONDS)
        end()


def test_a_dropped_writer_of_nothing_is_counted_down(store: Store) -> None:
    """Room for a session that was dropped without being used keeps no sign of life alive."""
    backend = backend_of(store)
    header = backend.stored("a").header
    assert header is not None
    before = dict(backend._presence.tokens)
    hold = backend.stage(header)
    assert len(backend._presence.tokens) == len(before) + 1
    del hold
    backend._presence.tidy()
    assert backend._presence.tokens == before


# --- claims of the trash that could not be given back at once ------------------------------------


@contextmanager
def nothing_given_back() -> Iterator[None]:
    """Let what is given back fail, as over connections that break."""
    change = Server.change

    def refusing(server: Server, do: Any, **more: Any) -> Any:
        if more.get("patient") is False:
            raise StorageUnavailable(server.place, "it broke")
        return change(server, do, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Server, "change", refusing)
        yield


def claimed(node: Node, url: str) -> list[str]:
    """Return the ids of the sessions that somebody says to be moving."""
    schema = parse_address(url).schema
    with node.connect() as connection:
        connection.execute(f"SET search_path = {schema}".encode())
        found = connection.execute("SELECT id FROM sessions WHERE builder IS NOT NULL ORDER BY 1")
        return [bytes(id).decode() for (id,) in found]


def test_a_claim_of_before_keeps_nobody_of_this_process_away(postgres: Node, url: str) -> None:
    """What could not be given back at once keeps this process from nothing, and is given back."""
    with perdure.open(url) as store, perdure.open(url) as other:
        for name in ("s", "t"):
            store.create(name).append("x", 0)
        with nothing_given_back():
            store.delete("s")
            assert claimed(postgres, url) == ["s"]
            with pytest.raises(SessionBusy):
                other.restore("s")
            store.restore("s")
            store.delete("s")
            store.delete("t")
            assert claimed(postgres, url) == ["s", "t"]
        store.restore("s")
        store.create("u").append("x", 0)
        until(lambda: claimed(postgres, url) == [], "claims are given back")
        assert [each.id for each in other.trash()] == ["t"]
        other.delete("s")
        assert len(store.empty_trash()) == 2
