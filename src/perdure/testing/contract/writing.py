"""Appending: order, keys, one writer at a time, and what callers may do at once."""

import threading
from typing import Any

import msgspec
import pytest

from perdure.errors import (
    InvalidValue,
    KeyConflict,
    SessionBusy,
    SessionClosed,
    SessionExists,
)
from perdure.store import Store
from perdure.testing.contract.finding import revisions
from perdure.testing.contract.place import TURN, ContractCase, Place, brief, dicts

__all__ = ["Writing"]


class Writing(ContractCase):
    """Who may append what, and where it lands."""

    def test_appending_continues_the_log(self, place: Place) -> None:
        """Each writer goes on where the log ends; the store may append without keeping one."""
        # deepseek-harness 43
        with place.store().create("s") as session:
            assert session.append("x").seq == 0
            assert session.position.seq == 0
        with place.store().writer("s") as session:
            assert [event.seq for event in session.append_many(TURN)] == [1, 2, 3, 4, 5, 6]
        appended = place.store().append("s", [{"type": "y"}, {"type": "z", "seq": 8}])
        moved = [msgspec.structs.replace(event, seq=event.seq + 2) for event in appended]
        copied = place.store().append("s", moved)

        assert [event.seq for event in (*appended, *copied)] == [7, 8, 9, 10]
        assert [e.type for e in place.store().read_from("s", 7)] == ["y", "z", "y", "z"]

    @pytest.mark.parametrize("seqs", [[0], [0, 1], [5], [7], [6, 8], [6, 6], [6, 5], [-1], [6.0]])
    def test_numbers_that_do_not_continue_are_refused(self, place: Place, seqs: list[Any]) -> None:
        """A batch that restates stored numbers or has a hole is refused whole."""
        # deepseek-harness 10, 11; case 11
        store = place.store()
        with store.create("s") as session:
            session.append_many(TURN)
        before = revisions(store)

        with pytest.raises(InvalidValue) as refused:
            store.append("s", [{"type": "x", "seq": seq} for seq in seqs])

        assert refused.value.path.endswith("seq")
        assert revisions(store) == before
        assert len(list(store.read_from("s"))) == 6

    def test_a_session_that_is_open_here_takes_what_the_store_appends(self, store: Store) -> None:
        """`store.append` reaches a session of this store that is open, stored or not."""
        session = store.create("s")
        session.buffer("first")
        assert [event.seq for event in store.append("s", [{"type": "x", "seq": 1}])] == [1]
        assert session.append("y").seq == 2
        session.close()

        assert brief(store.read_from("s")) == [(0, "first"), (1, "x"), (2, "y")]

    # --- keys ------------------------------------------------------------------------------------

    def test_a_repeated_key_returns_the_first_event(self, place: Place) -> None:
        """The same key with an equal value and turn gives the original; nothing is stored twice."""
        # heinzel 1, 6
        store = place.store()
        with store.create("s") as session:
            first = session.append("pay", {"a": 1, "b": [2]}, key="k", turn="t")
            before = revisions(store)
            again = session.append("pay", {"b": [2], "a": 1}, key="k", turn="t", time=0)
            assert again == first
            assert revisions(store) == before
        with place.store().writer("s") as session:
            assert session.append("pay", {"a": 1, "b": [2]}, key="k", turn="t") == first
            assert session.append("x").seq == 1

        assert len(list(place.store().read_from("s"))) == 2

    @pytest.mark.parametrize(
        "other",
        [
            {"data": {"a": 2}},
            {"data": {"a": 1.0}},
            {"data": None},
            {"turn": "t2"},
            {"turn": None},
        ],
    )
    def test_a_key_belongs_to_one_fact(self, place: Place, other: dict[str, Any]) -> None:
        """The same key with other data or another turn is refused, and nothing is stored."""
        # heinzel 6
        fact = {"type": "pay", "data": {"a": 1}, "turn": "t", "key": "k"}
        store = place.store()
        with store.create("s") as session:
            session.append("x")
            session.append_many([fact])
            before = revisions(store)
        for batch in ([{**fact, **other}], [{"type": "x"}, {**fact, **other}]):
            with pytest.raises(KeyConflict) as conflict:
                place.store().append("s", batch)
            assert (conflict.value.type, conflict.value.key) == ("pay", "k")
            assert (conflict.value.seq, conflict.value.session) == (1, "s")

        assert revisions(store) == before

    def test_a_key_is_a_key_of_its_type(self, store: Store) -> None:
        """The same key under another type names another fact, and so does none."""
        # heinzel 6
        with store.create("s") as session:
            seqs = [
                session.append("pay", 1, key="k").seq,
                session.append("refund", 1, key="k").seq,
                session.append("pay", 1, key="k2").seq,
                session.append("pay", 1).seq,
                session.append("pay", 1).seq,
            ]

        assert seqs == [0, 1, 2, 3, 4]

    def test_keys_hold_inside_one_batch(self, store: Store) -> None:
        """A batch may repeat its own key; one that contradicts itself is refused whole."""
        one = {"type": "pay", "data": 1, "key": "k"}
        with store.create("s") as session:
            with pytest.raises(KeyConflict):
                session.append_many([{"type": "x"}, one, {**one, "data": 2}])
            assert session.position.seq == -1
            events = session.append_many([{"type": "x"}, one, one, {"type": "y"}, one])
            assert session.append("pay", 1, key="k") == events[1]

        assert [event.seq for event in events] == [0, 1, 1, 2, 1]
        assert brief(store.read_from("s")) == [(0, "x"), (1, "pay"), (2, "y")]

    def test_keys_hold_while_buffered(self, store: Store) -> None:
        """A key counts as soon as its event is accepted; its repeat is durable when it returns."""
        with store.create("s") as session:
            first = session.buffer("pay", 1, key="k")
            assert session.buffer("pay", 1, key="k") == first
            with pytest.raises(KeyConflict):
                session.buffer("pay", 2, key="k")
            assert session.append("pay", 1, key="k") == first
            assert session.position.seq == 0

        assert brief(store.read_from("s")) == [(0, "pay")]

    # --- one writer ------------------------------------------------------------------------------

    def test_a_second_writer_is_refused(self, place: Place) -> None:
        """One writer at a time: the second is told who writes, readers never wait."""
        # heinzel 3; case 10
        runtime = place.runtime
        session = place.store().create("s")
        session.append("x")

        for store in (place.store(), place.store()):
            with pytest.raises(SessionBusy) as busy:
                store.writer("s")
            assert (busy.value.pid, busy.value.host) == (runtime.pid(), runtime.host())
            assert busy.value.since is not None
            assert busy.value.retryable
            assert brief(store.read_from("s")) == [(0, "x")]
            holder = store.inspect("s").holder
            assert holder is not None
            assert holder.pid == runtime.pid()
        session.close()

        with place.store().writer("s") as following:
            assert following.append("y").seq == 1
        assert place.store().inspect("s").holder is None

    def test_a_second_writer_may_wait(self, place: Place) -> None:
        """With `wait` the second writer gets the session as soon as the first gives it back."""
        # heinzel 3
        first = place.store().create("s")
        first.append("x")
        place.runtime.on_sleep = first.close

        with place.store().writer("s", wait=60) as second:
            assert second.append("y").seq == 1
        assert place.runtime.monotonic() < 60

    def test_waiting_ends(self, place: Place) -> None:
        """A writer that does not get the session within `wait` seconds is refused."""
        first = place.store().create("s")
        first.append("x")
        began = place.runtime.monotonic()

        with pytest.raises(SessionBusy):
            place.store().writer("s", wait=3)

        assert 3 <= place.runtime.monotonic() - began < 4
        first.close()

    def test_sessions_are_written_side_by_side(self, place: Place) -> None:
        """Writers of different sessions do not hinder each other."""
        # heinzel 3
        one, other = place.store().create("one"), place.store().create("other")
        for number in range(5):
            assert one.append("x", number).seq == other.append("x", -number).seq == number
        one.close()
        other.close()

        assert [e.data for e in place.store().read_from("other")] == [0, -1, -2, -3, -4]

    def test_a_closed_writer_writes_nothing(self, place: Place) -> None:
        """After its end a writer refuses every call that writes; closing again does no harm."""
        # heinzel 5
        store = place.store()
        with store.create("s") as session:
            session.append("x")
        before = revisions(store)

        for call in (
            lambda: session.append("y"),
            lambda: session.append_many([{"type": "y"}]),
            lambda: session.append_many([]),
            lambda: session.buffer("y"),
            session.flush,
        ):
            with pytest.raises(SessionClosed) as closed:
                call()
            assert closed.value.session == "s"
        session.close()
        store.writer("s").close()

        assert revisions(store) == before

    # --- buffering and sharing -------------------------------------------------------------------

    def test_buffered_events_are_stored_by_a_flush(self, place: Place) -> None:
        """`buffer` numbers events at once; after `flush` they are stored, from the first on."""
        # deepseek-harness 13, 51
        session = place.store().create("s", cwd="/w")
        buffered = [session.buffer("x", n) for n in range(100)]
        session.flush()

        found = place.store().inspect("s")
        assert dicts(found.events) == dicts(buffered)
        assert session.position.seq == 99
        assert found.header == session.header
        session.close()

    def test_buffered_events_come_before_the_next_append(self, place: Place) -> None:
        """A durable append stores what was buffered before it, in order."""
        session = place.store().create("s")
        session.buffer("x", 0)
        session.buffer("x", 1)
        assert session.append("x", 2).seq == 2

        assert [event.data for event in place.store().read_from("s")] == [0, 1, 2]
        session.close()

    def test_closing_stores_what_is_buffered(self, place: Place) -> None:
        """Closing a session, or its store, stores what was buffered before the id is given up."""
        # deepseek-harness 28, 34
        store = place.store()
        for number, id in enumerate(("session", "store")):
            session = store.create(id)
            session.append("x")
            session.buffer("x", number)
            if id == "session":
                session.close()
        store.close()

        again = place.store()
        assert [[e.data for e in again.read_from(id)] for id in ("session", "store")] == [
            [None, 0],
            [None, 1],
        ]
        for id in ("session", "store"):
            with pytest.raises(SessionExists):
                again.create(id)

    def test_what_is_said_twice_is_stored_once(self, place: Place) -> None:
        """Flushing and closing again, and asking for the writer again, double nothing."""
        # deepseek-harness 35
        store = place.store()
        session = store.create("s")
        buffered = [session.buffer("x", n) for n in range(3)]
        session.flush()
        session.flush()
        before = revisions(store)
        session.flush()
        session.close()
        session.close()
        for again in (store, place.store()):
            again.writer("s").close()
            again.close()

        store = place.store()
        assert dicts(store.read_from("s")) == dicts(buffered)
        assert revisions(store) == before

    # --- what was read somewhere goes in again ---------------------------------------------------

    def test_a_seed_is_stored_once(self, place: Place) -> None:
        """A new session may begin with the events of another; a flush adds nothing to them."""
        # deepseek-harness 25, 26
        store = place.store()
        with store.create("s") as session:
            session.append_many(TURN)
        seed = list(store.load("s").events)

        copy = store.create("copy")
        assert store.append("copy", seed) == seed
        before = revisions(store)
        copy.flush()
        assert copy.append_many([]) == []
        assert revisions(store) == before
        assert copy.append("turn/start", {}, turn="t2").seq == len(seed)
        copy.append("turn/end", {"reason": "completed"}, turn="t2")
        copy.close()

        again = place.store()
        assert dicts(again.read_from("copy"))[:-2] == dicts(seed) == dicts(again.read_from("s"))
        assert brief(again.load("copy").events)[-2:] == [(6, "turn/start"), (7, "turn/end")]

    def test_a_log_that_is_stated_again_adds_nothing(self, place: Place) -> None:
        """Who opens a writer on what he has read goes on behind it; saying it again is refused."""
        # deepseek-harness 26, 38
        with place.store().create("s") as session:
            session.append_many(TURN)
        store = place.store()
        seed = list(store.load("s").events)
        before = revisions(store)

        store.writer("s").close()
        for writer_is_open in (False, True):
            writer = store.writer("s") if writer_is_open else None
            with pytest.raises(InvalidValue) as refused:
                store.append("s", seed)
            assert refused.value.path.endswith("seq")
            if writer is not None:
                writer.close()

        assert revisions(store) == before
        with store.writer("s") as session:
            assert session.append("x").seq == len(seed)
        assert dicts(place.store().read_from("s"))[:-1] == dicts(seed)

    def test_only_what_is_new_of_a_longer_log_is_stored(self, place: Place) -> None:
        """Of a copy that went further the new end is taken, by its numbers; the header stays."""
        # deepseek-harness 39
        store, other = place.store(), place.elsewhere().store()
        for where, created_at in ((store, 1), (other, 2)):
            with where.create("s", created_at=created_at) as session:
                session.append_many({**event, "time": 0} for event in TURN)
        with other.writer("s") as session:
            session.append("note", "only in the copy")
        longer = list(other.load("s").events)

        with pytest.raises(InvalidValue):
            store.append("s", longer)
        assert store.append("s", longer[len(TURN) :]) == longer[len(TURN) :]

        found = place.store().inspect("s")
        assert dicts(found.events) == dicts(longer)
        assert found.header is not None
        assert found.header.created_at == 1

    def test_many_threads_share_one_session(self, place: Place) -> None:
        """Threads that append at once lose nothing, leave no gap, and keep their own order."""
        session = place.store().create("s")
        threads_count, each = 8, 12
        barrier = threading.Barrier(threads_count)
        returned: list[list[tuple[int, Any]]] = [[] for _ in range(threads_count)]

        def write(number: int) -> None:
            barrier.wait()
            for step in range(each):
                data = [number, step]
                if step % 3 == 1:
                    events = session.append_many(
                        [{"type": "x", "data": [*data, n]} for n in (0, 1)]
                    )
                elif step % 3 == 2:
                    events = [session.buffer("x", data), session.append("x", [*data, "end"])]
                else:
                    events = [session.append("x", data)]
                assert session.position.seq >= events[-1].seq
                returned[number] += [(event.seq, event.data) for event in events]

        threads = [threading.Thread(target=write, args=(n,)) for n in range(threads_count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        session.close()

        stored = [(event.seq, event.data) for event in place.store().read_from("s")]
        assert [seq for seq, _ in stored] == list(range(threads_count * each * 5 // 3))
        assert sorted(pair for pairs in returned for pair in pairs) == stored
        assert all(pairs == sorted(pairs) for pairs in returned)
