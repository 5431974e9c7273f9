"""Deleting and restoring whole sessions, and what is remembered of them beside their logs."""

from typing import Any

import pytest

from perdure.errors import InvalidValue, SessionBusy, SessionExists, SessionNotFound
from perdure.store import Store
from perdure.testing.contract.place import TURN, ContractCase, Place, dicts

__all__ = ["Deleting", "Namespaces"]


def written(store: Store, id: str = "s", *data: Any) -> list[dict[str, Any]]:
    """A closed session with one turn and some events, and content; its events."""
    with store.create(id, cwd="/w") as session:
        session.append_many(TURN)
        session.append("x", {"blob": session.put_blob(b"content")})
        for each in data:
            session.append("x", each)
    return dicts(store.read_from(id))


def listed(store: Store) -> list[str]:
    """The ids of all sessions."""
    return sorted(entry.id for entry in store.list())


class Deleting(ContractCase):
    """The trash, tombstones and evidence."""

    def test_a_deleted_session_is_gone_and_in_the_trash(self, place: Place) -> None:
        """It is neither listed nor read, its neighbours stay, and the error says what happened."""
        store = place.store()
        written(store)
        written(store, "sister")
        header = store.inspect("s").header
        gone = store.delete("s")

        assert header is not None
        assert (gone.id, gone.digest) == ("s", header.digest)
        for other in (store, place.store()):
            assert listed(other) == ["sister"]
            assert [(t.id, t.digest) for t in other.trash()] == [("s", header.digest)]
            calls = (other.inspect, other.writer, other.load, other.verify, other.delete)
            for call in (*calls, other.read_from, other.blobs):
                with pytest.raises(SessionNotFound) as missing:
                    call("s")
                assert missing.value.deleted_at == gone.deleted_at
                assert "restore" in missing.value.hint

    def test_a_restored_session_is_whole(self, place: Place) -> None:
        """Events, header, content and position come back as they were, and it can be written."""
        store = place.store()
        before = written(store)
        position, header = store.inspect("s").position, store.inspect("s").header
        digest = store.blobs("s")[0].digest
        store.delete("s")
        place.store().restore("s")

        assert listed(store) == ["s"]
        assert store.trash() == []
        assert dicts(store.read_from("s")) == before
        assert (store.inspect("s").position, store.inspect("s").header) == (position, header)
        assert store.blob("s", digest) == b"content"
        assert store.verify("s").status == "ok"
        with store.writer("s") as session:
            session.append("x", "more")

    def test_only_the_exact_id_is_deleted(self, store: Store) -> None:
        """A prefix, a pattern, or another case deletes nothing."""
        # case 17
        for id in ("deadbeef-1", "deadbeef-2", "A", "é"):
            written(store, id)
        for wrong in ("deadbeef", "deadbeef-", "deadbeef-*", "*", "a", "e\u0301", "deadbeef-1 "):
            with pytest.raises(SessionNotFound):
                store.delete(wrong)
        for none in ("", None, 5):
            with pytest.raises(InvalidValue):
                store.delete(none)  # type: ignore[arg-type]
        assert listed(store) == ["A", "deadbeef-1", "deadbeef-2", "é"]

    def test_a_session_that_is_written_is_not_deleted(self, place: Place) -> None:
        """Deleting under a writer is refused with who it is, and the writer goes on."""
        store = place.store()
        with store.create("s") as session:
            session.append("x", 0)
            for other in (store, place.store()):
                with pytest.raises(SessionBusy) as busy:
                    other.delete("s")
                assert busy.value.pid == place.runtime.pid()
            session.append("x", 1)
        store.delete("s")

    def test_nothing_brings_a_deleted_session_back_unasked(self, place: Place) -> None:
        """Its id stays taken: for new sessions, and for those that were begun before."""
        store, other = place.store(), place.store()
        begun = other.create("s")
        written(store)
        gone = store.delete("s")

        for emptied in (False, True):
            if emptied:
                store.empty_trash()
            with pytest.raises(SessionExists) as taken:
                place.store().create("s")
            assert taken.value.deleted_at == gone.deleted_at
            with pytest.raises(SessionExists) as late:
                begun.append("x")
            assert late.value.deleted_at == gone.deleted_at
            assert listed(store) == []

    def test_the_trash_is_emptied_on_request(self, place: Place) -> None:
        """All of it, one id, or what is old enough; what was emptied cannot be restored."""
        store = place.store()
        for id in ("a", "b", "c"):
            written(store, id)
            store.delete(id)
        assert store.empty_trash(older_than=3600) == []
        assert [t.id for t in store.empty_trash("b")] == ["b"]
        assert [t.id for t in store.trash()] == ["a", "c"]
        assert [t.id for t in store.empty_trash(older_than=0)] == ["a", "c"]
        assert store.empty_trash() == store.trash() == []
        for id in ("a", "b", "c"):
            with pytest.raises(SessionNotFound):
                place.store().restore(id)

    def test_a_forgotten_id_is_free(self, place: Place) -> None:
        """Only what is neither stored nor in the trash is forgotten; then the id can be used."""
        store = place.store()
        written(store)
        with pytest.raises(InvalidValue):
            store.forget("s")
        store.delete("s")
        with pytest.raises(InvalidValue):
            store.forget("s")
        store.empty_trash()
        store.forget("s")
        with place.store().create("s") as session:
            session.append("x", "another")
        assert [event.data for event in place.store().read_from("s")] == ["another"]
        assert place.store().verify("s").status == "ok"

    def test_restoring_takes_the_place_of_nothing(self, store: Store) -> None:
        """Only what is in the trash is restored."""
        written(store)
        with pytest.raises(SessionExists):
            store.restore("s")
        with pytest.raises(SessionNotFound):
            store.restore("t")

    def test_a_deletion_can_be_repeated(self, store: Store) -> None:
        """Deleted, restored and deleted again, a session is in the trash once, and is whole."""
        before = written(store)
        for _ in range(3):
            store.delete("s")
            assert [t.id for t in store.trash()] == ["s"]
            store.restore("s")
        assert dicts(store.read_from("s")) == before

    def test_archiving_is_an_event(self, store: Store) -> None:
        """Archived and taken back, both are on record and change nothing else."""
        before = written(store)
        store.archive("s")
        store.unarchive("s")
        events = dicts(store.read_from("s"))
        assert events[: len(before)] == before
        kinds = [event["type"] for event in events[len(before) :]]
        assert kinds == ["session/archived", "session/unarchived"]

    def test_compaction_changes_nothing_that_is_read(self, place: Place) -> None:
        """The same records with the same hashes, in no more room; the writer goes on."""
        store = place.store()
        with store.create("s") as session:
            for number in range(300):
                session.append("x", {"number": number, "text": "the same text again " * 5})
        before = (dicts(store.read_from("s")), store.inspect("s").position, [*store.raw("s")])
        result = store.compact("s")
        assert result.after <= result.before
        other = place.store()
        assert (dicts(other.read_from("s")), other.inspect("s").position) == before[:2]
        assert [*other.raw("s")] == before[2]
        assert other.verify("s").status == "ok"
        assert other.compact("s").after == result.after
        with other.writer("s") as session:
            assert session.append("x", "more").seq == 300
            assert session.compact().after <= session.compact().before
            assert session.append("x", "and more").seq == 301
        assert [event.seq for event in other.read_from("s", 299)] == [299, 300, 301]


