"""Two parties at one store: readers and writers of evidence, threads, signals, deletions."""

import errno
import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest

import perdure
from perdure import errors
from perdure.backends.base import Entry
from perdure.backends.memory import MemoryBackend
from perdure.durable import crash
from perdure.errors import (
    InvalidValue,
    PerdureError,
    SessionBusy,
    SessionClosed,
    SessionDamaged,
    SessionExists,
    SessionNotFound,
    StorageUnavailable,
)
from perdure.evidence import database
from perdure.runtime import Runtime
from perdure.store import Session, Store, survey
from perdure.store.flusher import DELAY_SECONDS
from perdure.store.survey import Facts

PATIENCE = 60.0
NAME = database.NAME
EVENTS = 5


class Standing(Runtime):
    """Nothing is ever due by itself."""

    def monotonic(self) -> float:
        return 0.0


class Ticking(Standing):
    """Each look at the clock is a millisecond later."""

    def __init__(self) -> None:
        self._ticks = itertools.count(1_700_000_000_000)

    def now_ms(self) -> int:
        return next(self._ticks)


class Caller:
    """One thread that calls once and keeps what came of it."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.value: Any = None
        self.error: BaseException | None = None
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.value = self._call()
        except PerdureError as error:
            self.error = error

    def given_time(self) -> "Caller":
        """Come back when it has ended, or when it visibly waits for what the test holds."""
        self._thread.join(0.3)
        return self

    def join(self) -> "Caller":
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        return self


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def opened(root: Path) -> Callable[[], Store]:
    """Opens the store, as another process would."""
    return lambda: perdure.open(root, encoding="raw")


def folder_of(root: Path, id: str = "s") -> Path:
    return root / "sessions" / id


def written(store: Store, id: str = "s", count: int = EVENTS) -> None:
    with store.create(id) as session:
        for number in range(count):
            session.append("x", number)


def cut_last(root: Path, count: int = 1, *, tail: str = "lost") -> None:
    """Take records off the end of the log, and as a rule the tail file that knew of them."""
    log = folder_of(root) / "log.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-count]))
    if tail == "lost":
        (folder_of(root) / "tail").unlink()


def numbers(store: Store, id: str = "s") -> list[object]:
    return [event.data for event in store.read_from(id)]


def listed(store: Store) -> list[str]:
    return [entry.id for entry in store.list()]


# --- evidence that cannot be read just now -------------------------------------------------------

DYING = """
import os, signal, sys, apsw
connection = apsw.Connection(sys.argv[1])
connection.pragma("journal_mode", "truncate")
connection.pragma("cache_size", 1)
connection.execute("BEGIN IMMEDIATE; DELETE FROM position; DELETE FROM deletion")
for number in range(2000):
    row = (b"%d" % number, bytes(100))
    connection.execute("INSERT INTO position VALUES (x'', ?, ?, 1, x'', 1, 1)", row)
os.kill(os.getpid(), signal.SIGKILL)
"""


def die_in_a_commit(root: Path) -> None:
    """A process was killed while it wrote evidence: its half is still to be rolled back."""
    done = subprocess.run([sys.executable, "-c", DYING, str(root / NAME)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert (root / f"{NAME}-journal").stat().st_size


def ruin(root: Path) -> None:
    (root / NAME).write_bytes(b"no database at all" * 300)


@contextmanager
def busy(root: Path) -> Iterator[None]:
    """Somebody else holds the evidence for himself, and nobody is patient."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_READER_WAIT_MS", "_WRITER_WAIT_MS"):
            patch.setattr(database, name, 50)
        connection = apsw.Connection(str(root / NAME))
        # A thread of the store may be in the middle of one of its own.
        connection.set_busy_timeout(10_000)
        connection.execute("BEGIN EXCLUSIVE")
        try:
            yield
        finally:
            connection.execute("ROLLBACK")
            connection.close()


