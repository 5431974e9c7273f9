"""Checkpoints: folds go on from them, and say what the log says whatever is in their place."""

import json
import os
import random
import shutil
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import apsw
import pytest

import perdure
from benchmarks.session import turn_events
from perdure import aio
from perdure.backends.base import Backend, Hold
from perdure.backends.directory import DirectoryBackend
from perdure.errors import (
    InvalidValue,
    PersistenceDisabled,
    SessionClosed,
    SessionDamaged,
    StorageFull,
)
from perdure.evidence import Seen
from perdure.model.event import Event
from perdure.model.record import decode_line
from perdure.model.vocabulary import PAYLOADS
from perdure.runtime import SYSTEM
from perdure.views.view import History, Rows, View
from tests.folds import Jumble, from_the_start, life, rows_of, turn
from tests.media import ALL, KEPT, open_medium
from tests.support import scaled, soaked

WHERE = ("zst", "raw", "sqlite")


def opened(kind: str, folder: Path, **options: Any) -> perdure.Store:
    """A store that keeps checkpoints at once: nobody does it later, or reads beside it."""
    store = open_medium(kind, folder, **{"views": [Jumble()], "index": False, **options})
    store._flusher.stop()
    return store


def checkpoint_of(store: perdure.Store, id: str = "s") -> bytes | None:
    return store._backend.derived(id, "checkpoint")


def put_checkpoint(store: perdure.Store, data: bytes | None, id: str = "s") -> None:
    """Put other bytes in its place, as damage or another program would."""
    backend = store._backend
    hold = backend.lock(id)
    if data is None:
        backend.drop_derived(hold, "checkpoint")
    else:
        backend.put_derived(hold, "checkpoint", data)
    hold.release()


def settled(store: perdure.Store, id: str = "s") -> None:
    """Wait until a further change of the log would show."""
    while store._backend.lasting_revision(id) is None:
        SYSTEM.sleep(0.01)


def written(
    kind: str, folder: Path, turns: int = 6, **options: Any
) -> tuple[perdure.Store, dict[str, Any]]:
    """A store with a session of several turns, and what its fold says."""
    store = opened(kind, folder, **options)
    with store.create("s") as session:
        for number in range(turns):
            session.append_many(turn(number))
        rows = rows_of(session.fold())
    assert rows == from_the_start(store, "s")
    return store, rows


# --- the same rows, however they were come by -----------------------------------------------------


@pytest.mark.parametrize("kind", ["memory", "zst", "sqlite", *soaked("raw", "bundle")])
def test_folds_are_the_same_however_they_were_made(
    kind: str, tmp_path: Path, rng: random.Random
) -> None:
    """Fed as it was written, reopened, deleted, caught up: the rows are those of the events."""
    checked: Counter[str] = Counter()
    for number in range(scaled(40)):
        id, commits = f"s{number}", life(rng, str(number))
        folder = tmp_path / str(number)
        folder.mkdir(0o700)
        store = opened(kind, folder)
        session = store.create(id)
        for _ in range(rng.randrange(20, 60)):
            for batch in islice(commits, rng.randrange(1, 6)):
                session.append_many(batch)
            does = rng.choice(["nothing", "fold", "inspect", "reopen", "drop", "compact"])
            checked[does] += 1
            if does == "fold":
                assert rows_of(session.fold()) == from_the_start(store, id)
            elif does == "inspect":
                seen = store.inspect(id)
                assert rows_of(seen.fold()) == from_the_start(store, id)
            elif does == "drop":
                session._backend.drop_derived(session._hold, "checkpoint")  # type: ignore[arg-type]
            elif does == "compact":
                session.compact()
            elif does == "reopen":
                session.close()
                if kind != "memory":
                    store.close()
                    store = opened(kind, folder)
                session = store.writer(id)
        session.close()
        assert rows_of(store.writer(id).fold()) == from_the_start(store, id)
        store.close()
    assert len(checked) == 6 or scaled(40) < 4


