"""Creating, finding and listing: what exists, since when, and in which revision."""

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import InvalidValue, SessionExists, SessionNotFound
from perdure.runtime import SYSTEM
from perdure.store import Session, Store
from perdure.testing.contract.place import OPEN, TURN, ContractCase, Place, brief, dicts

__all__ = ["Finding"]

Operation = Callable[[Store, str], object]

OPERATIONS: dict[str, Operation] = {
    "inspect": lambda store, id: store.inspect(id),
    "load": lambda store, id: store.load(id),
    "writer": lambda store, id: store.writer(id),
    "prepare": lambda store, id: store.prepare(id),
    "read_from": lambda store, id: list(store.read_from(id)),
    "verify": lambda store, id: store.verify(id),
    "append": lambda store, id: store.append(id, [{"type": "x"}]),
    "append nothing": lambda store, id: store.append(id, []),
}


def revisions(store: Store) -> dict[str, str]:
    """What a listing says of each session's state."""
    return {entry.id: entry.revision for entry in store.list_snapshots()}


class Finding(ContractCase):
    """What is there, and what is not there yet."""

    @pytest.mark.parametrize("created_at", [1.5, -1, -0.5, 2**53, True, "0", float("nan")])
    def test_a_bad_creation_time_leaves_the_id_free(self, store: Store, created_at: Any) -> None:
        """A fractional, negative or impossible creation time is refused; the id is free."""
        # deepseek-harness 2
        with pytest.raises(InvalidValue) as refused:
            store.create("s", created_at=created_at)
        assert refused.value.path == "created_at"

        with store.create("s", created_at=1234) as session:
            session.append("x")
        header = store.inspect("s").header
        assert header is not None
        assert header.created_at == 1234

    def test_a_session_appears_with_its_first_append(self, place: Place) -> None:
        """A created session is nowhere until something of it is durable, then it is everywhere."""
        # deepseek-harness 6, 16
        store = place.store()
        session = store.create("s")
        session.append_many([])
        session.flush()
        assert store.list() == store.list_snapshots() == []
        with pytest.raises(SessionNotFound):
            store.inspect("s")

        session.append("x")

        assert [entry.id for entry in store.list()] == ["s"]
        assert brief(store.inspect("s").events) == [(0, "x")]
        session.close()

    def test_what_an_index_follows_is_what_is_listed(self, place: Place) -> None:
        """Revisions can be had without headers, and are those of the listing."""
        store = place.store()
        backend = store._backend  # noqa: SLF001 - what an index asks of it
        for id in ("s", "t", "long " * 100, "\ud800"):
            with store.create(id) as session:
                session.append("x")
        store.delete("t")
        assert dict(backend.revisions()) == revisions(store)
        assert len(revisions(store)) == 3

    def test_an_arrangement_is_another_one_when_sessions_come_or_go(self, place: Place) -> None:
        """A medium that can tell tells it of each that came or went, and of no append."""
        store = place.store()
        backend = store._backend  # noqa: SLF001 - what an index asks of it
        seen: list[str | None] = [backend.arrangement()]

        def changed() -> None:
            found = backend.arrangement()
            assert found is None or found not in seen
            seen.append(found)

        for id in ("s", "t"):
            with store.create(id) as session:
                session.append("x")
            changed()
        settled = backend.arrangement()
        store.append("s", [{"type": "x"}])
        assert None in (settled, backend.arrangement()) or backend.arrangement() == settled
        store.delete("s")
        changed()
        with store.create("u") as session:
            session.append("x")
        changed()

    def test_whoever_watches_sees_a_change(self, place: Place) -> None:
        """Waiting ends with a change that another process made, told of or looked for."""
        store, other = place.store(), place.store()
        with other.create("s") as session:
            session.append("x")
            seen = store.revision("s")
            heard = threading.Event()
            end = store.subscribe("s", heard.set)
            assert store.watch("s", seen, 0.0) == seen
            changing = threading.Thread(target=session.append, args=("x",))
            changing.start()
            found = seen
            for _ in range(1000):
                if (found := store.watch("s", seen, 5.0)) != seen:
                    break
            changing.join()
            assert found == store.revision("s") != seen
            if end is not None:
                # A medium that says it tells, does.
                assert heard.wait(30)
                end()
        store.delete("s")
        with pytest.raises(SessionNotFound):
            store.watch("s", found, 0.0)

    def test_a_session_that_was_abandoned_leaves_nothing(self, store: Store) -> None:
        """A session created and closed without an append is gone; its id can be used again."""
        # deepseek-harness 33, 36
        store.create("s", cwd="/first").close()
        with store.create("s", cwd="/second") as session:
            session.append("x")

        assert [entry.header and entry.header.cwd for entry in store.list()] == ["/second"]

    @pytest.mark.parametrize("operation", OPERATIONS.values(), ids=list(OPERATIONS))
    def test_a_missing_session_is_not_found(self, place: Place, operation: Operation) -> None:
        """Every operation on an id that is not stored says so and names it."""
        # deepseek-harness 8, 45
        store = place.store()
        for _ in range(2):
            with pytest.raises(SessionNotFound) as missing:
                operation(store, "nobody")
            assert missing.value.session == "nobody"
            with store.create("somebody") as session:
                session.append("x")
            store = place.elsewhere().store()

    @pytest.mark.parametrize("operation", OPERATIONS.values(), ids=list(OPERATIONS))
    @pytest.mark.parametrize("id", ["", "x" * 1025, None, 5])
    def test_what_is_no_id_is_refused(self, store: Store, operation: Operation, id: Any) -> None:
        """An id that cannot be is an invalid value, not a missing session."""
        with pytest.raises(InvalidValue) as refused:
            operation(store, id)
        assert refused.value.path == "id"

    def test_an_empty_batch_does_nothing(self, store: Store) -> None:
        """Appending no events changes nothing, for a stored session and for one that is not."""
        # deepseek-harness 44
        session = store.create("s")
        assert session.append_many([]) == []
        assert store.append("s", []) == []
        assert store.list() == []
        session.append("x")
        before = revisions(store)
        assert session.append_many([]) == []
        assert store.append("s", []) == []
        session.close()

        assert store.append("s", []) == []
        assert revisions(store) == before

    def test_the_first_append_wins(self, place: Place) -> None:
        """Two writers may create one id; the first durable append claims it, whole."""
        # deepseek-harness 36, 46
        first = place.store().create("s", cwd="/first")
        second = place.store().create("s", cwd="/second")
        second.append("x", "from the second")
        with pytest.raises(SessionExists) as lost:
            first.append("x", "from the first")
        assert lost.value.session == "s"
        first.close()
        second.append("x", "again")
        second.close()

        found = place.store().inspect("s")

        assert found.header == second.header
        assert [event.data for event in found.events] == ["from the second", "again"]

    def test_a_stored_id_is_taken(self, place: Place) -> None:
        """Creating an id that is stored is refused at the call, whoever stored it."""
        # deepseek-harness 32, 37, 46
        store = place.store()
        with store.create("s") as session:
            session.append("x")
            with pytest.raises(SessionExists):
                store.create("s")
        store.load("s")
        for again in (store, place.store()):
            with pytest.raises(SessionExists):
                again.create("s")

        assert brief(store.read_from("s")) == [(0, "x")]

    @pytest.mark.parametrize(
        ("winner", "loser"), [("/a", "/b"), ("/a", None), (None, "/b"), ("/a", "/a")]
    )
    def test_an_id_is_one_whatever_the_folder(
        self, place: Place, winner: str | None, loser: str | None
    ) -> None:
        """Another working directory makes no other session: who stores first has the id."""
        # deepseek-harness 40, 41, 42
        waiting = place.store().create("s", cwd=loser)
        with place.store().create("s", cwd=winner) as session:
            session.append("x", "the winner's")
        with pytest.raises(SessionExists):
            waiting.append("x", "the loser's")
        waiting.close()

        seed = list(place.store().load("s").events)
        for store in (place.store(), place.store()):
            with pytest.raises(SessionExists):
                store.create("s", cwd=loser)
            with pytest.raises(InvalidValue):
                store.append("s", seed)
        header = place.store().inspect("s").header
        assert header is not None
        assert header.cwd == winner
        assert [event.data for event in place.store().read_from("s")] == ["the winner's"]

    def test_one_of_many_creators_wins(self, place: Place) -> None:
        """When threads race to create one id, one session is stored, and it is the winner's."""
        place.runtime.on_sleep = partial(SYSTEM.sleep, 0.001)
        writers = [place.store().create("s", cwd=f"/{n}") for n in range(6)]
        barrier = threading.Barrier(len(writers))
        won: list[Session] = []

        def race(session: Session) -> None:
            barrier.wait()
            try:
                session.append("x", session.header.cwd)
            except SessionExists:
                return
            won.append(session)

        threads = [threading.Thread(target=race, args=(session,)) for session in writers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert len(won) == 1
        found = place.store().inspect("s")
        assert found.header == won[0].header
        assert [event.data for event in found.events] == [won[0].header.cwd]
        for session in writers:
            session.close()

    def test_reading_from_a_number(self, place: Place) -> None:
        """`read_from` gives the exact suffix; at the end and beyond it is empty, never an error."""
        # deepseek-harness 8
        with place.store().create("s") as session:
            written = [*session.append_many(TURN), *session.append_many(OPEN)]
        store = place.store()

        for seq in (0, 3, 6, 7):
            assert dicts(store.read_from("s", seq)) == dicts(written[seq:])
        for seq in (8, 9, 108, 2**60):
            assert list(store.read_from("s", seq)) == []
        for bad in (-1, 1.5, True, "0", None):
            with pytest.raises(InvalidValue) as refused:
                store.read_from("s", bad)  # type: ignore[arg-type]
            assert refused.value.path == "seq"

    def test_reading_some_types(self, store: Store) -> None:
        """`types` leaves out the others and keeps the numbers."""
        with store.create("s") as session:
            session.append_many([*TURN, *OPEN])

        read = store.read_from("s", 1, types=("step/start", "turn/end"))

        assert brief(read) == [(2, "step/start"), (5, "turn/end"), (7, "step/start")]
        assert list(store.read_from("s", types=())) == []

    def test_a_revision_tells_of_changes(self, place: Place) -> None:
        """A revision is the same until something is stored, then it is another one."""
        # deepseek-harness 9
        store = place.store()
        with store.create("s") as session:
            session.append_many(TURN)
            seen = [revisions(store), revisions(place.store())]
            assert seen[0] == seen[1]
            for _ in range(3):
                session.append("x")
                assert revisions(store) not in seen
                seen.append(revisions(store))

        assert revisions(place.store()) == seen[-1]

    def test_reading_changes_no_revision(self, place: Place) -> None:
        """Listing, inspecting, reading, verifying, and loading what is closed change nothing."""
        store = place.store()
        with store.create("s") as session:
            session.append_many(TURN)
        before = revisions(store)

        dicts(store.inspect("s").events)
        assert store.inspect("s").problems == []
        dicts(store.read_from("s", 3))
        assert store.verify("s").status == "ok"
        store.load("s")
        store.writer("s").close()
        store.prepare("s").close()

        assert revisions(store) == revisions(place.store()) == before

    def test_revisions_of_two_stores_differ(self, place: Place) -> None:
        """The same session in two stores never has the same revision."""
        listed = []
        for where in (place, place.elsewhere()):
            store = where.store()
            with store.create("s", created_at=0) as session:
                session.append("x", time=0)
            listed.append(revisions(store))

        assert set(listed[0]) == set(listed[1]) == {"s"}
        assert listed[0]["s"] != listed[1]["s"]

    def test_a_listing_has_every_session_once(self, place: Place) -> None:
        """A listing shows each session once, with its header, in the same order each time."""
        store = place.store()
        ids = [f"s{n}" for n in range(30)]
        for id in reversed(ids):
            with store.create(id) as session:
                session.append("x")

        entries = place.store().list()

        assert sorted(entry.id for entry in entries) == sorted(ids)
        assert [entry.problem for entry in entries] == [None] * 30
        assert [entry.header and entry.header.id for entry in entries] == [e.id for e in entries]
        assert entries == place.store().list() == store.list_snapshots()

    def test_a_location_is_known_before_it_exists(self, place: Place) -> None:
        """`locate` names the log's absolute path where there are files, and nothing elsewhere."""
        store = place.store()
        session = store.create("a/b")
        before = store.locate(session.header)
        session.append("x")
        session.close()

        assert store.locate("a/b") == before
        assert (before is not None) == self.has_files
        if before is not None:
            assert Path(before).is_absolute()
            assert Path(before).is_file()
            assert not Path(str(store.locate("nobody"))).exists()

    def test_sessions_outlive_the_store_as_declared(self, place: Place) -> None:
        """Another backend at the same place sees what was stored, if the backend declares so."""
        first = place.backend()
        with Store(first, runtime=place.runtime).create("s") as session:
            session.append("x")

        another = place.backend()

        assert (another is not first) == self.survives_reopen
        assert [entry.id for entry in another.entries()] == ["s"]
        assert list(place.elsewhere().backend().entries()) == []