@contextmanager
def unreadable(root: Path, how: str) -> Iterator[None]:
    """Evidence as nobody can read it while this lasts."""
    if how == "busy":
        with busy(root):
            yield
        return
    (die_in_a_commit if how == "half a commit" else ruin)(root)
    yield


HOW = pytest.mark.parametrize("how", ["half a commit", "busy", "damaged"])


@HOW
def test_a_reader_reads_on_and_says_what_it_lacks(
    root: Path, opened: Callable[[], Store], how: str
) -> None:
    """Evidence that cannot be read keeps nobody from reading, and each report names it."""
    with opened() as store:
        written(store)
        assert store.verify("s").evidence is None
        assert store.evidence() == perdure.EvidenceState(None, ())
    with unreadable(root, how), opened() as store:
        assert numbers(store) == [*range(EVENTS)]
        assert (listed(store), store.inspect("s").status) == (["s"], "complete")
        report = store.verify("s")
        assert (report.status, report.sound) == ("ok", True)
        assert isinstance(report.evidence, str)
        assert isinstance(store.evidence().unreadable, str)
        assert store.evidence().set_aside == ()


@HOW
def test_a_writer_learns_the_truth_before_it_writes(
    root: Path, opened: Callable[[], Store], how: str
) -> None:
    """Whoever wants to write a log that lost its end is refused, whatever evidence looks like."""
    with opened() as store:
        written(store)
    cut_last(root)
    with unreadable(root, how), opened() as store:
        assert numbers(store) == [*range(EVENTS - 1)]
        if how == "damaged":
            # What it knew is gone; what is left of it is kept, and told.
            store.writer("s").close()
            state = store.evidence()
            assert state.unreadable is None
            assert [Path(path).parent for path in state.set_aside] == [root]
            return
        for call in (store.writer, store.load, store.accept if how == "busy" else store.prepare):
            with pytest.raises(StorageUnavailable if how == "busy" else SessionDamaged) as told:
                call("s")
            assert told.value.retryable == (how == "busy")
    with opened() as store:
        with pytest.raises(SessionDamaged) as refused:
            store.writer("s")
        assert refused.value.kind == "missing-tail"
        assert store.verify("s").evidence is None


@pytest.mark.parametrize("how", ["half a commit", "busy"])
def test_a_purged_id_stays_taken_whatever_evidence_looks_like(
    root: Path, opened: Callable[[], Store], how: str
) -> None:
    """The id of a session that was deleted and purged is not given away in a bad moment."""
    with opened() as store:
        written(store)
        written(store, "other")
        begun = store.create("late")
        store.delete("s")
        store.empty_trash()
        with unreadable(root, how):
            for _ in range(2):
                with pytest.raises(PerdureError) as told:
                    store.create("s").append("x")
                assert told.value.retryable == (how == "busy")
                assert isinstance(told.value, StorageUnavailable | SessionExists)
            if how == "busy":
                with pytest.raises(StorageUnavailable) as late:
                    begun.append("x", "late")
                assert late.value.retryable
        # A first commit that was refused is not lost.
        assert begun.append("x", "late").seq == 0
        with pytest.raises(SessionExists) as taken:
            store.create("s")
        assert taken.value.deleted_at is not None
        assert listed(store) == ["late", "other"]