def test_the_background_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn after turn may end before the rows are stored: nobody is woken for each of them."""
    store = open_medium("sqlite", tmp_path)
    session = store.create("s")
    asked: list[Callable[[], None]] = []

    def schedule(flush: Callable[[], None], _delay: float = 0.0) -> bool:
        if flush is session._keep_later:
            asked.append(flush)
        return True

    monkeypatch.setattr(store._flusher, "schedule", schedule)
    for number in range(5):
        session.append_many(turn(number))
    assert len(asked) == 1
    assert checkpoint_of(store) is None
    asked.pop()()
    kept = checkpoint_of(store)
    assert kept is not None
    session.append_many(turn(5))
    assert len(asked) == 1
    asked.pop()()
    assert checkpoint_of(store) != kept
    session.close()
    store.close()


@pytest.mark.parametrize("kind", WHERE)
def test_a_fold_stays_as_it_is(kind: str, tmp_path: Path) -> None:
    """What was asked for is not changed by what is committed later, and costs nothing twice."""
    store = opened(kind, tmp_path)
    session = store.create("s")
    session.append_many(turn(0))
    first = session.fold()
    rows = rows_of(first)
    assert session.fold() is first

    session.append_many(turn(1))

    assert rows_of(first) == rows
    assert rows_of(session.fold()) == from_the_start(store, "s") != rows
    store.close()


def test_rows_keep_their_order(tmp_path: Path) -> None:
    """A row that goes and comes back stands behind the others, in memory and when read back."""
    rows = Rows({"a": 1, "b": 2, "c": 3})
    rows.put("a", 9)
    rows.remove("b")
    rows.put("d", 4)
    rows.put("b", 5)
    rows.put("e", 6)
    rows.remove("e")
    twin = rows.copy()
    rows.put("c", 7)
    put, gone = rows.changes()

    again = Rows({"a": 1, "b": 2, "c": 3})
    for key in gone:
        again.remove(key)
    for key, value in put.items():
        again.put(key, value)

    assert [*again.all.items()] == [*rows.all.items()] == [("a", 9), ("c", 7), ("d", 4), ("b", 5)]
    assert twin.changes() == ({"a": 9, "d": 4, "b": 5}, ["b", "e"])
    del tmp_path


# --- what stands in its place does not matter -----------------------------------------------------


def changed_line(data: bytes, number: int, **members: Any) -> bytes:
    """A checkpoint with other members in one line and right checksums."""
    lines = [json.loads(line) for line in data.splitlines()]
    lines[number].update(members)
    crc, out = 0, []
    for each in lines:
        each.pop("crc")
        body = json.dumps(each, separators=(",", ":")).encode()[:-1]
        crc = zlib.crc32(body, crc)
        out.append(b'%s,"crc":"%08x"}\n' % (body, crc))
    return b"".join(out)


def bad_ones(data: bytes, foreign: bytes, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """Bytes that are not the checkpoint of the log."""
    lines = data.splitlines(keepends=True)
    assert len(lines) >= 4
    yield "empty", b""
    yield "noise", rng.randbytes(3000)
    yield "foreign", foreign
    yield "newer", changed_line(data, -1, checkpoint=2)
    yield "of another header", changed_line(data, -1, header="ab" * 32)
    yield "of another log", changed_line(data, -1, hash="cd" * 32)
    yield "ahead of the log", changed_line(data, -1, seq=10**6)
    yield "before the log", changed_line(data, -1, seq=-1)
    yield "within a record", changed_line(data, -1, seq=1)
    yield "other versions", changed_line(data, -1, views={"jumble": 1})
    yield "unknown views", changed_line(data, 1, put={"nobody": {"a": 1}})
    yield "no base", b"".join(lines[1:])
    yield "two bases", lines[0] * 2
    yield "doubled", b"".join([*lines[:2], *lines[1:]])
    yield "moved", b"".join([lines[0], *reversed(lines[1:])])
    yield "missing", b"".join([*lines[:1], *lines[2:]])
    yield "no rows", changed_line(data, 0, put=[])
    yield "nothing open", changed_line(data, 0, open={"turns": 3})
    yield (
        "rows of nonsense",
        changed_line(data, 0, put={name: {"x": []} for name in json.loads(lines[0])["put"]}),
    )
    for _ in range(scaled(300)):
        cut = rng.randrange(len(data))
        yield f"torn at {cut}", data[:cut]
        yield f"torn at {cut} with noise", data[:cut] + rng.randbytes(rng.randrange(200))
        flipped = bytearray(data)
        flipped[cut] ^= 1 << rng.randrange(8)
        yield f"flipped at {cut}", bytes(flipped)


@pytest.mark.parametrize("kind", WHERE)
def test_a_bad_checkpoint_changes_nothing(kind: str, tmp_path: Path, rng: random.Random) -> None:
    """Torn, flipped, foreign, newer, made up: readers and writers come to the same rows."""
    store, rows = written(kind, tmp_path)
    with store.create("t") as session:
        for number in range(6):
            session.append_many(turn(number))
    good, foreign = checkpoint_of(store), checkpoint_of(store, "t")
    assert good is not None
    assert foreign is not None
    settled(store)

    tried = 0
    for what, bad in bad_ones(good, foreign, rng):
        put_checkpoint(store, bad)
        if what == "rows of nonsense":
            # Who makes up rows with right checksums is believed where a view can live with them.
            store.inspect("s").fold()
            continue
        with opened(kind, tmp_path) as again:
            assert rows_of(again.inspect("s").fold()) == rows, what
            with again.writer("s") as session:
                assert session.position.seq == 35, what
                assert rows_of(session.fold()) == rows, what
        tried += 1
    assert tried >= 18


@pytest.mark.parametrize("kind", WHERE)
def test_a_writer_makes_a_bad_checkpoint_good(
    kind: str, tmp_path: Path, rng: random.Random
) -> None:
    """The next turn that a writer ends leaves a checkpoint that holds, whatever was there."""
    store, _ = written(kind, tmp_path)
    good = checkpoint_of(store)
    assert good is not None
    for number, bad in enumerate(
        (None, b"", good[:-30], good[: len(good) // 2], good + b"{", b"x")
    ):
        put_checkpoint(store, bad)
        with opened(kind, tmp_path) as again, again.writer("s") as session:
            session.fold()
            session.append_many(turn(10 + number))
            rows = rows_of(session.fold())
        with opened(kind, tmp_path) as again:
            loaded = again._folds.load("s")
            assert loaded.checkpoint is not None
            assert not loaded.checkpoint.torn
            assert loaded.checkpoint.position == loaded.fold.position
            assert rows_of(loaded.fold) == rows == from_the_start(again, "s")
    del rng


@pytest.mark.parametrize("kind", ["zst", "raw"])
def test_views_may_be_deleted(kind: str, tmp_path: Path) -> None:
    """Whoever deletes the folder of the views loses nothing, under a writer as well."""
    store, rows = written(kind, tmp_path)
    located = store.locate("s")
    assert located is not None
    views = Path(located).parent / "views"
    assert (views.stat().st_mode & 0o777, sorted(p.name for p in views.iterdir())) == (
        0o700,
        ["checkpoint", "open"],
    )
    assert {path.stat().st_mode & 0o777 for path in views.iterdir()} == {0o600}
    shutil.rmtree(views)
    assert rows_of(store.inspect("s").fold()) == rows

    with store.writer("s") as session:
        session.fold()
        session.append_many(turn(7))
        shutil.rmtree(views)
        session.append_many(turn(8))
        assert rows_of(session.fold()) == from_the_start(store, "s")
    assert rows_of(store.inspect("s").fold()) == from_the_start(store, "s")
    store.close()


@pytest.mark.parametrize("kind", KEPT)
def test_other_views_begin_anew(kind: str, tmp_path: Path) -> None:
    """Rows of another version, or of other views, are thrown away, and the log is folded again."""

    class Later(Jumble):
        version = 2

        def apply(self, rows: Rows, event: Event, history: History) -> None:
            super().apply(rows, event, history)
            rows.put("later", event.seq)

    store, rows = written(kind, tmp_path)
    store.close()
    for views in ([Later()], [], [Jumble()]):
        with opened(kind, tmp_path, views=views) as again:
            assert again._folds.load("s").checkpoint is None or views[0].version == 1
            assert rows_of(again.inspect("s").fold()) == from_the_start(again, "s")
    with opened(kind, tmp_path, views=[Later()]) as again:
        with again.writer("s") as session:
            assert session.fold().rows["jumble"]["later"] == 35
            session.append_many(turn(9))
        assert again._folds.load("s").checkpoint is not None
        assert rows_of(again.inspect("s").fold()) == from_the_start(again, "s")
    assert "later" not in dict(rows["jumble"])


@pytest.mark.parametrize("kind", ["zst", "raw"])
def test_an_older_log_has_no_use_for_a_newer_checkpoint(kind: str, tmp_path: Path) -> None:
    """Where a backup of the log was put back, the checkpoint of the lost part does not count."""
    store, _ = written(kind, tmp_path, turns=3)
    rows = from_the_start(store, "s")
    located = store.locate("s")
    assert located is not None
    log = Path(located)
    older = log.read_bytes()
    with store.writer("s") as session:
        session.fold()
        session.append_many(turn(3))
        session.append_many(turn(4))
    store.close()
    log.write_bytes(older)
    with opened(kind, tmp_path) as again:
        again.accept("s")
        assert checkpoint_of(again) is not None
        assert rows_of(again.inspect("s").fold()) == rows


@pytest.mark.parametrize("kind", KEPT)
def test_copies_and_repairs_do_not_inherit(kind: str, tmp_path: Path) -> None:
    """A copy has its own checkpoint or none; a repaired log is folded anew."""
    store, rows = written(kind, tmp_path)
    with opened("zst", tmp_path / "other") as other:
        store.copy("s", other)
        assert checkpoint_of(other) is None
        assert rows_of(other.inspect("s").fold()) == rows
    records = [piece.lines for piece in store._backend.scan("s", store._backend.stored("s").begin)]
    assert records
    hold = store._backend.lock("s")
    header = store.inspect("s").header
    assert header is not None
    store._backend.replace(hold, header, [], place="repair-1", reason="a test")
    hold.release()
    assert checkpoint_of(store) is None
    store.close()


# --- what it costs --------------------------------------------------------------------------------


def observe_puts(patch: pytest.MonkeyPatch, kind: type[Backend]) -> list[tuple[int | None, int]]:
    """For each time that derived bytes are put: where, and how many."""
    put, seen = kind.put_derived, list[tuple[int | None, int]]()

    def observed(
        self: Backend, hold: Hold, name: str, data: bytes, *, at: int | None = None
    ) -> None:
        if name == "checkpoint":
            seen.append((at, len(data)))
        put(self, hold, name, data, at=at)

    patch.setattr(kind, "put_derived", observed)
    return seen


def test_a_turn_costs_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over 200 turns fewer bytes are written for views than for the log, and as many each turn."""
    seen = observe_puts(monkeypatch, DirectoryBackend)
    with opened("raw", tmp_path, views=[]) as store:
        session = store.create("s")
        for number in range(200):
            session.append_many(turn_events(number))
        located = store.locate("s")
    assert located is not None
    *sizes, anew = [size for _, size in seen]
    assert len(sizes) == 200
    # What is scattered over 200 lines is made one when the writer leaves.
    assert seen[-1][0] is None
    assert anew < sum(sizes)
    del seen[-1]
    assert sum(sizes) < Path(located).stat().st_size
    assert [at for at, _ in seen].count(None) == 1
    assert max(sizes[1:]) < 2 * min(sizes[1:])


