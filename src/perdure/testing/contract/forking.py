"""Forks: a session that is built out of another one of the same medium, and appears at once."""

from collections.abc import Iterator

import pytest

from perdure.errors import SessionNotFound
from perdure.model.header import new_header
from perdure.model.record import Position, Record
from perdure.store import Store
from perdure.testing.contract.medium import HEADER, lines, published, records_after, settled
from perdure.testing.contract.place import OPEN, TURN, ContractCase, Place, brief, dicts

__all__ = ["Forking"]

OTHER = new_header("other", created_at=6)


class Forking(ContractCase):
    """What it takes to make a session out of another one."""

    def test_records_to_publish_are_taken_one_by_one(self, place: Place) -> None:
        """A session is not there before its last record was taken, whatever is read meanwhile."""
        backend = place.backend()
        published(backend, HEADER, *(f"{n} " * 2_000 for n in range(40)))[0].release()
        records = records_after(Position(-1, OTHER.genesis), *(f"{n} " * 9_000 for n in range(99)))
        read = backend.scan("s", backend.stored("s").begin)

        def taken() -> Iterator[Record]:
            for record in records:
                next(read, None)
                with pytest.raises(SessionNotFound):
                    place.backend().stored("other")
                yield record

        hold = backend.publish(OTHER, taken())
        assert hold.position == records[-1].position
        more = records_after(hold.position, "more")
        backend.commit(hold, hold.position, more)
        hold.release()

        assert lines(place.backend(), "other") == [each.line for each in (*records, *more)]
        assert place.backend().tail("other").acknowledged == more[-1].position

    def test_nothing_is_published_if_the_records_end_badly(self, place: Place) -> None:
        """If the records cannot be taken to their end, there is no session; the room stays."""
        backend = place.backend()
        records = records_after(Position(-1, OTHER.genesis), *(f"{n} " * 9_000 for n in range(99)))

        def broken() -> Iterator[Record]:
            yield from records[:60]
            raise InterruptedError

        staged = backend.stage(OTHER)
        digest = backend.put_blob(staged, [b"content"]).digest
        for _ in range(2):
            with pytest.raises(InterruptedError):
                backend.publish(OTHER, broken(), staged)
            assert [entry.id for entry in place.backend().entries()] == []
        hold = backend.publish(OTHER, iter(records), staged)
        hold.release()
        staged.release()
        hold = settled(place.backend(), "other")
        assert hold.position == records[-1].position
        hold.release()

        assert lines(place.backend(), "other") == [record.line for record in records]
        assert [blob.digest for blob in place.backend().blobs("other")] == [digest]

    def test_a_fork_begins_like_its_parent(self, store: Store) -> None:
        """A fork has the parent's records up to a place outside its turns, and its own content."""
        # deepseek-harness 25; case 31
        with store.create("s") as session:
            digest = session.put_blob(b"content")
            session.append("note", {"blob": digest}, key="k")
            session.append_many([*TURN, *OPEN])
            with store.fork("s", new_id="c") as child:
                assert child.append("note", {"blob": digest}, key="k").seq == 0
                child.append("mine")
            session.append("theirs")
        inherited = list(store.raw("s"))[1 : len(TURN) + 2]

        assert list(store.raw("c"))[1 : len(TURN) + 2] == inherited
        assert brief(store.read_from("c", 7)) == [(7, "session/forked"), (8, "mine")]
        assert dicts(store.read_from("c"))[:7] == dicts(store.read_from("s"))[:7]
        store.delete("s")
        store.empty_trash()
        assert store.blob("c", digest) == b"content"
        assert store.lineage("c")[0].state == "deleted"
        assert store.verify("c").sound