@pytest.mark.parametrize("harm", ["header", "record"])
def test_a_refused_writer_is_on_record(root: Path, opened: Callable[[], Store], harm: str) -> None:
    """Damage that refused a writer is reported, also where it is the header that is damaged."""
    with opened() as store:
        written(store)
    log = folder_of(root) / "log.jsonl"
    raw = bytearray(log.read_bytes())
    raw[20 if harm == "header" else len(raw) // 2] ^= 1
    log.write_bytes(raw)
    with opened() as store:
        with pytest.raises(SessionDamaged) as refused:
            store.writer("s")
        reports = store.reports()
        assert [(each.session, each.kind) for each in reports] == [("s", refused.value.kind)]


# --- a writer that died while nobody was calling -------------------------------------------------


def dead_in_the_background(store: Store, patch: pytest.MonkeyPatch) -> Session:
    """A session whose buffered commit failed while a second event was accepted."""
    session = store.create("s")
    session.append("x", 0)
    reached, go, fdatasync = threading.Event(), threading.Event(), os.fdatasync

    def fail(descriptor: int) -> None:
        if reached.is_set():
            fdatasync(descriptor)
            return
        reached.set()
        assert go.wait(PATIENCE)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    patch.setattr(os, "fdatasync", fail)
    session.buffer("x", 1)
    assert reached.wait(PATIENCE)
    session.buffer("x", 2)
    go.set()
    # What is scheduled later comes later: by then the second event was due as well.
    over = threading.Event()
    store._flusher.schedule(over.set, DELAY_SECONDS)
    assert over.wait(PATIENCE)
    assert session.closed
    return session


@pytest.mark.parametrize("call", ["append", "append_many", "buffer", "flush", "close"])
def test_a_death_in_the_background_is_told_once(
    opened: Callable[[], Store], monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """The next call, whichever it is, names all that was lost; no later one tells it again."""
    with opened() as store:
        session = dead_in_the_background(store, monkeypatch)
        arguments: dict[str, tuple[Any, ...]] = {
            "append": ("x", 3),
            "append_many": ([{"type": "x", "data": 3}],),
            "buffer": ("x", 3),
        }
        with pytest.raises(StorageUnavailable) as told:
            getattr(session, call)(*arguments.get(call, ()))
        assert [event.data for event in told.value.lost] == [1, 2]
        with pytest.raises(SessionClosed):
            session.append("x", 4)
        with pytest.raises(SessionClosed):
            session.flush()
        session.close()
        with store.writer("s") as again:
            assert again.append("x", "on").seq in (1, 2)
        assert 4 not in numbers(store)


def test_a_death_in_the_background_is_told_when_the_store_closes(
    opened: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that closes a writer that died says what was lost, if nobody was told before."""
    store = opened()
    dead_in_the_background(store, monkeypatch)
    with pytest.raises(StorageUnavailable) as told:
        store.close()
    assert [event.data for event in told.value.lost] == [1, 2]
    store.close()


# --- what is noted late --------------------------------------------------------------------------


@contextmanager
def push_in_flight(store: Store, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """While this lasts, a thread is about to note what moved; it does when this ends."""
    evidence = store._witness.evidence
    inside, go, note = threading.Event(), threading.Event(), evidence.note

    def held_up(entries: Any) -> None:
        if not inside.is_set():
            inside.set()
            assert go.wait(PATIENCE)
        note(entries)

    patch.setattr(evidence, "note", held_up)
    pushing = Caller(store._witness.push)
    assert inside.wait(PATIENCE)
    try:
        yield
    finally:
        go.set()
        pushing.join()
        patch.undo()


def advanced(store: Store) -> None:
    """A log of five records, the last two of which evidence has not heard of yet."""
    with store.create("s") as session:
        for number in range(3):
            session.append("x", number)
        store._witness.push()
        for number in range(3, EVENTS):
            session.append("x", number)


def assert_accepted(opened: Callable[[], Store]) -> None:
    with opened() as store:
        assert (store.verify("s").status, store.reports()) == ("ok", [])
        assert numbers(store) == [0, 1, 2]
        with store.writer("s") as session:
            assert session.append("x", "on").seq == 3
    with opened() as store:
        assert (store.verify("s").status, numbers(store)) == ("ok", [0, 1, 2, "on"])


def test_accepting_outlasts_a_note_in_flight(
    root: Path, opened: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older positions that this store is about to note do not come back after an acceptance."""
    store = perdure.open(root, encoding="raw", runtime=Ticking())
    advanced(store)
    cut_last(root, 2)
    with push_in_flight(store, monkeypatch):
        accepting = Caller(lambda: store.accept("s")).given_time()
    assert accepting.join().error is None
    assert accepting.value.seq == 2
    assert store.verify("s").status == "ok"
    store.close()
    assert_accepted(opened)


@pytest.mark.parametrize("in_flight", [False, True])
@pytest.mark.parametrize("tail", ["kept", "lost"])
def test_accepting_outlasts_another_store(
    root: Path,
    opened: Callable[[], Store],
    monkeypatch: pytest.MonkeyPatch,
    tail: str,
    *,
    in_flight: bool,
) -> None:
    """A store that saw more, and notes it late, does not undo what another one accepted."""
    clock = Ticking()
    saw_more = perdure.open(root, encoding="raw", runtime=clock)
    with perdure.open(root, encoding="raw", runtime=clock) as store:
        advanced(saw_more)
        cut_last(root, 2, tail=tail)
        if in_flight:
            with push_in_flight(saw_more, monkeypatch):
                position = store.accept("s")
        else:
            position = store.accept("s")
        assert position.seq == 2
        saw_more.close()
        assert store.verify("s").status == "ok"
        with store.writer("s"):
            pass
    assert_accepted(opened)


@pytest.mark.parametrize("in_flight", [False, True])
def test_forgetting_outlasts_what_is_noted_late(
    root: Path, monkeypatch: pytest.MonkeyPatch, *, in_flight: bool
) -> None:
    """A store that had still something to note does not make a forgotten session go missing."""
    late = perdure.open(root, runtime=Ticking())
    with perdure.open(root) as store:
        written(late)
        written(store, "other")
        if in_flight:
            with push_in_flight(late, monkeypatch):
                purging = Caller(partial(_purge_and_forget, store)).given_time()
            assert purging.join().error is None
        else:
            _purge_and_forget(store)
        late.close()
        assert (store.missing(), listed(store)) == ([], ["other"])
        with pytest.raises(SessionNotFound) as unknown:
            store.verify("s")
        assert unknown.value.deleted_at is None
        written(store)
        assert store.verify("s").status == "ok"


def _purge_and_forget(store: Store) -> None:
    store.delete("s")
    store.empty_trash()
    store.forget("s")


def test_the_store_that_forgets_notes_nothing_more(root: Path) -> None:
    """What a store had still to note of a session that it forgets itself is never noted."""
    with perdure.open(root, runtime=Ticking()) as store:
        written(store)
        _purge_and_forget(store)
        store._witness.push()
        assert store.missing() == []
    with perdure.open(root) as store:
        assert store.missing() == []


def test_closed_sessions_leave_nothing_in_the_witness() -> None:
    """However many sessions a store has written and closed, it keeps no more of them."""
    with Store(MemoryBackend()) as store:
        kept = []
        for turn in range(8):
            for number in range(50):
                with store.create(f"{turn}-{number}") as session:
                    session.append("x")
            store._witness.push()
            kept.append(len(store._witness._noted))
        assert kept[-1] == kept[-2]
        assert kept[-1] <= 256


# --- what is missing -----------------------------------------------------------------------------


@pytest.fixture(params=["directory", "memory"])
def store(request: pytest.FixtureRequest, root: Path) -> Iterator[Store]:
    """A store on each medium."""
    with perdure.open(root if request.param == "directory" else "memory:") as made:
        yield made


MEANWHILE: dict[str, Callable[[Store], object]] = {
    "published": written,
    "restored": lambda store: store.restore("s"),
    "deleted": lambda store: store.delete("s"),
}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    "step", ["entries", "trash", "stored", "_deleted_at", "everything_known", "about"]
)
@pytest.mark.parametrize("what", sorted(MEANWHILE))
def test_what_comes_meanwhile_is_not_missing(
    store: Store, monkeypatch: pytest.MonkeyPatch, what: str, step: str, when: str
) -> None:
    """A session that appears or goes while the missing ones are looked for is never among them."""
    written(store, "old")
    if what != "published":
        written(store)
        store._witness.push()
    if what == "restored":
        store.delete("s")
    others: list[Caller] = []

    def act() -> None:
        MEANWHILE[what](store)
        store._witness.push()

    def meanwhile(now: str) -> None:
        if now == when and not others and threading.current_thread() is threading.main_thread():
            others.append(Caller(act))
            others[0].given_time()

    inside = step in ("everything_known", "about")
    owner = store._witness.evidence if inside else store._backend
    plain = getattr(owner, step)

    def followed(*given: Any, **options: Any) -> Any:
        meanwhile("before")
        try:
            found = plain(*given, **options)
            return iter([*found]) if isinstance(found, Iterator) else found
        finally:
            meanwhile("after")

    monkeypatch.setattr(owner, step, followed)
    assert store.missing() == []
    monkeypatch.undo()
    assert [other.join().error for other in others] in ([], [None])
    assert store.missing() == []


def test_a_shortened_name_is_not_missing(root: Path, opened: Callable[[], Store]) -> None:
    """A long id whose header is damaged is stored, though no name on the medium spells it."""
    long = "L" * 400
    with opened() as store:
        written(store, long)
    (folder,) = (root / "sessions").iterdir()
    log = folder / "log.jsonl"
    raw = bytearray(log.read_bytes())
    raw[20] ^= 1
    log.write_bytes(raw)
    with opened() as store:
        assert store.missing() == []
        assert store.verify(long).status == "damaged"


class Counting(MemoryBackend):
    """Counts how often all sessions were listed."""

    listings = 0

    def entries(self) -> Iterator[Entry]:
        self.listings += 1
        return super().entries()


def test_asking_for_one_session_lists_none() -> None:
    """Verifying what is not there takes no look at what is."""
    backend = Counting()
    with Store(backend) as store:
        written(store)
        for call in (store.verify, store.inspect, store.writer, store.delete):
            with pytest.raises(SessionNotFound):
                call("unknown")
        assert store.verify("s").status == "ok"
        assert backend.listings == 0


# --- deletion against restoration ----------------------------------------------------------------

Action = Callable[[Store], object]


def _append(store: Store) -> None:
    with store.writer("s") as session:
        session.append("x", "late")


ACTIONS: dict[str, Action] = {
    "delete": lambda store: store.delete("s"),
    "restore": lambda store: store.restore("s"),
    "empty_trash": lambda store: store.empty_trash(),
    "append": _append,
}


class Interrupter:
    """Lets another thread act when this one has come to its `place`-th crash point."""

    def __init__(self, place: int, act: Callable[[], object]) -> None:
        self.names: list[str] = []
        self.other: Caller | None = None
        self._left = place
        self._act = act
        self._thread = threading.get_ident()

    def __call__(self, name: str) -> None:
        if threading.get_ident() != self._thread:
            return
        self.names.append(name)
        self._left -= 1
        if self._left == 0:
            self.other = Caller(self._act).given_time()


def settled(call: Callable[[], object]) -> None:
    """Who comes too late is told so, and by nothing else."""
    with suppress(SessionBusy, SessionNotFound, SessionExists):
        call()


def assert_one_state(root: Path, where: object) -> None:
    """The session is stored whole, or in the trash, or gone with its id taken."""
    with perdure.open(root) as store:
        stored, trashed = listed(store), [gone.id for gone in store.trash()]
        with pytest.raises(SessionExists) as taken:
            store.create("s")
        about = (where, stored, trashed, taken.value.deleted_at)
        assert store.missing() == [], about
        assert len(stored) + len(trashed) <= 1, about
        assert (taken.value.deleted_at is None) == bool(stored), about
        assert (store._witness.evidence.deleted("", "s") is None) or not stored, about
        if trashed:
            store.restore("s")
        if stored or trashed:
            assert store.verify("s").status == "ok", about
            assert numbers(store)[:EVENTS] == [*range(EVENTS)], about
            _append(store)
            # A log that vanishes now was deleted by nobody.
            assert store._witness.evidence.deleted("", "s") is None, about


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("delete", "restore"),
        ("delete", "empty_trash"),
        ("delete", "append"),
        ("restore", "empty_trash"),
        ("restore", "delete"),
        ("restore", "append"),
        ("restore", "restore"),
        ("empty_trash", "restore"),
        ("empty_trash", "empty_trash"),
    ],
)
def test_one_at_a_time_deletes_restores_or_removes(tmp_path: Path, first: str, second: str) -> None:
    """Wherever two stores meet over one session, one comes first and the other is told."""
    for place in itertools.count(1):
        root = tmp_path / str(place)
        with perdure.open(root) as one, perdure.open(root) as other:
            written(one)
            if first != "delete":
                one.delete("s")
            hook = Interrupter(place, partial(settled, partial(ACTIONS[second], other)))
            crash.arm(hook=hook)
            try:
                settled(partial(ACTIONS[first], one))
            finally:
                crash.arm()
            if hook.other is None:
                assert place > 3
                return
            assert hook.other.join().error is None, (hook.names, hook.other.error)
        assert_one_state(root, hook.names)


