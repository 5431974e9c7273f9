"""A session goes from any store to any other, and is the same there."""

import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.backends.memory import MemoryBackend
from perdure.errors import (
    ContentDamaged,
    InvalidValue,
    PersistenceDisabled,
    SessionBusy,
    SessionDamaged,
    SessionDiverged,
    SessionExists,
    SessionNotFound,
    StorageFull,
    StorageUnavailable,
    StoreClosed,
)
from perdure.model.event import draft
from perdure.model.record import seal
from perdure.store import copying
from tests.media import ALL, FOLDERS, KEPT, assert_equal, contents, lines, open_medium, records
from tests.support import soaked

TURN = [
    {"type": "turn/start", "data": {}, "turn": "t"},
    {
        "type": "user/message",
        "data": {"content": [{"type": "text", "text": "é\ud800"}]},
        "turn": "t",
    },
    {"type": "turn/end", "data": {"reason": "completed"}, "turn": "t", "key": "k"},
]
CALL = {"id": "c1", "name": "bash", "arguments": {"cmd": "make"}}


def write(store: perdure.Store, session: str = "s", count: int = 3) -> None:
    """Write a session with content, a packed run and a key."""
    with store.create(session, cwd="/srv/a", config={"model": [1, 2.5]}) as writer:
        writer.append_many(TURN)
        for number in range(count):
            digest = writer.put_blob(b"%d " % number * 5000)
            writer.append("note", {"number": number, "blob": digest})
        for piece in ("a", "b", "c", "d"):
            writer.buffer("assistant/delta", {"text": piece})


def extend(store: perdure.Store, session: str = "s", text: str = "more") -> None:
    with store.writer(session) as writer:
        writer.append("note", {"text": text, "blob": writer.put_blob(text.encode())})


@pytest.fixture(params=ALL)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[perdure.Store]:
    with open_medium(request.param, tmp_path, "source") as store:
        yield store


@pytest.fixture(params=ALL)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[perdure.Store]:
    with open_medium(request.param, tmp_path, "target") as store:
        yield store


@pytest.fixture
def here(tmp_path: Path) -> Iterator[perdure.Store]:
    with open_medium("raw", tmp_path, "here") as store:
        yield store


@pytest.fixture
def there(tmp_path: Path) -> Iterator[perdure.Store]:
    with open_medium("raw", tmp_path, "there") as store:
        yield store


def log_of(store: perdure.Store, session: str = "s") -> Path:
    return Path(str(store.locate(session)))


# --- from anywhere to anywhere --------------------------------------------------------------------


def test_a_copy_is_equal(source: perdure.Store, target: perdure.Store) -> None:
    """Header, records, hashes and content arrive byte for byte, and the copy can be written on."""
    write(source)
    before = lines(source, "s")
    copied = source.copy("s", target)
    assert copied == perdure.Copied("s", records(source, "s")[-1].position, 10, 3, "copied")
    assert_equal(source, target, "s")
    assert lines(source, "s") == before
    with target.writer("s") as writer:
        assert writer.append("note", "goes on").seq == 10
        assert writer.append("turn/end", {"reason": "completed"}, turn="t", key="k").seq == 2


def test_a_second_copy_changes_nothing(source: perdure.Store, target: perdure.Store) -> None:
    """Where everything is there, nothing is written, and nobody is waited for."""
    write(source)
    first = source.copy("s", target)
    revision = target.list_snapshots()[0].revision
    with target.writer("s"):
        assert source.copy("s", target) == first._replace(events=0, blobs=0, status="unchanged")
    again = source.copy("s", target)
    assert (again.status, again.position) == ("unchanged", first.position)
    assert target.list_snapshots()[0].revision == revision


def test_what_is_new_is_added(source: perdure.Store, target: perdure.Store) -> None:
    """A later copy brings the events and the content that came since, and no other."""
    write(source)
    source.copy("s", target)
    extend(source)
    copied = source.copy("s", target)
    assert (copied.events, copied.blobs, copied.status) == (1, 1, "continued")
    assert_equal(source, target, "s")


