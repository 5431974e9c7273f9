"""Checkpoints are kept where nobody waits for them; rows are decoded when they are asked for."""

import gc
import sys
import threading
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

import perdure
from benchmarks.session import turn_events
from perdure.backends.base import Backend
from perdure.backends.directory import DirectoryBackend
from perdure.model.event import Event
from perdure.runtime import SYSTEM
from perdure.store import committer, folding
from perdure.store.checkpoints import read_checkpoint
from perdure.testing.lockstep.media import Later
from perdure.views.view import History, Rows, View
from tests.folds import from_the_start, rows_of, turn
from tests.media import KEPT, open_medium


def opened(kind: str, folder: Path) -> tuple[perdure.Store, Later]:
    """A store whose background thread comes by when the test says so."""
    store, later = open_medium(kind, folder), Later(SYSTEM)
    store._flusher = later
    return store, later


def kept(store: perdure.Store) -> int:
    """The last event that the stored checkpoint takes into account; -1 without one."""
    found = store._folds.load("s")
    assert rows_of(found.fold) == from_the_start(store, "s")
    return -1 if found.checkpoint is None else found.checkpoint.position.seq


def lines_of(store: perdure.Store) -> int:
    header = store.inspect("s").header
    assert header is not None
    found = read_checkpoint(store._backend.derived("s", "checkpoint"), header)
    return 0 if found is None else len(found._lines)


# --- when they are kept ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KEPT)
def test_no_append_waits_for_views(kind: str, tmp_path: Path) -> None:
    """The end of a turn leaves its checkpoint to the background thread, once for several turns."""
    store, later = opened(kind, tmp_path)
    with store, store.create("s") as session:
        for number in range(3):
            session.append_many(turn(number))
            assert kept(store) == -1
        later.run()
        assert kept(store) == session.position.seq
        assert lines_of(store) == 1
        assert not later.due
        session.append("note")
        assert not later.due
        session.append_many(turn(3))
        later.run()
        assert kept(store) == session.position.seq
        assert lines_of(store) == 2


@pytest.mark.parametrize("kind", KEPT)
def test_closing_keeps_what_is_due(kind: str, tmp_path: Path) -> None:
    """A writer that is closed before the thread came by keeps its checkpoint itself."""
    store, later = opened(kind, tmp_path)
    with store:
        with store.create("s") as session:
            session.append_many(turn(0))
            last = session.position.seq
        assert kept(store) == last
        # What comes too late finds nothing to do.
        later.run()
        assert kept(store) == last


def test_the_thread_lets_commits_go_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of much that waits the thread folds a part, and the rest when it comes by again."""
    monkeypatch.setattr(committer, "FOLDED_AT_ONCE", 10)
    store, later = opened("zst", tmp_path)
    with store, store.create("s") as session:
        for number in range(5):
            session.append_many(turn_events(number))
        waiting = session._folding._waiting
        assert waiting is not None
        whole = len(waiting)
        assert whole > 50
        rounds = 0
        while later.due:
            later.run()
            rounds += 1
            if rounds == 2:
                assert kept(store) == -1
                session.append("note")
                whole += 1
        assert rounds == -(-whole // 10)
        assert kept(store) == session.position.seq
        assert rows_of(session.fold()) == from_the_start(store, "s")


def test_nobody_to_do_it_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no thread can be started, even in the middle, the appending thread does all of it."""
    store, later = opened("zst", tmp_path)
    with store, store.create("s") as session:
        session.append_many(turn(0))
        monkeypatch.setattr(committer, "FOLDED_AT_ONCE", 1)
        monkeypatch.setattr(later, "schedule", lambda *_: False)
        later.run()
        assert kept(store) == session.position.seq
        session.append_many(turn(1))
        assert kept(store) == session.position.seq


