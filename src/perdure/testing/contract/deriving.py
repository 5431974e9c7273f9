"""Derived data: kept beside a log, appended to by comparison, and never in the way of the log."""

import pytest

from perdure.errors import InvalidValue, SessionClosed, SessionNotFound
from perdure.model.header import new_header
from perdure.testing.contract.medium import (
    HEADER,
    lines,
    published,
    records_after,
    settled,
)
from perdure.testing.contract.place import ContractCase, Place

__all__ = ["Deriving"]

SOME = (b"", b"\0", b"a line\n" * 3, bytes(range(256)) * 12_000)
NO_NAMES = ("", "A", "a/b", "..", "a_b", "x" * 65, "é")


class Deriving(ContractCase):
    """What can be made from the log again."""

    def test_derived_bytes_are_kept_by_name(self, place: Place) -> None:
        """What is put under a name is there, whole, until other bytes take its place."""
        backend = place.backend()
        hold, _ = published(backend)
        assert backend.derived("s", "one") is None

        for data in (*SOME, *reversed(SOME)):
            backend.put_derived(hold, "one", data)
            assert backend.derived("s", "one") == data
            assert place.backend().derived("s", "one") == data
        backend.put_derived(hold, "x" * 64, b"other")
        hold.release()

        assert backend.derived("s", "one") == b""
        assert backend.derived("s", "x" * 64) == b"other"
        assert backend.derived("s", "two") is None

    def test_derived_bytes_are_appended(self, place: Place) -> None:
        """With `at` bytes are added behind those that are there; the first may stand at 0."""
        backend = place.backend()
        hold, _ = published(backend)
        whole = b""
        for data in (*SOME, b"end", *SOME):
            backend.put_derived(hold, "one", data, at=len(whole))
            whole += data
            assert backend.derived("s", "one") == whole
        hold.release()
        hold = settled(place.backend())
        place.backend().put_derived(hold, "one", b"later", at=len(whole))
        hold.release()

        assert place.backend().derived("s", "one") == whole + b"later"

    def test_an_append_at_another_place_is_refused(self, place: Place) -> None:
        """Bytes that would leave a gap or overlap are refused, and nothing changes."""
        backend = place.backend()
        hold, _ = published(backend)
        for at in (1, 4, 10**9):
            with pytest.raises(InvalidValue):
                backend.put_derived(hold, "one", b"more", at=at)
        assert backend.derived("s", "one") is None
        backend.put_derived(hold, "one", b"some")

        for at in (0, 3, 5, 10**9):
            with pytest.raises(InvalidValue):
                backend.put_derived(hold, "one", b"more", at=at)
        backend.put_derived(hold, "one", b" more", at=4)
        hold.release()

        assert backend.derived("s", "one") == b"some more"

    def test_derived_bytes_are_dropped(self, place: Place) -> None:
        """What was dropped is not there any more; dropping what is not there does nothing."""
        backend = place.backend()
        hold, _ = published(backend)
        backend.drop_derived(hold, "one")
        backend.put_derived(hold, "one", b"1")
        backend.put_derived(hold, "two", b"2")

        backend.drop_derived(hold, "one")
        backend.drop_derived(hold, "one")

        assert (backend.derived("s", "one"), backend.derived("s", "two")) == (None, b"2")
        backend.put_derived(hold, "one", b"new", at=0)
        hold.release()
        assert place.backend().derived("s", "one") == b"new"

    @pytest.mark.parametrize("name", NO_NAMES)
    def test_a_name_is_checked(self, place: Place, name: str) -> None:
        """A name is 1 to 64 lower-case letters, digits and hyphens, and nothing else."""
        backend = place.backend()
        hold, _ = published(backend)
        with pytest.raises(InvalidValue):
            backend.put_derived(hold, name, b"")
        with pytest.raises(InvalidValue):
            backend.drop_derived(hold, name)
        with pytest.raises(InvalidValue):
            backend.derived("s", name)
        hold.release()

    def test_the_log_does_not_notice(self, place: Place) -> None:
        """Putting, appending and dropping change neither the log nor what is known of it."""
        backend = place.backend()
        hold, _ = published(backend)
        before = (lines(backend), backend.tail("s"), backend.revision("s"), hold.position)

        backend.put_derived(hold, "one", b"x" * 5000)
        backend.put_derived(hold, "one", b"y" * 5000, at=5000)
        with pytest.raises(InvalidValue):
            backend.put_derived(hold, "one", b"", at=1)
        backend.drop_derived(hold, "one")

        assert (lines(backend), backend.tail("s"), backend.revision("s"), hold.position) == before
        backend.commit(hold, hold.position, records_after(hold.position, "more"))
        hold.release()
        assert len(lines(place.backend())) == 4

    def test_commits_leave_it_alone(self, place: Place) -> None:
        """What is derived stays while the log grows, is released, taken again and compacted."""
        backend = place.backend()
        hold, _ = published(backend)
        backend.put_derived(hold, "one", b"kept")
        backend.commit(hold, hold.position, records_after(hold.position, "more"))
        backend.compact(hold)
        hold.release()
        hold = settled(place.backend())
        hold.release()

        assert place.backend().derived("s", "one") == b"kept"

    def test_only_the_writer_may_put(self, place: Place) -> None:
        """A hold that was released puts and drops nothing."""
        backend = place.backend()
        hold, _ = published(backend)
        backend.put_derived(hold, "one", b"kept")
        hold.release()

        with pytest.raises(SessionClosed):
            backend.put_derived(hold, "one", b"late")
        with pytest.raises(SessionClosed):
            backend.put_derived(hold, "one", b"late", at=4)
        with pytest.raises(SessionClosed):
            backend.drop_derived(hold, "one")
        assert backend.derived("s", "one") == b"kept"

    def test_each_session_has_its_own(self, place: Place) -> None:
        """Sessions and namespaces do not see each other's, and what is not stored has none."""
        backend = place.backend()
        below = backend.namespace("team")
        for where, id, data in ((backend, "s", b"1"), (backend, "t", b"2"), (below, "s", b"3")):
            hold, _ = published(where, new_header(id, created_at=5))
            where.put_derived(hold, "one", data)
            hold.release()

        found = [where.derived(id, "one") for where, id in ((backend, "s"), (backend, "t"))]

        assert (*found, below.derived("s", "one")) == (b"1", b"2", b"3")
        with pytest.raises(SessionNotFound):
            backend.derived("u", "one")

    def test_another_log_has_none_of_it(self, place: Place) -> None:
        """A log that takes the place of another, or comes after it, starts with nothing derived."""
        backend = place.backend()
        hold, records = published(backend)
        backend.put_derived(hold, "one", b"old")
        hold.release()
        hold = backend.lock("s")
        backend.replace(hold, HEADER, records[:2], place="repair-1", reason="it was damaged")
        assert backend.derived("s", "one") is None
        backend.put_derived(hold, "one", b"new", at=0)
        hold.release()
        assert place.backend().derived("s", "one") == b"new"

        for trashed in (backend.discard("s", lambda _: None), *backend.trash()):
            backend.purge(trashed, lambda _: None)
        hold, _ = published(backend)
        hold.release()

        assert backend.derived("s", "one") is None

    def test_it_comes_back_from_the_trash_or_not_at_all(self, place: Place) -> None:
        """A restored session has what was derived from it, or nothing."""
        backend = place.backend()
        hold, _ = published(backend)
        backend.put_derived(hold, "one", b"kept")
        hold.release()
        backend.discard("s", lambda _: None)
        with pytest.raises(SessionNotFound):
            backend.derived("s", "one")

        backend.restore("s", lambda: None)

        assert backend.derived("s", "one") in (b"kept", None)