def test_every_way_round(tmp_path: Path) -> None:
    """Through every kind of store and back into a folder, a session stays what it is."""
    with open_medium("zst", tmp_path, "first") as first:
        write(first)
        stores = [open_medium(kind, tmp_path, f"on-the-way-{kind}") for kind in ALL]
        last = open_medium("raw", tmp_path, "last")
        before = first
        for store in (*stores, last):
            before.copy("s", store)
            before = store
        assert_equal(first, last, "s")
        for store in (*stores, last):
            store.close()


# --- what it takes along, and what it leaves ------------------------------------------------------


def test_lineage_comes_along(here: perdure.Store, there: perdure.Store) -> None:
    """Where a sub-agent comes from stands in its header, and is the same there."""
    write(here)
    parent = perdure.Parent("s", 2)
    with here.create("child", parent=parent, origin="subagent", depth=1) as child:
        child.append("note", "hello")
    here.copy("child", there)
    header = there.inspect("child").header
    assert header == here.inspect("child").header
    assert header is not None
    assert (header.parent, header.origin, header.depth) == (parent, "subagent", 1)


@pytest.mark.parametrize("kind", ALL)
def test_an_open_turn_stays_open(here: perdure.Store, tmp_path: Path, kind: str) -> None:
    """No closers are committed on the way: the next writer of the copy does that."""
    with here.create("s") as writer:
        writer.append("turn/start", {}, turn="t")
        writer.append("assistant/message", {"content": [{"type": "tool-call", **CALL}]}, turn="t")
        writer.append("tool/call", CALL, turn="t")
    with open_medium(kind, tmp_path) as target:
        assert here.copy("s", target).position.seq == 2
        assert [event.type for event in target.inspect("s").closers] == ["tool/result", "turn/end"]
        assert_equal(here, target, "s")
        here.load("s")
        assert here.copy("s", target).events == 2
        assert_equal(here, target, "s")


def test_damaged_content_is_named_and_left(here: perdure.Store, there: perdure.Store) -> None:
    """Content whose hash is wrong does not spread; the rest of the session comes along."""
    write(here)
    good = contents(here, "s")
    bad = min(good)
    blob = log_of(here).parent / "blobs" / bad[:2] / bad
    blob.write_bytes(b"x" + blob.read_bytes()[1:])
    copied = here.copy("s", there)
    (problem,) = copied.problems
    assert isinstance(problem, ContentDamaged)
    assert (problem.session, problem.digest) == ("s", bad)
    assert copied.blobs == 2
    del good[bad]
    assert contents(there, "s") == good
    assert lines(there, "s") == lines(here, "s")
    again = here.copy("s", there)
    assert (len(again.problems), again.status, again.blobs) == (1, "unchanged", 0)
    blob.write_bytes(b"x")
    assert len(here.copy("s", there).problems) == 1


@pytest.mark.parametrize("kind", ALL)
def test_expired_content_stays_expired(here: perdure.Store, tmp_path: Path, kind: str) -> None:
    """What expired before is not there; what expires later goes there, too; the rest stays."""
    write(here)
    names = [event.data["blob"] for event in here.read_from("s") if event.type == "note"]
    here.expire("s", keep_last=2)
    with open_medium(kind, tmp_path) as target:
        assert here.copy("s", target).blobs == 2
        assert [*contents(target, "s")] == sorted(names[1:])
        here.expire("s", keep_last=1)
        copied = here.copy("s", target)
        assert (copied.events, copied.blobs, copied.status) == (1, 0, "continued")
        assert [*contents(target, "s")] == names[2:]
        assert here.copy("s", target).status == "unchanged"


def test_content_that_the_source_lost_stays(here: perdure.Store, there: perdure.Store) -> None:
    """Only the log takes content away: what is lost here and not expired is kept there."""
    write(here)
    here.copy("s", there)
    before = contents(there, "s")
    lost = min(before)
    (log_of(here).parent / "blobs" / lost[:2] / lost).unlink()
    assert here.copy("s", there).status == "unchanged"
    extend(here)
    assert here.copy("s", there).status == "continued"
    assert before.items() <= contents(there, "s").items()


def test_content_that_came_back_stays(here: perdure.Store, there: perdure.Store) -> None:
    """Content that expired and was put again is content like any other."""
    with here.create("s") as writer:
        digest = writer.put_blob(b"twice")
        writer.append("note", {"blob": digest})
    here.expire("s", keep_last=0)
    with here.writer("s") as writer:
        assert writer.put_blob(b"twice") == digest
        writer.append("note", {"blob": digest})
    here.copy("s", there)
    (log_of(here).parent / "blobs" / digest[:2] / digest).unlink()
    here.copy("s", there)
    assert there.blob("s", digest) == b"twice"