def test_a_resume_reads_what_is_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a compaction every 100 turns, a resume reads as much after 2,000 turns as after 200."""
    read: list[int] = []
    pread = os.pread

    def counted(descriptor: int, size: int, offset: int) -> bytes:
        data = pread(descriptor, size, offset)
        # The index reads on by itself.
        if threading.current_thread() is threading.main_thread():
            read.append(len(data))
        return data

    def cost() -> tuple[int, int]:
        with perdure.open(root) as store:
            settled(store)
            read.clear()
            with monkeypatch.context() as patch:
                patch.setattr(os, "pread", counted)
                session = store.writer("s")
                rows = len(session.fold().rows["conversation"])
            session.close()
            return sum(read), rows

    def span(first: int) -> None:
        with (
            perdure.open(root) as store,
            store.writer("s") if first else store.create("s") as session,
        ):
            session.fold()
            for number in range(first, first + 100):
                batch = turn_events(number)
                if number % 100 == 49:
                    data = {"summary": [{"type": "text", "text": "what was said"}]}
                    made = {"type": "context/compacted", "data": data, "agent": "main"}
                    batch.insert(-1, {**made, "turn": batch[0]["turn"]})
                session.append_many(batch)

    root, costs = tmp_path / "store", []
    for first in range(0, max(600, scaled(2000)), 100):
        span(first)
        costs.append(cost())
    # The log is never read as a whole, and what is live has the same size each time.
    sizes = [size for size, _ in costs]
    assert max(rows for _, rows in costs) < 1000
    assert max(sizes[1:]) < 1.6 * min(sizes[1:]), sizes
    with perdure.open(root) as store:
        assert rows_of(store.inspect("s").fold()) == from_the_start(store, "s")


def test_a_step_is_worth_a_checkpoint_after_many_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long turn is stored at the end of a step, 500 events after the last time and no sooner."""
    seen = observe_puts(monkeypatch, DirectoryBackend)
    note, end = {"type": "note/aside", "data": 1}, {"type": "step/end", "data": {"step": 1}}
    with opened("zst", tmp_path) as store, store.create("s") as session:
        session.append_many([*turn(0)[:1], *[note] * 400])
        session.append_many([end])
        assert seen == []
        session.append_many([note] * 98)
        session.append_many([end])
        assert len(seen) == 1
        session.append_many([*[note] * 499, end])
        assert len(seen) == 2
        session.append_many([*[note] * 400, end, turn(0)[-1]])
        assert len(seen) == 3