# --- threads and signals in the middle of content ------------------------------------------------


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("ending", ["session", "store"])
def test_closing_does_not_wait_for_a_source(
    root: Path, opened: Callable[[], Store], ending: str, *, begun: bool
) -> None:
    """Content whose source is stalled holds no close up; it is not stored, and its put is told."""
    store = opened()
    session = store.create("s")
    if begun:
        session.append("x")
    stalled, go, waited_in_vain = threading.Event(), threading.Event(), threading.Event()

    def parts() -> Iterator[bytes]:
        yield b"1"
        stalled.set()
        if not go.wait(10):
            waited_in_vain.set()
        yield b"2"

    putting = Caller(lambda: session.put_blob(parts()))
    assert stalled.wait(PATIENCE)
    closing = Caller(session.close if ending == "session" else store.close).join()
    assert not waited_in_vain.is_set()
    go.set()
    assert closing.error is None
    assert isinstance(putting.join().error, SessionClosed)
    store.close()
    left = [path for path in root.rglob("*") if path.is_file() and "blobs" in path.parts]
    assert left == []
    assert [*(root / "new").iterdir()] == []


@pytest.mark.parametrize("inner", ["put_blob", "expire", "compact", "close"])
@pytest.mark.parametrize("outer", ["expire", "put_blob"])
def test_a_signal_handler_in_the_middle_of_content_is_told(
    opened: Callable[[], Store], outer: str, inner: str
) -> None:
    """A handler that comes back to a session amid its content is refused, and never hangs."""
    with opened() as store:
        with store.create("s") as session:
            session.append("x", {"blob": session.put_blob(b"first")})
        session = store.writer("s")
        told: list[object] = []

        def handler(*_: object) -> None:
            try:
                told.append(getattr(session, inner)(*((b"x",) if inner == "put_blob" else ())))
            except SessionBusy as error:
                told.append(error)

        def interrupt(name: str) -> None:
            if name == ("remove.before" if outer == "expire" else "move.before") and not told:
                signal.raise_signal(signal.SIGUSR1)

        before = signal.signal(signal.SIGUSR1, handler)
        crash.arm(hook=interrupt)
        try:
            if outer == "expire":
                assert len(session.expire(keep_last=0).expired) == 1
            else:
                session.put_blob(b"second")
        finally:
            crash.arm()
            signal.signal(signal.SIGUSR1, before)
        assert [isinstance(each, SessionBusy) and each.reentered for each in told] == [True]
        assert session.append("x", "goes on").seq > 0
        session.close()
        assert store.verify("s").status == "ok"
        assert len(store.blobs("s")) == (0 if outer == "expire" else 2)