def test_content_that_was_cut_short_is_mended(here: perdure.Store, there: perdure.Store) -> None:
    """Content that has another size there is brought again."""
    write(here)
    here.copy("s", there)
    name = min(contents(here, "s"))
    cut = log_of(there).parent / "blobs" / name[:2] / name
    cut.write_bytes(cut.read_bytes()[:-1])
    copied = here.copy("s", there)
    assert (copied.status, copied.blobs) == ("continued", 1)
    assert_equal(here, there, "s")


# --- bounds ---------------------------------------------------------------------------------------


class Counting(MemoryBackend):
    """Tells the sizes of commits, and does something of the test's before each."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: list[int] = []
        self.before: Callable[[], None] = lambda: None

    def _store(self, hold: Any, records: Any) -> None:
        self.before()
        self.commits.append(len(records))
        super()._store(hold, records)


def test_commits_have_a_bound(here: perdure.Store) -> None:
    """A long log comes in commits of at most 512 records, or of about a MiB."""
    with here.create("many") as writer:
        writer.append_many([{"type": "note", "data": number} for number in range(1100)])
    with here.create("large") as writer:
        writer.append_many([{"type": "note", "data": "x" * 400_000} for _ in range(7)])
    backend = Counting()
    with perdure.Store(backend) as target:
        here.copy("many", target)
        assert backend.commits == [512, 512, 76]
        backend.commits.clear()
        here.copy("large", target)
        assert backend.commits == [3, 3, 1]
        assert_equal(here, target, "many")
        assert_equal(here, target, "large")


@pytest.mark.parametrize("kind", ["zst", "bundle", *soaked("raw", "sqlite")])
def test_memory_is_bounded(tmp_path: Path, kind: str) -> None:
    """What is held at once depends on commits and parts of content, not on log and content."""
    with open_medium(kind, tmp_path, "a") as source, open_medium(kind, tmp_path, "b") as target:
        with source.create("s") as writer:
            for number in range(30):
                writer.append("note", {"number": number, "text": "x" * 1_000_000})
            writer.put_blob(b"%d" % number * 100_000 for number in range(400))
        tracemalloc.start()
        try:
            source.copy("s", target)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 16_000_000
        assert_equal(source, target, "s")


# --- broken off -----------------------------------------------------------------------------------


def test_a_copy_that_broke_off_is_continued(
    here: perdure.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was committed before a failure stays, is sound, and is not brought again."""
    monkeypatch.setattr(copying, "BATCH_RECORDS", 2)
    write(here)
    backend = Counting()
    countdown = iter(range(2))

    def full() -> None:
        if next(countdown, None) is None:
            raise StorageFull("target", "no space left")

    backend.before = full
    with perdure.Store(backend) as target:
        with pytest.raises(StorageFull):
            here.copy("s", target)
        assert lines(target, "s") == lines(here, "s")[:5]
        assert target.verify("s").sound
        assert target.inspect("s").holder is None
        backend.before = lambda: None
        copied = here.copy("s", target)
        assert (copied.status, copied.events, copied.blobs) == ("continued", 6, 0)
        assert_equal(here, target, "s")