@pytest.mark.parametrize("kind", WHERE)
def test_a_writer_that_nobody_asked_loads_nothing(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that is not asked for views stores no checkpoint, until it is thousands behind."""
    store, _ = written(kind, tmp_path)
    before = checkpoint_of(store)
    monkeypatch.setattr("perdure.store.folding.BEHIND_EVENTS_MAX", 40)
    with store.writer("s") as session:
        for number in range(6):
            session.append_many(turn(10 + number))
            assert checkpoint_of(store) == before
        session.append_many(turn(20))
        assert checkpoint_of(store) != before
        assert session._folding.kept == session.position.seq
    assert rows_of(store._folds.load("s").fold) == from_the_start(store, "s")
    store.close()


# --- the writer's fast path -----------------------------------------------------------------------


def observe_passes(patch: pytest.MonkeyPatch, kind: type[Backend]) -> list[int]:
    """The event from which each pass over a log starts."""
    scan, seen = kind.scan, list[int]()

    def observed(self: Any, session: str, begin: int, *, seq: int = 0) -> Any:
        seen.append(seq)
        return scan(self, session, begin, seq=seq)

    patch.setattr(kind, "scan", observed)
    return seen


@pytest.mark.parametrize("kind", ["zst", "raw", "sqlite", "bundle"])
def test_a_writer_reads_from_the_checkpoint(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the log is as it was left, neither a writer nor its fold reads what is older."""
    store, rows = written(kind, tmp_path)
    settled(store)
    store.close()
    with opened(kind, tmp_path) as again:
        seen = observe_passes(monkeypatch, type(again._backend))
        with again.writer("s") as session:
            assert rows_of(session.fold()) == rows
            assert session.append("x").seq == 36
        assert seen == [35, 35]


@pytest.mark.parametrize("kind", ["zst", "raw"])
def test_a_log_that_was_touched_is_read_whole(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another inode, length or time of change, and the writer verifies everything first."""
    store, rows = written(kind, tmp_path)
    located = store.locate("s")
    assert located is not None
    log = Path(located)
    store.close()
    seen = observe_passes(monkeypatch, DirectoryBackend)

    def touch() -> None:
        os.utime(log)

    def copy() -> None:
        other = log.with_suffix(".copy")
        shutil.copy2(log, other)
        other.rename(log)

    for change in (touch, copy):
        change()
        with opened(kind, tmp_path) as again:
            settled(again)
            seen.clear()
            with again.writer("s") as session:
                assert seen == [0]
                assert rows_of(session.fold()) == rows
                assert seen == [0, 35]


@pytest.mark.parametrize("kind", ["zst", "raw"])
def test_damage_before_the_checkpoint_refuses_a_writer(kind: str, tmp_path: Path) -> None:
    """A byte that changed where the fast path does not look is noticed by the time of change."""
    store, _ = written(kind, tmp_path)
    settled(store)
    located = store.locate("s")
    assert located is not None
    store.close()
    data = bytearray(Path(located).read_bytes())
    data[len(data) // 3] ^= 1
    Path(located).write_bytes(data)
    with opened(kind, tmp_path) as again:
        settled(again)
        with pytest.raises(SessionDamaged):
            again.writer("s")


def test_an_sqlite_file_is_trusted_up_to_its_checkpoint(tmp_path: Path) -> None:
    """A row that is damaged before the checkpoint is not met by a writer, and is by `verify`."""
    store, rows = written("sqlite", tmp_path)
    with store._backend._medium.transaction() as db:  # type: ignore[attr-defined]
        db.execute("UPDATE records SET line = zeroblob(length(line)) WHERE seq = 3")
    store.close()
    with opened("sqlite", tmp_path) as again:
        with again.writer("s") as session:
            assert rows_of(session.fold()) == rows
            session.append("x")
        assert not again.verify("s").sound
        with pytest.raises(SessionDamaged):
            again.load("s")
    # Who was refused once is not trusted again.
    with opened("sqlite", tmp_path) as again, pytest.raises(SessionDamaged):
        again.writer("s")


def test_a_repair_that_was_begun_is_trusted_with_nothing(tmp_path: Path) -> None:
    """While a plan to repair the session is there, a writer verifies all of the log."""
    store, _ = written("sqlite", tmp_path)
    with store._backend._medium.transaction() as db:  # type: ignore[attr-defined]
        db.execute("UPDATE records SET line = zeroblob(length(line)) WHERE seq = 3")
    hold = store._backend.lock("s")
    store._backend.set_plan(hold, b"a plan")
    hold.release()
    store.close()
    with opened("sqlite", tmp_path) as again, pytest.raises(SessionDamaged):
        again.writer("s")


@pytest.mark.parametrize("last", [20, 35, 50])
@pytest.mark.parametrize("kind", KEPT)
def test_what_evidence_remembers_is_looked_for(kind: str, last: int, tmp_path: Path) -> None:
    """A position that is remembered and not in the log refuses a writer, checkpoint or not."""
    store, _ = written(kind, tmp_path)
    settled(store)
    header = store.inspect("s").header
    assert header is not None
    store.close()
    with opened(kind, tmp_path) as again:
        position = perdure.Position(last, "ab" * 32)
        again._backend.evidence.replace("", Seen("s", header.digest, position, 2**52))
        with pytest.raises(SessionDamaged):
            again.writer("s")


@pytest.mark.parametrize("kind", KEPT)
def test_an_older_memory_is_looked_for_as_well(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where evidence is older than the checkpoint, a writer reads from there on, and no sooner."""
    store, _ = written(kind, tmp_path)
    settled(store)
    header = store.inspect("s").header
    assert header is not None
    store.close()
    with opened(kind, tmp_path) as again:
        record = next(
            decode_line(line)
            for line in again.raw("s")
            if isinstance(line, bytes) and b'"seq":14,' in line
        )
        again._backend.evidence.replace("", Seen("s", header.digest, record.position, 2**52))
        seen = observe_passes(monkeypatch, type(again._backend))
        again.writer("s").close()
        assert seen == [14]


def knows_keys(session: perdure.Session) -> bool:
    return session._queue.keys is not None


@pytest.mark.parametrize("kind", KEPT)
def test_keys_are_known_all_the_same(kind: str, tmp_path: Path) -> None:
    """A key that was stored before the checkpoint is found when it is needed, and not before."""
    store = opened(kind, tmp_path)
    with store.create("s") as session:
        paid = session.append("pay", {"sum": 1}, key="k")
        for number in range(3):
            session.append_many(turn(number))
    settled(store)
    store.close()
    for how in ("append", "buffer", "append_many", "admit"):
        with opened(kind, tmp_path) as again, again.writer("s") as session:
            assert not knows_keys(session)
            session.append("free", 1)
            assert not knows_keys(session)
            drafted = {"type": "pay", "data": {"sum": 1}, "key": "k"}
            if how == "append_many":
                session.append_many([{"type": "new", "data": how, "key": how}])
                assert session.append_many([drafted]) == [paid]
            elif how == "admit":
                fresh = session.append("new", how, key=how)
                assert session.append("new", how, key=how) == fresh
            else:
                found = getattr(session, how)("pay", {"sum": 1}, key="k")
                assert found == paid
            assert knows_keys(session)
            with pytest.raises(perdure.errors.KeyConflict):
                session.append("pay", {"sum": 2}, key="k")
        with opened(kind, tmp_path) as again:
            settled(again)


@pytest.mark.parametrize("kind", KEPT)
def test_keys_of_a_log_that_is_damaged_are_not_guessed(kind: str, tmp_path: Path) -> None:
    """Where older records cannot be read, an event with a key is refused and one without is not."""
    store, _ = written(kind, tmp_path)
    settled(store)
    with store.writer("s") as session:
        session._queue._read_keys = _refuse
        with pytest.raises(SessionDamaged):
            session.append("pay", 1, key="k")
        assert session.append("free", 1).seq == 36
        assert session.position.seq == 36
    store.close()


def _refuse() -> Any:
    raise SessionDamaged("s", "cannot be read")


@pytest.mark.parametrize("kind", KEPT)
def test_open_work_is_closed_from_the_checkpoint(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was open at a checkpoint gets the closers that a reading of everything gives it."""
    store = opened(kind, tmp_path)
    session = store.create("s")
    session.append_many(turn(0))
    call = {"type": "tool-call", "id": "c1", "name": "bash"}
    session.append_many([
        {"type": "job/start", "data": {"id": "j", "kind": "build"}, "agent": "a"},
        {"type": "turn/start", "data": {}, "turn": "u", "agent": "b"},
        {"type": "step/start", "data": {"step": 2}, "turn": "u", "agent": "b"},
        {"type": "assistant/message", "data": {"content": [call]}, "turn": "u", "agent": "b"},
        *turn(1),
    ])  # fmt: skip
    session.append("tool/call", {"id": "c1", "name": "bash"}, turn="u", agent="b")
    session.close()
    wanted = [event.as_dict() for event in store.inspect("s").closers]
    assert [event["type"] for event in wanted] == ["tool/result", "step/end", "turn/end", "job/end"]
    settled(store)
    store.close()
    with opened(kind, tmp_path) as again:
        open_, shut = (rows_of(again.inspect("s").fold(closed=each)) for each in (False, True))
        seen = observe_passes(monkeypatch, type(again._backend))
        with again.writer("s") as session:
            assert seen == [15]
            closed = [event.as_dict() for event in again.read_from("s", 17)]
            assert closed == wanted
            assert {**rows_of(session.fold()), "position": 0} == {**shut, "position": 0}
    assert open_ != shut


@pytest.mark.parametrize("kind", KEPT)
def test_load_and_verify_read_everything(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only writers trust a checkpoint: `load` and `verify` begin at the first event."""
    store, _ = written(kind, tmp_path)
    settled(store)
    store.close()
    with opened(kind, tmp_path) as again:
        seen = observe_passes(monkeypatch, type(again._backend))
        again.writer("s").close()
        assert set(seen) == {35}
        seen.clear()
        again.load("s")
        again.verify("s")
        assert set(seen) == {0}


# --- nothing derived is in the way ----------------------------------------------------------------


@pytest.mark.parametrize("kind", ALL)
def test_a_checkpoint_that_cannot_be_stored_fails_nothing(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk for derived data costs the checkpoint, not the append."""
    store = opened(kind, tmp_path)
    session = store.create("s")
    session.append_many(turn(0))
    with monkeypatch.context() as patch:

        def full(*_: object, **__: object) -> None:
            raise StorageFull("views", "no space left")

        patch.setattr(type(store._backend), "put_derived", full)
        for number in range(1, 4):
            assert session.append_many(turn(number))[-1].seq == 6 * number + 5
        assert rows_of(session.fold()) == from_the_start(store, "s")
        session.append_many(turn(4))
    session.fold()
    session.append_many(turn(5))
    session.close()

    loaded = store._folds.load("s")
    assert loaded.checkpoint is not None
    assert loaded.checkpoint.position.seq == 35
    assert rows_of(loaded.fold) == from_the_start(store, "s")
    store.close()


@pytest.mark.parametrize("kind", WHERE)
def test_a_view_that_raises_fails_no_append(kind: str, tmp_path: Path) -> None:
    """A fault in a user's view surfaces where views are asked for, and nowhere else."""

    class Fussy(View):
        name, version, types = "fussy", 1, frozenset({"turn/end", "x"})

        def apply(self, rows: Rows, event: Event, history: History) -> None:
            del rows, history
            if event.type == "x":
                raise ZeroDivisionError

    with opened(kind, tmp_path, views=[Fussy()]) as store, store.create("s") as session:
        session.append_many(turn(0))
        session.append("x")
        assert session.append_many(turn(1))[-1].seq == 12
        with pytest.raises(ZeroDivisionError):
            session.fold()
        with pytest.raises(ZeroDivisionError):
            store.inspect("s").fold()
        assert session.append_many(turn(2))[-1].seq == 18
    with opened(kind, tmp_path, views=[]) as store:
        assert store.verify("s").sound
        assert rows_of(store.inspect("s").fold()) == from_the_start(store, "s")


def test_an_interruption_leaves_nothing_half_folded(tmp_path: Path) -> None:
    """A signal in the middle of a fold costs the fold, which is made again."""

    class Interrupted(View):
        name, version, types = "interrupted", 1, frozenset({"user/message", "turn/end"})
        armed = False

        def apply(self, rows: Rows, event: Event, history: History) -> None:
            del history
            rows.put("count", rows.get("count", 0) + 1)
            if self.armed and event.type == "turn/end":
                self.armed = False
                raise KeyboardInterrupt

    view = Interrupted()
    with opened("zst", tmp_path, views=[view]) as store, store.create("s") as session:
        session.append_many(turn(0))
        view.armed = True
        with pytest.raises(KeyboardInterrupt):
            session.append_many(turn(1))
        assert session.position.seq == 11
        assert rows_of(session.fold()) == from_the_start(store, "s")
        session.append_many(turn(2))
        assert session.fold().rows["interrupted"]["count"] == 6
        assert rows_of(session.fold()) == from_the_start(store, "s")


def test_a_dead_writer_stores_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing derived is attempted after a failure that left the medium unknown."""
    store = opened("zst", tmp_path)
    session = store.create("s")
    session.append_many(turn(0))
    seen = observe_puts(monkeypatch, DirectoryBackend)
    hold = session._hold
    assert hold is not None
    monkeypatch.setattr(type(hold), "dead", property(lambda _: True))
    session._folding._due = True
    session._folding.keep(hold)
    session.append_many(turn(1))
    assert seen == []
    monkeypatch.undo()
    store.close()


def test_a_forked_child_has_no_fold(tmp_path: Path) -> None:
    """The child of a fork cannot ask the writer of its parent, nor store anything for it."""
    store = opened("zst", tmp_path)
    session = store.create("s")
    session.append_many(turn(0))
    before = checkpoint_of(store)
    pid = os.fork()
    if pid == 0:
        try:
            session.fold()
        except SessionClosed:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert checkpoint_of(store) == before
    session.append_many(turn(1))
    assert rows_of(session.fold()) == from_the_start(store, "s")
    store.close()


# --- readers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", WHERE)
def test_readers_write_nothing(kind: str, tmp_path: Path) -> None:
    """A reader's fold changes no file, with a checkpoint or without, beside a writer or alone."""
    store, rows = written(kind, tmp_path)
    session = store.writer("s")
    session.append_many(turn(6)[:3])

    def files() -> dict[Path, tuple[int, bytes]]:
        found = {}
        for path in tmp_path.rglob("*"):
            if path.is_file() and not path.name.endswith("-shm"):
                found[path] = (path.stat().st_mtime_ns, path.read_bytes())
        return found

    with opened(kind, tmp_path) as reader:
        before = files()
        seen = reader.inspect("s")
        assert rows_of(seen.fold()) == rows_of(seen.fold(closed=False))
        assert rows_of(seen.fold()) == from_the_start(reader, "s") != rows
        assert files() == before
    session.close()
    store.close()


@pytest.mark.parametrize("kind", WHERE)
def test_a_reader_is_refused_what_does_not_hold_together(kind: str, tmp_path: Path) -> None:
    """Damage behind the checkpoint is met by a reader's fold; an unreadable header, too."""
    store, _ = written(kind, tmp_path)
    with store.writer("s") as session:
        session.append("x", "y" * 100)
    if kind == "sqlite":
        with store._backend._medium.transaction() as db:  # type: ignore[attr-defined]
            db.execute("UPDATE records SET line = zeroblob(length(line)) WHERE seq = 36")
    else:
        located = store.locate("s")
        assert located is not None
        data = bytearray(Path(located).read_bytes())
        data[-60 if kind == "zst" else -30] ^= 1
        Path(located).write_bytes(data)
    with pytest.raises(SessionDamaged):
        store.inspect("s").fold()
    store.close()


def test_without_persistence_a_session_has_its_views() -> None:
    """What keeps nothing folds what it is told; what needs the past is told that there is none."""
    with perdure.open("none:") as store:
        with store.create("s") as session:
            session.append_many(turn(0))
            fold = session.fold()
            assert fold.position == session.position
            assert fold.rows["conversation"].all
            with pytest.raises(PersistenceDisabled):
                next(fold.history())
        with store.create("t", vocabulary=None) as session:
            session.append("x")
            with pytest.raises(PersistenceDisabled):
                session.fold()


@pytest.mark.parametrize("kind", ALL)
def test_sessions_of_other_vocabularies_are_folded_when_asked(kind: str, tmp_path: Path) -> None:
    """A session whose caller owns the types is folded from its log, and stored from then on."""
    store = opened(kind, tmp_path)
    with store.create("s", vocabulary=None) as session:
        session.append_many(turn(0))
        assert checkpoint_of(store) is None
        assert rows_of(session.fold()) == from_the_start(store, "s")
        session.append_many(turn(1))
        assert checkpoint_of(store) is not None
        assert rows_of(session.fold()) == from_the_start(store, "s")
    with store.create("t", vocabulary=None) as session:
        assert session.fold().position.seq == -1
        session.append_many(turn(0))
        assert rows_of(session.fold()) == from_the_start(store, "t")
    store.close()


# --- views of a user's ----------------------------------------------------------------------------


class Count(View):
    """How many events of any of these types there are."""

    name = "count"
    version = 3
    types = frozenset({"turn/end", "mine/own"})

    def apply(self, rows: Rows, event: Event, history: History) -> None:
        """Count."""
        del history
        rows.put(event.type, rows.get(event.type, 0) + 1)


@pytest.mark.parametrize("kind", ALL)
def test_own_views_are_kept_like_others(kind: str, tmp_path: Path) -> None:
    """A view that a user gives is folded, stored and read back, in namespaces as well."""
    store = open_medium(kind, tmp_path, views=[Count()])
    for where in (store, store.namespace("team")):
        with where.create("s") as session:
            session.append_many([*turn(0), {"type": "mine/own"}, *turn(1)])
            assert dict(session.fold().rows["count"].all) == {"turn/end": 2, "mine/own": 1}
        loaded = where._folds.load("s")
        assert loaded.checkpoint is not None
        assert loaded.checkpoint.views["count"] == 3
        assert dict(loaded.fold.rows["count"].all) == {"turn/end": 2, "mine/own": 1}
    store.close()


def clashing() -> View:
    made = Count()
    made.name = "conversation"
    return made


def named(**members: Any) -> View:
    made = Count()
    for name, value in members.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("views", "path"),
    [
        ("count", "views"),
        (7, "views"),
        ([Count], "views[0]"),
        ([Count(), object()], "views[1]"),
        ([clashing()], "views[0].name"),
        ([Count(), Count()], "views[1].name"),
        ([named(name="A b")], "views[0].name"),
        ([named(name="x" * 65)], "views[0].name"),
        ([named(name=None)], "views[0].name"),
        ([named(version="1")], "views[0].version"),
        ([named(version=True)], "views[0].version"),
        ([named(types={"a"})], "views[0].types"),
        ([named(types=frozenset({1}))], "views[0].types"),
    ],
)
def test_what_is_no_view_is_refused(views: Any, path: str, tmp_path: Path) -> None:
    """A view has a name of its own, a version and types; what has not is refused by name."""
    for open_store in (perdure.open, aio.open):
        with pytest.raises(InvalidValue) as refused:
            open_store(tmp_path / "store", views=views)
        assert refused.value.path == path
    assert not list(tmp_path.iterdir())


def test_every_known_type_counts_as_known() -> None:
    """Only events outside the vocabulary that no view looks at are called skipped."""
    with perdure.open("memory:") as store, store.create("s") as session:
        session.append_many([{"type": kind, "data": {}} for kind in PAYLOADS if "fork" not in kind])
        session.append_many([{"type": "odd/one"}] * 3)
        session.append("odd/two")
        assert session.fold().skipped == {"odd/one": 3, "odd/two": 1}


def forged(data: bytes, old: bytes, new: bytes) -> bytes:
    """A checkpoint with other rows and right checksums."""
    out, crc = b"", 0
    for line in data.replace(old, new).splitlines():
        body = line[: line.rindex(b',"crc":')]
        crc = zlib.crc32(body, crc)
        out += b'%s,"crc":"%08x"}\n' % (body, crc)
    return out


def test_what_was_handed_over_is_not_believed(tmp_path: Path) -> None:
    """A file from elsewhere says what its log says, whatever rows lie beside it."""
    ours, theirs = tmp_path / "ours.perdure", tmp_path / "theirs.perdure"
    with perdure.open(ours) as store, store.create("s") as session, session.turn() as turn:
        turn.user("hello")
    shutil.copy(ours, theirs)
    theirs.chmod(0o600)
    db = apsw.Connection(str(theirs))
    [(data,)] = db.execute("SELECT bytes FROM derived WHERE name = 'checkpoint'").fetchall()
    assert isinstance(data, bytes)
    db.execute(
        "UPDATE derived SET bytes = ? WHERE name = 'checkpoint'",
        (forged(data, b"hello", b"FORGE"),),
    )
    db.close()
    with perdure.open(theirs) as store:
        assert store.inspect("s").messages()[0]["content"][0]["text"] == "hello"
        with store.resume("s") as session:
            assert session.messages()[0]["content"][0]["text"] == "hello"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"triggers":{', b'"triggers":{"q":5,'),
        (b'"agents":{"[\\"agent\\",null]":[', b'"agents":{"[\\"agent\\",null]":[null,'),
        (b'"open":{"time":', b'"open":{"time":"never","was":'),
    ],
)
def test_rows_of_another_shape_are_no_obstacle(tmp_path: Path, old: bytes, new: bytes) -> None:
    """Rows that no view made, with right checksums, cost a reading of the log and nothing else."""
    with perdure.open(tmp_path / "store") as store:
        with store.create("s") as session, session.turn() as turn:
            session.set_trigger("t", "timer")
            turn.user("hello")
        expected = store.inspect("s").state.as_dict()
        path = Path(str(store.locate("s"))).parent / "views" / "checkpoint"
        data = path.read_bytes()
        assert old in data
        path.write_bytes(forged(data, old, new))
    with perdure.open(tmp_path / "store") as store:
        found = store.inspect("s")
        assert found.state.as_dict() == expected
        assert len(found.messages()) == 1
        with store.resume("s") as session:
            assert len(session.messages()) == 1
        assert store.verify("s").sound


def test_a_rewind_is_paid_once(tmp_path: Path) -> None:
    """After rewinds between branches, whoever reads next does not read the log for them again."""
    with perdure.open(tmp_path / "store") as store:
        with store.create("s") as session:
            for number in range(4):
                with session.turn(f"t{number}") as turn:
                    turn.user("hello")
                session.rewind("t0" if number % 2 else None)
            last = session.position.seq
        loaded = store._folds.load("s")
        assert loaded.checkpoint is not None
        assert loaded.checkpoint.position.seq == last