class Namespaces(ContractCase):
    """Tenants of one medium."""

    def test_a_namespace_sees_its_own(self, place: Place) -> None:
        """The same id is another session in each namespace, in listing, reading and deleting."""
        root = place.store()
        stores = {
            "root": root,
            "a": root.namespace("a"),
            "a/b": root.namespace("a", "b"),
            "b": root.namespace("b"),
        }
        for name, store in stores.items():
            with store.create("s") as session:
                session.append("x", name)
        for name, store in stores.items():
            assert listed(store) == ["s"]
            assert [event.data for event in store.read_from("s")] == [name]
        again = place.store()
        assert again.namespaces() == ["a", "b"]
        assert again.namespace("a").namespaces() == ["b"]
        assert again.namespace("a").namespace("b").inspect("s").position == (
            stores["a/b"].inspect("s").position
        )

        stores["a"].delete("s")
        assert [listed(store) for store in stores.values()] == [["s"], [], ["s"], ["s"]]
        assert [len(store.trash()) for store in stores.values()] == [0, 1, 0, 0]
        with pytest.raises(SessionNotFound) as missing:
            again.namespace("c").inspect("s")
        assert missing.value.deleted_at is None
        again.namespace("a").restore("s")
        assert [event.data for event in stores["a"].read_from("s")] == ["a"]

    def test_locks_are_per_namespace(self, place: Place) -> None:
        """A writer in one namespace is no writer in another."""
        root = place.store()
        for store in (root, root.namespace("a")):
            with store.create("s") as session:
                session.append("x")
        with root.writer("s"), place.store().namespace("a").writer("s") as session:
            session.append("y")
            with pytest.raises(SessionBusy):
                root.namespace("a").writer("s")
            assert root.namespace("a").inspect("s").status == "running"

    @pytest.mark.parametrize("part", ["", None, 5, "x" * 1025])
    def test_what_names_no_namespace_is_refused(self, store: Store, part: Any) -> None:
        """A part is what could be the id of a session."""
        with pytest.raises(InvalidValue):
            store.namespace("a", part)

    def test_awkward_parts_are_distinct(self, place: Place) -> None:
        """Parts with slashes, dots, case and length never meet, and are told as they were given."""
        parts = ["a/b", "a", "A", "..", "ns", "sessions", "e\u0301", "\u00e9", "x" * 1024, "\ud800"]
        for number, part in enumerate(parts):
            with place.store().namespace(part).create("s") as session:
                session.append("x", number)
        assert sorted(place.store().namespaces()) == sorted(parts)
        for number, part in enumerate(parts):
            found = place.store().namespace(part)
            assert [event.data for event in found.read_from("s")] == [number]
        assert listed(place.store()) == []

    def test_looking_makes_nothing(self, place: Place) -> None:
        """A namespace in which nothing was stored is not there."""
        store = place.store().namespace("a", "b")
        assert (store.list(), store.trash(), store.namespaces()) == ([], [], [])
        with pytest.raises(SessionNotFound):
            store.inspect("s")
        assert place.store().namespaces() == []

    def test_closing_the_store_closes_its_namespaces(self, place: Place) -> None:
        """What is buffered below is stored when the store above is closed."""
        store = place.store()
        session = store.namespace("a").create("s")
        session.buffer("x", "buffered")
        store.close()
        assert session.closed
        found = place.store().namespace("a").read_from("s")
        assert [event.data for event in found] == ["buffered"]