def test_a_real_thread_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without anybody doing anything more, the checkpoint of a turn that ended is stored."""
    done, put = threading.Event(), DirectoryBackend.put_derived

    def told(self: DirectoryBackend, *args: Any, **options: Any) -> None:
        put(self, *args, **options)
        assert threading.current_thread() is not threading.main_thread()
        done.set()

    monkeypatch.setattr(DirectoryBackend, "put_derived", told)
    with perdure.open(tmp_path / "store") as store, store.create("s") as session:
        session.append_many(turn(0))
        assert done.wait(30)
        monkeypatch.undo()
        assert kept(store) == session.position.seq


def test_a_writer_that_was_dropped_is_given_back(tmp_path: Path) -> None:
    """What can be made again keeps no writer alive: its session is free at once."""
    store, later = opened("zst", tmp_path)
    with store:
        session = store.create("s")
        session.append_many(turn(0))
        assert later.due
        del session
        gc.collect()
        with store.writer("s") as again:
            later.run()
            assert kept(store) == -1
            assert rows_of(again.fold()) == from_the_start(store, "s")


def test_a_resume_that_read_all_is_paid_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resume that had to read a long log leaves a checkpoint, before any turn ends."""
    monkeypatch.setattr(folding, "BEHIND_EVENTS_MAX", 20)
    store, later = opened("zst", tmp_path)
    with store:
        session = store.create("s")
        for number in range(4):
            session.append_many(turn(number))
        del session
        gc.collect()
        assert kept(store) == -1
        with store.resume("s") as session:
            later.run()
            assert kept(store) == session.position.seq


# --- who is not asked for views -------------------------------------------------------------------


BAD = [None, b"", b"\xff nonsense\n", b'{"checkpoint":1}\n', b'{"seq":']


