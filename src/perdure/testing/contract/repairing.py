"""Repair: another log in the place of a damaged one, and nothing that stood there is lost."""

from collections.abc import Callable, Iterator, Sequence

import pytest

from perdure.backends.base import Backend
from perdure.errors import InvalidValue, SessionClosed, SessionDamaged, SessionNotFound
from perdure.evidence import Seen
from perdure.model.event import draft
from perdure.model.header import new_header
from perdure.model.record import Position, Record, decode_line, seal
from perdure.store import Store
from perdure.testing.contract.medium import (
    HEADER,
    lines,
    published,
    records_after,
    settled,
    walked,
)
from perdure.testing.contract.place import TURN, ContractCase, Place, dicts

__all__ = ["Repairing"]

START = Position(-1, HEADER.genesis)
WHY = {"place": "repair-1", "reason": "it was damaged"}


def left(backend: Backend, commits: int = 4) -> list[Record]:
    """A session of several commits that nobody writes."""
    hold, records = published(backend)
    for number in range(commits):
        more = records_after(hold.position, f"{number} " * 800, number)
        backend.commit(hold, hold.position, more)
        records += more
    hold.release()
    return records


def kept(backend: Backend, place: str) -> bytes:
    """The bytes that are aside."""
    parts = backend.aside("s", place)
    assert parts is not None
    return b"".join(parts)


def forget_less(store: Store, id: str, last: int) -> None:
    """Let evidence remember that more was acknowledged than is there."""
    header = store.inspect(id).header
    assert header is not None
    position = Position(last, "ab" * 32)
    seen = Seen(id, header.digest, position, store._runtime.now_ms() + 1)  # noqa: SLF001
    store._backend.evidence.note([("", seen)])  # noqa: SLF001