def test_a_copy_that_never_began_leaves_nothing(
    here: perdure.Store, there: perdure.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If content cannot be put, no session appears, and the next copy is a new one."""
    write(here)

    def full(*_: object) -> None:
        raise StorageFull("target", "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(there._backend, "put_blob", full)
        with pytest.raises(StorageFull):
            here.copy("s", there)
    assert there.list() == []
    assert [*(log_of(there).parent.parent.parent / "new").iterdir()] == []
    assert here.copy("s", there).status == "copied"


@pytest.mark.parametrize("torn", [b'{"seq":', b"x" * 5000])
def test_a_torn_end_there_is_set_aside(
    here: perdure.Store, there: perdure.Store, torn: bytes
) -> None:
    """Half a record that a dead copy left is kept aside, and the log is continued behind it."""
    write(here)
    here.copy("s", there)
    with log_of(there).open("ab") as log:
        log.write(torn)
    extend(here)
    assert here.copy("s", there).events == 1
    assert_equal(here, there, "s")
    (aside,) = (log_of(there).parent / "aside").glob("*.bytes")
    assert aside.read_bytes() == torn


@pytest.mark.parametrize("kind", FOLDERS)
def test_a_torn_end_here_stays_here(tmp_path: Path, there: perdure.Store, kind: str) -> None:
    """Only intact records are copied; the torn bytes of the source stay where they are."""
    with open_medium(kind, tmp_path) as source:
        write(source)
        whole = lines(source, "s")
        log = log_of(source)
        torn = log.read_bytes() + b'(\xb5/\xfd"torn'
        log.write_bytes(torn)
        assert source.copy("s", there).position.seq == 9
        assert lines(there, "s") == whole
        assert log.read_bytes() == torn


def test_noise_stays_here(here: perdure.Store, there: perdure.Store) -> None:
    """Bytes between the records that belong to none are not copied; the records all are."""
    write(here)
    log = log_of(here)
    whole = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*whole[:3], b"noise\n", *whole[3:]]))
    copied = here.copy("s", there)
    assert (copied.status, copied.events) == ("copied", 10)
    assert lines(there, "s") == whole
    assert there.verify("s").sound


# --- while others are at work ---------------------------------------------------------------------


def test_a_session_that_is_written_is_copied(here: perdure.Store, there: perdure.Store) -> None:
    """The writer of the source is not waited for, and not disturbed."""
    write(here)
    with here.writer("s") as writer:
        writer.append("note", "while it is open")
        assert here.copy("s", there).position == writer.position
        writer.append("note", "and after")
    assert here.copy("s", there).events == 1
    assert_equal(here, there, "s")


def test_a_commit_under_way_is_not_copied(here: perdure.Store, there: perdure.Store) -> None:
    """What a live writer may still take back is left out; what a dead one left is kept."""
    write(here)
    with here.writer("s") as writer:
        (under_way,) = seal(writer.position, [draft("note", "under way", time=1)])
        log = log_of(here)
        whole = log.read_bytes()
        log.write_bytes(whole + under_way.line)
        assert here.copy("s", there).position == writer.position
        log.write_bytes(whole)
        writer.append("note", "another one")
    assert here.copy("s", there).status == "continued"
    assert_equal(here, there, "s")
    end = records(here, "s")[-1].position
    (left,) = seal(end, [draft("note", "left by a dead writer", time=1)])
    log.write_bytes(log.read_bytes() + left.line)
    assert here.copy("s", there).position == left.position
    assert_equal(here, there, "s")


def test_a_source_that_grows_is_copied_as_of_some_moment(here: perdure.Store) -> None:
    """Events that come during the copy are not in it, or in the order of the log; never a gap."""
    write(here)
    backend = Counting()
    backend.before = lambda: extend(here)
    with perdure.Store(backend) as target:
        copied = here.copy("s", target)
        mine, theirs = lines(here, "s"), lines(target, "s")
        assert theirs == mine[: len(theirs)]
        assert len(mine) > len(theirs)
        assert copied.position == records(target, "s")[-1].position
        backend.before = lambda: None
        here.copy("s", target)
        assert_equal(here, target, "s")


def test_a_source_that_is_exchanged_is_noticed(
    here: perdure.Store, there: perdure.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that is another one by the time it is copied is an error, and may be tried again."""
    write(here)
    with here.create("other") as writer:
        writer.append_many([{"type": "x", "data": number} for number in range(20)])
    read = here._backend.scan
    calls = iter(range(10))

    def exchanged(session: str, begin: int, *, seq: int = 0) -> Any:
        if threading.current_thread() is not threading.main_thread():
            return read(session, begin, seq=seq)  # the index reads on by itself
        return read("other" if next(calls) else session, begin, seq=seq)

    monkeypatch.setattr(here._backend, "scan", exchanged)
    with pytest.raises(StorageUnavailable) as failed:
        here.copy("s", there)
    assert failed.value.retryable
    assert there.list() == []


@pytest.mark.parametrize("kind", ALL)
def test_a_busy_destination_is_said(here: perdure.Store, tmp_path: Path, kind: str) -> None:
    """What has something to write waits for the writer there, for as long as it was told to."""
    write(here)
    with open_medium(kind, tmp_path) as target:
        here.copy("s", target)
        extend(here)
        with target.writer("s"), pytest.raises(SessionBusy):
            here.copy("s", target, wait=0.01)
        assert here.copy("s", target, wait=5).events == 1


def test_two_copies_at_once_make_one(here: perdure.Store, there: perdure.Store) -> None:
    """Whoever comes second to a new session goes on with it as with one that is there."""
    write(here)
    publish = there._backend.publish

    def late(*arguments: Any) -> Any:
        there._backend.publish = publish  # type: ignore[method-assign]
        here.copy("s", there)
        return publish(*arguments)

    there._backend.publish = late  # type: ignore[assignment, method-assign]
    copied = here.copy("s", there)
    assert (copied.status, copied.events, copied.blobs) == ("unchanged", 0, 0)
    assert_equal(here, there, "s")


# --- two logs of one id ---------------------------------------------------------------------------


def test_a_destination_that_went_on_is_ahead(source: perdure.Store, target: perdure.Store) -> None:
    """Where the destination holds all events and more, that is said and nothing is written."""
    write(source)
    source.copy("s", target)
    extend(target)
    end = records(target, "s")[-1].position
    assert source.copy("s", target) == perdure.Copied("s", end, 0, 0, "ahead")
    assert lines(target, "s")[:-1] == lines(source, "s")
    assert target.copy("s", source).status == "continued"
    assert_equal(target, source, "s")


@pytest.mark.parametrize("longer", [0, 3])
def test_logs_that_parted_are_told_apart(
    source: perdure.Store, target: perdure.Store, longer: int
) -> None:
    """Two logs that went on differently stay as they are, and where they part is named."""
    write(source)
    source.copy("s", target)
    extend(source, text="here")
    for number in range(longer):
        extend(source, text=f"here {number}")
    extend(target, text="there")
    before = lines(target, "s")
    with pytest.raises(SessionDiverged) as refused:
        source.copy("s", target)
    assert (refused.value.session, refused.value.seq) == ("s", 10)
    with pytest.raises(SessionDiverged) as refused:
        target.copy("s", source)
    assert refused.value.seq == 10
    assert lines(target, "s") == before
    assert target.inspect("s").holder is None


def test_another_session_of_the_id_is_named(source: perdure.Store, target: perdure.Store) -> None:
    """Two sessions that share nothing but their id are told apart by their headers."""
    write(source)
    with target.create("s") as writer:
        writer.append("note", "somebody else")
    before = lines(target, "s")
    with pytest.raises(SessionDiverged) as refused:
        source.copy("s", target)
    assert (refused.value.session, refused.value.seq) == ("s", None)
    assert lines(target, "s") == before


# --- refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ALL)
def test_an_id_that_was_deleted_there_stays_so(
    here: perdure.Store, tmp_path: Path, kind: str
) -> None:
    """A session in the destination's trash, or gone from it, is not brought back unasked."""
    write(here)
    with open_medium(kind, tmp_path) as target:
        here.copy("s", target)
        deleted_at = target.delete("s").deleted_at
        for empty in (False, True):
            if empty:
                target.empty_trash()
            with pytest.raises(SessionExists) as refused:
                here.copy("s", target)
            assert refused.value.deleted_at == deleted_at
            assert target.list() == []
        target.forget("s")
        assert here.copy("s", target).status == "copied"


def test_an_id_that_vanished_there_is_named(here: perdure.Store, tmp_path: Path) -> None:
    """Where the last log of the id vanished, a copy does not hide that."""
    write(here)
    with open_medium("raw", tmp_path, "there") as target:
        here.copy("s", target)
        folder = log_of(target).parent
    folder.rename(tmp_path / "taken")
    with open_medium("raw", tmp_path, "there") as target:
        with pytest.raises(SessionExists) as refused:
            here.copy("s", target)
        assert refused.value.missing == 9


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("kind", FOLDERS)
@pytest.mark.parametrize("place", ["header", "middle"])
def test_a_damaged_source_is_refused(
    tmp_path: Path, there: perdure.Store, kind: str, place: str
) -> None:
    """A log that does not hold together is not copied, in no part; the error says what mends it."""
    with open_medium(kind, tmp_path) as source:
        write(source)
        log = log_of(source)
        flip(log, 12 if place == "header" else log.stat().st_size // 2)
        with pytest.raises(SessionDamaged) as refused:
            source.copy("s", there)
        assert "`perdure repair`" in refused.value.hint
        assert there.list() == []


def test_a_source_that_lost_its_end_is_refused(here: perdure.Store, there: perdure.Store) -> None:
    """What was acknowledged and is missing is missed before anything is copied."""
    write(here)
    log = log_of(here)
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(SessionDamaged) as refused:
        here.copy("s", there)
    assert refused.value.kind == "missing-tail"
    assert "accept" in refused.value.hint
    assert there.list() == []
    here.accept("s")
    assert here.copy("s", there).status == "copied"
    assert_equal(here, there, "s")


def test_a_source_without_an_event_is_refused(here: perdure.Store, there: perdure.Store) -> None:
    """A header alone is no session."""
    write(here)
    log = log_of(here)
    log.write_bytes(log.read_bytes().splitlines(keepends=True)[0])
    (log.parent / "tail").unlink()
    with pytest.raises(SessionDamaged):
        here.copy("s", there)
    assert there.list() == []


@pytest.mark.parametrize("kind", FOLDERS)
@pytest.mark.parametrize("new", [False, True])
def test_a_damaged_destination_is_refused(
    here: perdure.Store, tmp_path: Path, kind: str, new: bool
) -> None:
    """Nothing is written behind a log that does not hold together."""
    write(here)
    with open_medium(kind, tmp_path) as target:
        here.copy("s", target)
        if new:
            extend(here)
        log = log_of(target)
        flip(log, log.stat().st_size // 2)
        before = log.read_bytes()
        with pytest.raises(SessionDamaged) as refused:
            here.copy("s", target)
        assert refused.value.hint.startswith("this is the one in the destination")
        assert log.read_bytes() == before


@pytest.mark.parametrize("kind", ALL)
def test_a_store_is_not_copied_onto_itself(tmp_path: Path, kind: str) -> None:
    """The same place is refused before anything happens; another namespace of it is another."""
    with open_medium(kind, tmp_path) as store:
        write(store)
        before = store.list_snapshots()
        with pytest.raises(InvalidValue) as refused:
            store.copy_all(store)
        assert refused.value.path == "other"
        with pytest.raises(InvalidValue) as refused:
            store.copy("s", store)
        assert refused.value.path == "other"
        assert store.list_snapshots() == before
        below = store.namespace("below")
        assert store.copy("s", below).status == "copied"
        assert_equal(store, below, "s")
        with pytest.raises(InvalidValue):
            store.copy_all(below)


@pytest.mark.parametrize("kind", KEPT)
def test_another_way_to_the_same_place_is_noticed(tmp_path: Path, kind: str) -> None:
    """A link, or a second opening, leads to the same place."""
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    for folder in (tmp_path, tmp_path / "link"):
        with open_medium(kind, tmp_path) as store, open_medium(kind, folder) as other:
            with pytest.raises(InvalidValue):
                store.copy_all(other)
            with pytest.raises(InvalidValue):
                other.copy_all(store.namespace("below"))
            write(store, f"in {folder.name}")
            with pytest.raises(InvalidValue):
                other.copy(f"in {folder.name}", store)


def test_what_is_no_store_is_refused(here: perdure.Store, tmp_path: Path) -> None:
    """A path, a closed store and one that keeps nothing are no destinations."""
    write(here)
    other: Any = tmp_path
    with pytest.raises(InvalidValue):
        here.copy("s", other)
    with pytest.raises(InvalidValue):
        here.copy_all(other)
    with perdure.open("none:") as nothing, pytest.raises(PersistenceDisabled):
        here.copy("s", nothing)
    closed = perdure.open("memory:")
    closed.close()
    with pytest.raises(StoreClosed):
        here.copy("s", closed)
    with pytest.raises(StoreClosed):
        closed.copy("s", here)


def test_a_session_that_is_not_there_is_not_found(
    here: perdure.Store, there: perdure.Store
) -> None:
    """An unknown id, and a deleted one, are told as everywhere."""
    with pytest.raises(SessionNotFound):
        here.copy("s", there)
    write(here)
    here.delete("s")
    with pytest.raises(SessionNotFound) as missed:
        here.copy("s", there)
    assert missed.value.deleted_at is not None