@pytest.mark.parametrize("bad", [..., *BAD], ids=lambda bad: "good" if bad is ... else repr(bad))
@pytest.mark.parametrize("kind", KEPT)
def test_a_plain_writer_reads_no_rows(
    kind: str, bad: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It learns from a line what is open; without that line from the checkpoint, or the log."""
    store = open_medium(kind, tmp_path)
    with store:
        store._flusher.stop()
        with store.create("s") as session:
            for number in range(3):
                session.append_many(turn(number))
            session.append("turn/start", {}, turn="left open")
            # As a process leaves it that dies here.
            assert session._hold is not None
            session._hold.release()
            session._released, session._closed = True, "it died"
        hold = store._backend.lock("s")
        if bad is None:
            store._backend.drop_derived(hold, "open")
        elif bad is not ...:
            store._backend.put_derived(hold, "open", bad)
        hold.release()
        while store._backend.lasting_revision("s") is None:
            SYSTEM.sleep(0.01)
    read = list[str]()
    with open_medium(kind, tmp_path) as store:
        derived = type(store._backend).derived

        def observed(self: Backend, id: str, name: str) -> bytes | None:
            read.append(name)
            return derived(self, id, name)

        monkeypatch.setattr(type(store._backend), "derived", observed)
        with store.writer("s") as session:
            last = [*store.read_from("s")][-1]
            assert (last.type, last.turn) == ("turn/end", "left open")
            assert read == (["open"] if bad is ... else ["open", "checkpoint"])
            assert rows_of(session.fold()) == from_the_start(store, "s")


# --- what is scattered ----------------------------------------------------------------------------


def test_what_is_scattered_becomes_one_line(tmp_path: Path) -> None:
    """The last thing that a writer does, or the first of one after a kill, makes one of many."""
    store = open_medium("zst", tmp_path)
    store._flusher.stop()
    with store:
        session = store.create("s")
        for number in range(60):
            session.append_many(turn_events(number))
        assert lines_of(store) == 60
        del session
        gc.collect()
        with store.writer("s") as session:
            session.fold()
            session.append_many(turn_events(60))
            assert lines_of(store) == 1
            session.append_many(turn_events(61))
            assert lines_of(store) == 2
        # One line behind many is not worth it.
        assert lines_of(store) == 2
        assert kept(store) == session.position.seq
        with store.writer("s") as session:
            session.fold()
            for number in range(62, 140):
                session.append_many(turn_events(number))
            assert lines_of(store) == 80
        assert lines_of(store) == 1
        assert kept(store) == session.position.seq


# --- rows that are text ---------------------------------------------------------------------------


def test_messages_of_a_resumed_run_are_the_callers_own(tmp_path: Path) -> None:
    """Whatever is done to the messages of a session that was read, the session says the same."""
    with perdure.open(tmp_path / "store") as store:
        with store.create("s") as session:
            session.append_many(turn_events(0))
            expected = session.messages()
        with store.resume("s") as session:
            for _ in range(2):
                found = session.messages()
                assert found == expected
                for message in found:
                    message["content"][0].clear()
                    message.clear()
                found.clear()


def test_rows_are_decoded_when_they_are_asked_for() -> None:
    """Text among rows is decoded by each way to look, stays as it is to be stored, and no other."""
    rows = Rows({"a": msgspec.Raw(b'{"x":[1]}'), "b": msgspec.Raw(b'"\\ud800"'), "c": 3})
    twin = rows.copy()
    assert rows.held["a"] == msgspec.Raw(b'{"x":[1]}')
    [first], [second] = rows.own(["a"]), rows.own(["a"])
    assert first == second == {"x": [1]}
    assert first["x"] is not second["x"]
    assert rows["a"] is rows.get("a") is rows["a"]
    assert rows.get("d", 7) == 7
    with pytest.raises(KeyError):
        rows["d"]
    assert dict(rows.all) == {"a": {"x": [1]}, "b": "\ud800", "c": 3}
    assert not rows.changed
    assert twin.held["a"].__class__ is msgspec.Raw
    assert dict(twin.all) == dict(rows.all)


def test_rows_are_copied_while_somebody_else_decodes_them() -> None:
    """A copy that is made meanwhile never gives out text in place of values."""
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(5):
            rows = Rows({str(number): msgspec.Raw(b'{"a":1}') for number in range(300)})
            copies = list[Rows]()
            decoder = threading.Thread(target=lambda rows=rows: rows.all)
            decoder.start()
            while decoder.is_alive():
                copies.append(rows.copy())
            decoder.join()
            for each in copies:
                assert {value["a"] for value in each.all.values()} == {1}
    finally:
        sys.setswitchinterval(switch)


class Quits(View):
    """A view of a user's that wants to end the program."""

    name = "quits"
    version = 1
    types = frozenset({"turn/end"})

    def __init__(self) -> None:
        """Nobody asked yet."""
        self.asked = threading.Event()

    def apply(self, rows: Rows, event: Event, history: History) -> None:  # noqa: ARG002
        """Ask for it."""
        self.asked.set()
        raise SystemExit


def test_a_view_ends_no_thread_of_others(tmp_path: Path) -> None:
    """Whatever a view raises in the background, what others buffered becomes durable."""
    quits = Quits()
    with perdure.open(tmp_path / "store", views=[quits]) as store:
        first = store.create("s")
        first.append_many(turn(0))
        assert quits.asked.wait(30)
        other = store.create("t")
        other.append("note")
        other.buffer("note")
        durable = threading.Event()
        commit = other._commit_unasked

        def told(waiting: Any) -> None:
            commit(waiting)
            durable.set()

        other._commit_unasked = told  # type: ignore[method-assign]
        assert durable.wait(30)
        assert len([*store.read_from("t")]) == 2


def test_text_that_is_none_is_no_checkpoint(tmp_path: Path) -> None:
    """Bytes that are no UTF-8 in a row with a right checksum are folded anew, not given out."""
    with open_medium("raw", tmp_path) as store:
        with store.create("s") as session:
            session.append_many(turn(0))
            expected = session.messages()
        data = store._backend.derived("s", "checkpoint")
        assert data is not None
        body = data[: data.rindex(b',"crc":')].replace(b'"text":"', b'"text":"\xff\xfe', 1)
        assert b"\xff" in body
        hold = store._backend.lock("s")
        forged = b'%s,"crc":"%08x"}\n' % (body, zlib.crc32(body))
        store._backend.put_derived(hold, "checkpoint", forged)
        hold.release()
        assert store.inspect("s").messages() == expected
        with store.resume("s") as session:
            assert session.messages() == expected


def test_who_asks_again_finds_what_was_decoded() -> None:
    """Rows that are asked for again are kept, and each answer is a dict of its own all the same."""
    rows = Rows({"a": msgspec.Raw(b'{"x":[1]}')})
    answers = [rows.own(["a"])[0] for _ in range(4)]
    assert answers == [{"x": [1]}] * 4
    assert len({id(each) for each in answers}) == 4
    assert rows.held["a"] == {"x": [1]}