@pytest.mark.parametrize("inner", ["put_blob", "append", "expire", "compact"])
def test_a_source_may_use_its_own_session(opened: Callable[[], Store], inner: str) -> None:
    """What a source of content does with its session is done or refused, and both are stored."""
    with opened() as store, store.create("s") as session:
        session.append("x", "first")

        def parts() -> Iterator[bytes]:
            yield b"out"
            with suppress(SessionBusy):
                arguments = {"put_blob": (b"inner",), "append": ("x", "inner")}.get(inner, ())
                getattr(session, inner)(*arguments)
            yield b"er"

        assert store.blob("s", session.put_blob(parts())) == b"outer"
        assert session.append("x", "last").seq > 0
        assert store.verify("s").sound


READING_IN_A_HANDLER = """
import signal, perdure
from perdure.evidence import rows
store = perdure.open("memory:")
with store.create("s") as session:
    session.append("x", 0)
store._witness.push()
scan, seen = rows.MemoryRows.scan, []

def handler(*_):
    seen.append([event.data for event in store.read_from("s")])
    seen.append([entry.id for entry in store.list()] + store.missing())

def interrupted(*given):
    if not seen:
        seen.append("interrupted")
        signal.raise_signal(signal.SIGUSR1)
    return scan(*given)

signal.signal(signal.SIGUSR1, handler)
rows.MemoryRows.scan = interrupted
assert store.missing() == []
assert seen == ["interrupted", [0], ["s"]], seen
"""