class Repairing(ContractCase):
    """What a repair needs of a medium."""

    # --- the plan --------------------------------------------------------------------------------

    def test_a_plan_is_kept_until_it_is_removed(self, place: Place) -> None:
        """The plan of a repair is there for whoever comes next, whole, until it is removed."""
        backend = place.backend()
        left(backend)
        assert backend.plan("s") is None
        hold = backend.lock("s")

        for plan in (b'{"a":1}', b"", b"x" * 300_000):
            backend.set_plan(hold, plan)
            assert place.backend().plan("s") == plan
        hold.release()
        hold = place.backend().lock("s")
        backend.set_plan(hold, None)
        backend.set_plan(hold, None)
        hold.release()

        assert place.backend().plan("s") is None
        assert len(lines(backend)) == 11

    # --- another log in place --------------------------------------------------------------------

    def test_another_log_takes_the_place(self, place: Place) -> None:
        """After a replacement header and records are the new ones, and the hold writes on."""
        backend = place.backend()
        records = left(backend)
        before = backend.revision("s")
        header = new_header("s", created_at=6, preset="other", genesis=HEADER.genesis, seed=5)
        hold = backend.lock("s")
        # Whoever inherits a genesis is named by an event of its own.
        named = draft("session/forked", {"header": header.digest}, time=1)
        following = seal(records[4].position, [named, draft("x", "repaired", time=1)])

        backend.replace(hold, header, iter([*records[:5], *following]), **WHY)

        assert hold.position == following[-1].position == backend.tail("s").acknowledged
        more = records_after(hold.position, "next")
        backend.commit(hold, hold.position, more)
        hold.release()
        again = place.backend()
        wanted = [*records[:5], *following, *more]
        assert again.stored("s").header == header
        assert lines(again) == [record.line for record in wanted]
        assert again.revision("s") != before
        assert again.tail("s").acknowledged == wanted[-1].position
        assert [entry.header for entry in again.entries()] == [header]
        hold = settled(again)
        assert hold.position == wanted[-1].position
        hold.release()

    def test_what_stood_there_is_kept_once(self, place: Place) -> None:
        """The old log is aside, untouched, under its name and reason; at that name nothing else."""
        backend = place.backend()
        records = left(backend)
        hold = backend.lock("s")
        backend.replace(hold, HEADER, records[:3], **WHY)
        hold.release()
        [aside] = backend.asides("s")
        whole = kept(backend, "repair-1")
        assert (aside.place, aside.reason, aside.size) == ("repair-1", "it was damaged", len(whole))
        assert 0 < aside.set_at < place.runtime.now_ms()

        hold = backend.lock("s")
        backend.replace(hold, HEADER, records[:2], place="repair-1", reason="another one")
        hold.release()
        again = place.backend()
        assert [*again.asides("s")] == [aside]
        assert kept(again, "repair-1") == whole

        hold = again.lock("s")
        again.replace(hold, HEADER, records[:1], place="repair-2", reason="it was damaged again")
        hold.release()
        assert [each.place for each in again.asides("s")] == ["repair-1", "repair-2"]
        assert kept(again, "repair-2") != whole == kept(again, "repair-1")
        assert lines(again) == [records[0].line]

    def test_the_new_log_may_come_from_the_old_one(self, place: Place) -> None:
        """The records of the new log may be read from the old one while it is written."""
        backend = place.backend()
        records = left(backend, commits=60)
        begin = backend.stored("s").begin

        def read() -> Iterator[Record]:
            for piece in backend.scan("s", begin):
                for line in piece.lines:
                    yield decode_line(line)

        hold = backend.lock("s")
        backend.replace(hold, HEADER, read(), **WHY)
        hold.release()

        assert lines(place.backend()) == [record.line for record in records]

    def test_a_source_that_fails_changes_nothing(self, place: Place) -> None:
        """If the records cannot be read to their end, the old log stands as it stood."""
        backend = place.backend()
        records = left(backend)
        hold = backend.lock("s")

        def broken() -> Iterator[Record]:
            yield from records[:4]
            raise KeyError("broken")

        with pytest.raises(KeyError):
            backend.replace(hold, HEADER, broken(), **WHY)
        assert lines(backend) == [record.line for record in records]
        assert backend.tail("s").acknowledged == records[-1].position

        backend.replace(hold, HEADER, records[:4], **WHY)
        hold.release()
        assert lines(place.backend()) == [record.line for record in records[:4]]
        assert len([*backend.asides("s")]) == 1

    def test_a_reader_reads_one_of_the_two(self, place: Place) -> None:
        """Who reads while the log is replaced reads the old one to its end, or the new one."""
        backend = place.backend()
        records = left(backend, commits=60)
        begin = backend.stored("s").begin
        reading = backend.scan("s", begin)
        pieces = [next(reading)]
        hold = backend.lock("s")
        other = records_after(START, "another")
        backend.replace(hold, HEADER, other, **WHY)
        hold.release()
        pieces += reading

        seen = [line for piece in pieces for line in piece.lines]
        assert seen == [record.line for record in records]
        assert lines(backend) == [other[0].line]

    def test_content_stays(self, place: Place) -> None:
        """Content is not touched when the log is replaced."""
        backend = place.backend()
        hold, records = published(backend)
        blob = backend.put_blob(hold, [b"content"])
        hold.release()
        hold = backend.lock("s")
        backend.replace(hold, HEADER, records[:1], **WHY)
        hold.release()

        again = place.backend()
        assert [each.digest for each in again.blobs("s")] == [blob.digest]
        assert b"".join(again.blob("s", blob.digest) or ()) == b"content"

    def test_the_neighbours_stay(self, place: Place) -> None:
        """A session whose neighbour's log is replaced is as it was."""
        backend = place.backend()
        left(backend)
        published(backend, new_header("t", created_at=7), "a", "b")[0].release()
        before = lines(backend, "t"), backend.revision("t"), backend.tail("t")
        hold = backend.lock("s")
        backend.set_plan(hold, b"plan")
        backend.replace(hold, HEADER, records_after(START, "another"), **WHY)
        hold.release()

        assert (lines(backend, "t"), backend.revision("t"), backend.tail("t")) == before
        assert ([*backend.asides("t")], backend.plan("t")) == ([], None)

    # --- aside -----------------------------------------------------------------------------------

    def test_bytes_are_put_aside_once(self, place: Place) -> None:
        """What is put aside is there whole for everybody; the same place again changes nothing."""
        backend = place.backend()
        records = left(backend)
        hold = backend.lock("s")
        backend.put_aside(hold, iter([b"ab", b"", b"c" * 3_000_000]), place="b-2", reason="large")
        backend.put_aside(hold, [b"other"], place="b-2", reason="again")
        backend.put_aside(hold, [], place="a-1", reason="")
        hold.release()

        again = place.backend()
        found = [(each.place, each.reason, each.size) for each in again.asides("s")]
        assert found == [("b-2", "large", 3_000_002), ("a-1", "", 0)]
        assert kept(again, "b-2") == b"ab" + b"c" * 3_000_000
        assert kept(again, "a-1") == b""
        assert lines(again) == [record.line for record in records]

    def test_what_is_not_aside_is_not_found(self, place: Place) -> None:
        """A place that is not used gives nothing, whatever its name looks like."""
        backend = place.backend()
        left(backend)
        assert [*backend.asides("s")] == []
        for name in ("repair-1", "", "..", "../tail", "A", "x" * 500, "a/b", "\ud800", "a\0"):
            assert backend.aside("s", name) is None

    def test_a_place_needs_a_plain_name(self, place: Place) -> None:
        """Nothing is put aside under a name that a medium might not keep as it is."""
        backend = place.backend()
        records = left(backend)
        hold = backend.lock("s")
        for name in ("", "..", "A", "a/b", "a.b", "x" * 129, "a\n", "\u00e9"):
            with pytest.raises(InvalidValue):
                backend.put_aside(hold, [b"x"], place=name, reason="")
            with pytest.raises(InvalidValue):
                backend.replace(hold, HEADER, records[:1], place=name, reason="")
        hold.release()

        assert [*backend.asides("s")] == []
        assert lines(backend) == [record.line for record in records]

    def test_what_is_cut_off_is_aside(self, place: Place) -> None:
        """What a recovery cuts off a log is found aside, with the reason."""
        backend = place.backend()
        hold, records = published(backend)
        ending, seen = walked(backend).ending, hold.position
        backend.commit(hold, seen, records_after(seen, "cut off"))
        hold.release()
        hold = backend.lock("s")
        backend.settle(hold, ending, backend.tail("s").acknowledged)
        hold.release()

        again = place.backend()
        [aside] = again.asides("s")
        assert aside.reason == ending.reason
        assert len(kept(again, aside.place)) == aside.size > 0
        assert lines(again) == [record.line for record in records]

    # --- refusals --------------------------------------------------------------------------------

    def test_a_missing_session_has_nothing_aside(self, place: Place) -> None:
        """Plan and what is aside are asked of sessions that are there."""
        backend = place.backend()
        calls: Sequence[Callable[[str], object]] = (
            backend.plan,
            lambda id: [*backend.asides(id)],
            lambda id: backend.aside(id, "repair-1"),
        )
        for call in calls:
            with pytest.raises(SessionNotFound) as missing:
                call("nobody")
            assert missing.value.session == "nobody"

    def test_a_released_hold_repairs_nothing(self, place: Place) -> None:
        """After its release a hold neither plans nor replaces, and puts nothing aside."""
        backend = place.backend()
        records = left(backend)
        hold = backend.lock("s")
        hold.release()

        with pytest.raises(SessionClosed):
            backend.set_plan(hold, b"plan")
        with pytest.raises(SessionClosed):
            backend.replace(hold, HEADER, records[:1], **WHY)
        with pytest.raises(SessionClosed):
            backend.put_aside(hold, [b"x"], place="x", reason="")
        assert backend.plan("s") is None
        assert [*backend.asides("s")] == []
        assert lines(backend) == [record.line for record in records]

    # --- the store above -------------------------------------------------------------------------

    def test_a_session_goes_on_after_a_repair(self, place: Place) -> None:
        """Where acknowledged events are missing, a repair keeps the rest, says so, and all is well.

        The second repair finds nothing to do.
        """
        # heinzel 10
        store = place.store()
        store.create("s").append_many(TURN)
        store.close()
        store = place.store()
        events = dicts(store.read_from("s"))
        before = lines(store._backend)  # noqa: SLF001
        forget_less(store, "s", 8)
        with pytest.raises(SessionDamaged) as refused:
            store.writer("s")
        assert "perdure repair" in refused.value.hint
        foretold = store.repair("s", dry_run=True)
        assert (foretold.needed, foretold.done, foretold.sound) == (True, False, False)
        assert lines(store._backend) == before  # noqa: SLF001

        done = store.repair("s")

        assert done == foretold._replace(done=True)
        assert (done.kept, done.lost, done.later, done.aside) == (6, (6, 8), 0, "repair-1")
        store = place.store()
        report = store.verify("s")
        assert (report.status, report.sound, store.reports()) == ("ok", True, [])
        with store.writer("s") as session:
            assert session.append("x").seq == 7
        now = dicts(store.read_from("s"))
        assert now[:6] == events
        assert now[6]["type"] == "session/repaired"
        assert now[6]["data"] == {
            "problems": [each._asdict() for each in done.problems],
            "kept": 6,
            "aside": "repair-1",
            "acknowledged": 8,
            "lost": [6, 8],
            "later": 0,
            "salvaged": 0,
            "header_lost": False,
        }
        assert not store.repair("s").needed
        assert len([*store._backend.asides("s")]) == 1  # noqa: SLF001