def python(code: str, *given: str) -> None:
    """Run a program in a process of its own, which has to end well."""
    done = subprocess.run(
        [sys.executable, "-c", code, *given],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_signal_handler_reads_in_the_middle_of_a_look() -> None:
    """A handler that reads evidence in memory while its thread reads it does not hang."""
    python(READING_IN_A_HANDLER)


# --- sessions in memory, and threads -------------------------------------------------------------


def memory_store(count: int = 4) -> Store:
    store = perdure.open("memory:")
    for number in range(count):
        written(store, f"s{number}", 1)
    return store


def test_listing_memory_beside_a_deletion() -> None:
    """What is deleted while sessions in memory are listed is listed or not, and nothing else."""
    with memory_store() as store:
        entries = store._backend.entries()
        first = next(entries).id
        assert Caller(lambda: store.delete("s2")).join().error is None
        written(store, "s9", 1)
        found = [first, *(entry.id for entry in entries)]
        assert sorted({*found} - {"s2", "s9"}) == ["s0", "s1", "s3"]
        assert len({*found}) == len(found)

        for number in (0, 1, 3):
            store.delete(f"s{number}")
        trash = store._backend.trash()
        ids = [next(trash).id]
        assert Caller(lambda: store.empty_trash("s2")).join().error is None
        store.restore("s1")
        ids += [gone.id for gone in trash]
        assert sorted({*ids} - {"s1", "s2"}) == ["s0", "s3"]


def test_listing_memory_beside_a_deletion_of_what_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each step of a listing bears that the session it looks at is gone by then."""
    with memory_store() as store:
        backend, others = store._backend, ["s3", "s1"]

        def beside(name: str, act: Callable[[str], object]) -> None:
            plain = getattr(backend, name)

            def with_another(*given: Any) -> Any:
                if others:
                    Caller(partial(act, others.pop())).given_time()
                return plain(*given)

            monkeypatch.setattr(backend, name, with_another)

        for name in ("stored", "revision", "_find", "_deleted_at"):
            beside(name, store.delete)
        assert {"s0", "s2"} <= {entry.id for entry in store.list()}
        store.trash()
        monkeypatch.undo()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_beside_a_thread_in_memory() -> None:
    """A child that is forked while another thread is amid sessions in memory uses them at once."""
    with memory_store() as store:
        backend = store._backend
        assert isinstance(backend, MemoryBackend)
        held, go = threading.Event(), threading.Event()

        def hold() -> None:
            with backend._mutex:
                held.set()
                # A fork may as well wait until nobody is in there.
                go.wait(2)

        holder = threading.Thread(target=hold)
        holder.start()
        assert held.wait(PATIENCE)
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(20)
            code = 1
            try:
                assert store.inspect("s0").position is not None
                assert [*map(str, listed(store))] == ["s0", "s1", "s2", "s3"]
                written(store, "child")
                written(store.namespace("a"), "child")
                code = 0
            finally:
                os._exit(code)
        go.set()
        holder.join(PATIENCE)
        assert os.waitpid(pid, 0)[1] == 0
        assert listed(store) == ["s0", "s1", "s2", "s3"]


def test_facts_remembered_are_bounded_together(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is remembered of logs holds no more keys in total than one bound allows."""
    monkeypatch.setattr(survey, "KEYS_MAX", 100)

    def remembered(store: Store) -> list[int]:
        kept = [each for value in store._survey._facts.values() for each in value]
        return [len(each.keys or ()) for each in kept if isinstance(each, Facts)]

    with perdure.open(root) as store:
        for number in range(6):
            with store.create(f"s{number}") as session:
                session.append_many({"type": "x", "key": f"{number}-{key}"} for key in range(40))
            assert sum(remembered(store)) <= 100
        assert remembered(store) != []
        with store.create("large") as session:
            session.append_many({"type": "x", "key": str(key)} for key in range(101))
        assert sum(remembered(store)) <= 100
        for number in range(6):
            with store.writer(f"s{number}") as session:
                assert session.append("x", key=f"{number}-0").seq == 0
            assert sum(remembered(store)) <= 100


# --- the end of a store --------------------------------------------------------------------------


def test_a_namespace_is_used_again_after_it_was_closed(store: Store) -> None:
    """Leaving the context of a namespace closes what is open in it, and nothing for good."""
    with store.namespace("a") as below:
        session = below.create("s")
        session.buffer("x", 0)
    assert session.closed
    for number in range(1, 3):
        with store.namespace("a") as again, again.writer("s") as session:
            assert session.append("x", number).seq == number
    with store.namespace("a", "b") as deep:
        written(deep)
    store.namespace("a").close()
    deep = store.namespace("a").namespace("b")
    assert numbers(deep) == [*range(EVENTS)]
    late = deep.writer("s")
    late.buffer("x", "late")
    assert numbers(store.namespace("a")) == [0, 1, 2]
    store.close()
    assert late.closed
    with pytest.raises(errors.StoreClosed):
        store.namespace("a")


def test_a_closed_store_says_so(root: Path) -> None:
    """After the close, whatever would write is refused with that, and names no session."""
    store = perdure.open(root)
    written(store, "some-id")
    tenant = store.namespace("a")
    written(tenant, "some-id")
    open_session = store.create("open")
    store.close()
    calls: list[Callable[[Store], object]] = [
        lambda store: store.create(),
        lambda store: store.create("some-new-id"),
        lambda store: store.writer("some-id"),
        lambda store: store.load("some-id"),
        lambda store: store.prepare("some-id"),
        lambda store: store.append("some-id", [{"type": "x"}]),
        lambda store: store.expire("some-id"),
        lambda store: store.compact("some-id"),
        lambda store: store.archive("some-id"),
        lambda store: store.unarchive("some-id"),
        lambda store: store.delete("some-id"),
        lambda store: store.restore("some-id"),
        lambda store: store.empty_trash(),
        lambda store: store.empty_trash("some-id"),
        lambda store: store.accept("some-id"),
        lambda store: store.forget("some-id"),
        lambda store: store.namespace("some-id"),
    ]
    for number, call in enumerate(calls):
        for closed in (store, tenant):
            with pytest.raises(errors.StoreClosed) as told:
                call(closed)
            assert isinstance(told.value, SessionClosed), number
            assert "session" not in str(told.value), number
            assert "some-id" not in str(told.value), number
    with pytest.raises(SessionClosed):
        open_session.append("x")
    with perdure.open(root) as again:
        assert (listed(again), again.trash()) == (["some-id"], [])
        with pytest.raises(InvalidValue):
            again.namespace("")
