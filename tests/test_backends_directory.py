"""The directory backend: what a crash leaves in its files, and what becomes of it."""

import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

import perdure
from perdure.backends.directory import DirectoryBackend
from perdure.backends.directory.frames import TRAILER_BYTES
from perdure.durable import crash
from perdure.durable.files import Folder
from perdure.durable.locks import Lock
from perdure.errors import (
    FormatUnsupported,
    InvalidValue,
    SessionDamaged,
    SessionNotFound,
    StaleWriter,
    UnsafeFile,
)
from perdure.model.event import Event, draft
from perdure.model.header import Header, encode_header, new_header
from perdure.model.record import Position, seal
from perdure.runtime import SYSTEM
from perdure.store import Store
from perdure.testing.contract import Clockwork
from tests.support import scaled


@pytest.fixture(params=["raw", "zst"])
def encoding(request: pytest.FixtureRequest) -> str:
    """Each encoding in turn."""
    name: str = request.param
    return name


@pytest.fixture
def root(tmp_path: Path, encoding: str) -> Path:
    """A store of one session of three commits, at rest."""
    with (
        perdure.open(tmp_path / "store", encoding=encoding, runtime=Clockwork()) as store,
        store.create("s") as session,
    ):
        for number in range(3):
            session.append_many([{"type": "x", "data": [number, n]} for n in range(2)])
    return tmp_path / "store"


ALL = [[number, n] for number in range(3) for n in range(2)]


def log_of(root: Path) -> Path:
    return next((root / "sessions/s").glob("log.jsonl*"))


def lengths(root: Path, encoding: str) -> list[int]:
    """Where each commit ends in the log, the header's end first."""
    backend = DirectoryBackend(str(root))
    begin = backend.stored("s").begin
    pieces = list(backend.scan("s", begin))
    if encoding == "zst":
        return [begin, *(piece.end for piece in pieces)]
    ends, at = [begin], begin
    for index, line in enumerate(line for piece in pieces for line in piece.lines):
        at += len(line)
        ends += [at] if index % 2 else []
    return ends


def older_evidence(root: Path, commits: int) -> None:
    """A tail file that knows only of the first commits, and nothing else that remembers."""
    (root / "evidence.sqlite").unlink(missing_ok=True)
    tail = root / "sessions/s/tail"
    raw = bytearray(tail.read_bytes())
    for at in (0, 512):
        if raw[at + 4] > commits:
            raw[at : at + 80] = bytes(80)
    tail.write_bytes(raw)


def data_of(root: Path) -> list[object]:
    return [event.data for event in perdure.open(root).read_from("s")]


# --- what recovery does -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rest", [b"x", b"\n", b"\0" * 4096, b'{"seq":6,"prev":"', b"\x28\xb5\x2f\xfd"]
)
def test_a_torn_tail_is_set_aside(root: Path, rest: bytes) -> None:
    """What a dead writer left behind the last record is kept aside, with a note, and cut."""
    # deepseek-harness 52; heinzel 2; cases 2 to 4
    log = log_of(root)
    whole = log.read_bytes()
    log.write_bytes(whole + rest)
    store = perdure.open(root, runtime=Clockwork())

    assert [event.data for event in store.inspect("s").events] == ALL
    assert store.inspect("s").status == "torn"
    assert log.read_bytes() == whole + rest
    with store.writer("s") as session:
        assert session.append("x", "next").seq == 6

    assert log.read_bytes().startswith(whole)
    assert data_of(root) == [*ALL, "next"]
    (kept,) = root.rglob("aside/*.bytes")
    assert kept.read_bytes() == rest
    note = json.loads(kept.with_suffix(".json").read_bytes())
    assert (note["file"], note["start"], note["end"]) == (log.name, len(whole), len(whole + rest))
    assert (note["session"], note["after_seq"]) == ("s", 5)
    assert note["reason"] != ""


@pytest.mark.proof
def test_a_torn_commit_loses_nothing_that_was_acknowledged(
    root: Path, encoding: str, rng: Random
) -> None:
    """Cut at any byte of its last commit, a log has all before it, and goes on."""
    log = log_of(root)
    whole, ends = log.read_bytes(), lengths(root, encoding)
    assert ends[-1] == len(whole)
    older_evidence(root, 2)
    evidence = (root / "sessions/s/tail").read_bytes()

    lengths_of_all = range(ends[-2], ends[-1] + 1)
    some = {*rng.sample(lengths_of_all, scaled(len(lengths_of_all)))}
    for length in sorted({ends[-2], ends[-2] + 1, ends[-1] - 1, ends[-1], *some}):
        log.write_bytes(whole[:length])
        (root / "sessions/s/tail").write_bytes(evidence)
        (root / "evidence.sqlite").unlink(missing_ok=True)
        kept = data_of(root)
        assert kept in (ALL[:4], ALL[:5], ALL)
        assert kept == ALL[:4] or length > ends[-2]
        with perdure.open(root) as store, store.writer("s") as session:
            assert session.append("x", "next").seq == len(kept)
        assert data_of(root) == [*kept, "next"]
        assert perdure.open(root).verify("s").status == "ok"


@pytest.mark.parametrize("encoding", ["raw"])
@pytest.mark.parametrize("commits", [2, 3])
def test_a_missing_newline_is_completed(root: Path, commits: int) -> None:
    """A last record without its newline is kept and gets it from the next writer."""
    # case 2
    log = log_of(root)
    whole = log.read_bytes()
    log.write_bytes(whole[:-1])
    older_evidence(root, commits)
    store = perdure.open(root)

    assert store.inspect("s").status == "unterminated"
    assert [event.data for event in store.inspect("s").events] == ALL
    store.load("s")

    assert log.read_bytes() == whole
    assert list(root.rglob("aside/*")) == []
    assert store.inspect("s").status == "complete"


@pytest.mark.parametrize("encoding", ["zst"])
@pytest.mark.parametrize("left", [0, 1, 12, 47])
def test_a_missing_trailer_is_made_again(root: Path, left: int) -> None:
    """A last frame whose trailer is missing or torn is kept, and gets it from the next writer."""
    log = log_of(root)
    whole = log.read_bytes()
    log.write_bytes(whole[: len(whole) - TRAILER_BYTES + left])
    store = perdure.open(root)

    assert [event.data for event in store.inspect("s").events] == ALL
    store.load("s")

    assert log.read_bytes() == whole
    assert [path.stat().st_size for path in root.rglob("aside/*.bytes")] == [left] * bool(left)
    assert store.inspect("s").status == "complete"


def test_records_beyond_the_evidence_are_kept(root: Path) -> None:
    """Records that nobody acknowledged count, and are acknowledged by the next writer."""
    log = log_of(root)
    whole = log.read_bytes()
    older_evidence(root, 2)
    store = perdure.open(root)

    assert store.inspect("s").status == "ahead"
    store.load("s")

    assert (store.inspect("s").status, log.read_bytes()) == ("complete", whole)
    assert data_of(root) == ALL


def test_records_beyond_the_evidence_are_written_again_and_synced(root: Path) -> None:
    """A sync that succeeds proves nothing of older writes, so these are made again before it."""
    log = log_of(root)
    whole, inode = log.read_bytes(), log.stat().st_ino
    older_evidence(root, 2)
    known = lengths(root, "raw" if log.suffix == ".jsonl" else "zst")[2]
    done: list[tuple[str, int, int]] = []

    def observed(kind: str, **facts: Any) -> None:
        if facts.get("inode") == inode:
            end = facts.get("offset", 0) + len(facts.get("data", b""))
            done.append((kind, facts.get("offset", 0), end))

    crash.arm(observer=observed)
    perdure.open(root).load("s")
    crash.arm()

    assert [one for one in done if one[1] != one[2]] == [("write", known, len(whole))]
    assert done[-1][0] == "sync"


def left_alone(root: Path) -> dict[Path, bytes]:
    """What nobody changes who is refused a log.

    The lock is signed, the damage is remembered, and the index is told.
    """
    told = {root / "sessions/s/lock", root / "evidence.sqlite"}
    return {
        path: path.read_bytes()
        for path in root.rglob("*")
        if not path.name.startswith("index.sqlite") and path.parent.name != "writing"
        if path.is_file() and path not in told
    }


def test_damage_is_refused_and_left_as_it_is(root: Path, encoding: str) -> None:
    """A writer refuses a damaged log and changes nothing; readers show what is proven before it."""
    # heinzel 8; case 1
    log = log_of(root)
    raw, ends = bytearray(log.read_bytes()), lengths(root, encoding)
    raw[ends[1] + 30] ^= 1
    log.write_bytes(raw)
    before = left_alone(root)
    store = perdure.open(root)

    for _ in range(2):
        with pytest.raises(SessionDamaged) as damaged:
            store.writer("s")
        assert (damaged.value.session, damaged.value.record) == ("s", 2)
        assert damaged.value.start == ends[1]
    found = store.inspect("s")
    assert [event.data for event in found.events] == ALL[:2]
    later = {event.seq for event in found.later()}
    assert later >= {4, 5}
    report = store.verify("s")
    assert (report.status, report.sound, report.events) == ("damaged", False, 2)
    assert report.later == len(later)
    with pytest.raises(SessionDamaged):
        list(store.read_from("s"))
    after = left_alone(root)
    assert after.keys() == before.keys()
    assert [path.name for path in after if after[path] != before[path]] == []


def test_a_page_is_read_before_and_behind_damage(
    tmp_path: Path, encoding: str, rng: Random
) -> None:
    """Wherever a log is damaged, a page holds only what was written, and says where it ends."""
    root = tmp_path / "store"
    with perdure.open(root, encoding=encoding) as store, store.create("s") as session:
        for number in range(60):
            text = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=4000))
            session.append("x", [number, text])
    written = list(perdure.open(root).read_from("s"))
    log = log_of(root)
    whole = log.read_bytes()
    for _ in range(scaled(300)):
        raw = bytearray(whole)
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        log.write_bytes(raw)
        seq = rng.randrange(62)
        page: list[Event] = []
        with suppress(SessionDamaged):
            page.extend(perdure.open(root).read_from("s", seq))
        assert page == written[seq : seq + len(page)]
        harmless = perdure.open(root).verify("s").status == "ok"
        assert len(page) == len(written[seq:]) or not harmless


# --- headers ------------------------------------------------------------------------------------


def with_format(number: int) -> bytes:
    plain = Header(format=number, id="s", created_at=0)
    digest = hashlib.sha256(encode_header(plain)).hexdigest()
    return encode_header(msgspec.structs.replace(plain, digest=digest))


def put_session(root: Path, name: str, raw: bytes) -> Path:
    """A session folder with a plain log, as somebody might copy it in."""
    folder = root / "sessions" / name
    folder.mkdir(0o700)
    log = folder / "log.jsonl"
    log.write_bytes(raw)
    log.chmod(0o600)
    return log


@pytest.mark.parametrize(("number", "direction"), [(99, "upgrade perdure"), (-1, "older")])
def test_another_format_is_refused_with_its_direction(
    root: Path, number: int, direction: str
) -> None:
    """A session of another format is listed with the reason, refused, and not called damaged."""
    # deepseek-harness 47, 48
    (root / "sessions/s").rename(root / "sessions/moved")
    put_session(root, "s", with_format(number))
    store = perdure.open(root)

    for operation in (store.writer, store.load, store.prepare, store.read_from):
        with pytest.raises(FormatUnsupported) as refused:
            operation("s")
        assert refused.value.found == number
        assert direction in refused.value.hint
    found = store.inspect("s")
    assert (found.header, found.status) == (None, "unsupported")
    assert [problem.kind for problem in found.problems] == ["unsupported"]
    assert store.verify("s").status == "unsupported"
    assert not store.verify("s").sound


@pytest.mark.parametrize(
    "raw",
    [b"", b"\n", b"\0" * 100, b"\x8f\x00\xff\x17", b'{"format":0}\n', b'{"seq":0,"prev":"x"}\n'],
)
def test_a_session_without_a_header_hides_no_other(root: Path, raw: bytes) -> None:
    """A session whose header is lost is listed as damaged, and the others are as before."""
    # cases 5, 7
    put_session(root, "t", raw)
    store = perdure.open(root)

    listed = {entry.name: entry for entry in store.list()}

    assert (listed["t"].header, listed["t"].id) == (None, "t")
    assert listed["t"].problem is not None
    assert listed["s"].problem is None
    with pytest.raises(SessionDamaged):
        store.writer("t")
    assert store.verify("t").status == "damaged"
    assert list(store.inspect("t").events) == []
    assert data_of(root) == ALL


def test_a_log_in_another_sessions_folder_is_noticed(root: Path) -> None:
    """A session that was copied to another name is not read as that other session."""
    # case 15
    raw = encode_header(new_header("u", created_at=0))
    put_session(root, "t", raw)
    store = perdure.open(root)

    listed = {entry.name: entry for entry in store.list()}
    assert listed["t"].problem is not None
    assert "'u'" in listed["t"].problem.reason
    with pytest.raises(SessionDamaged):
        store.writer("t")


def test_a_swapped_header_is_noticed(tmp_path: Path) -> None:
    """A header exchanged for another intact one does not fit the records behind it."""
    root = tmp_path / "store"
    with perdure.open(root, encoding="raw", runtime=Clockwork()) as store:
        for cwd in ("/one", "/two"):
            with store.create("s" if cwd == "/one" else "t", cwd=cwd) as session:
                session.append("x")
    log = log_of(root)
    _, *records = log.read_bytes().splitlines(keepends=True)
    other = encode_header(new_header("s", created_at=7, cwd="/two"))
    log.write_bytes(other + b"".join(records))

    with pytest.raises(SessionDamaged) as damaged:
        perdure.open(root).writer("s")
    assert damaged.value.kind == "header"


def test_a_header_longer_than_a_chunk_is_read(tmp_path: Path, encoding: str) -> None:
    """A header of a megabyte is a header like any other."""
    config = {"prompt": "x" * 1_000_000, "more": list(range(10_000))}
    with perdure.open(tmp_path / "store", encoding=encoding) as store:
        with store.create("s", config=config) as session:
            session.append("x")
        header = store.load("s").header

    assert header is not None
    assert header.config == config


# --- writers ------------------------------------------------------------------------------------


def grown(log: Path) -> None:
    with log.open("ab") as file:
        file.write(b"x")


def shortened(log: Path) -> None:
    os.truncate(log, log.stat().st_size - 1)


def exchanged(log: Path) -> None:
    raw = log.read_bytes()
    log.rename(log.with_name("old"))
    log.write_bytes(raw)
    log.chmod(0o600)


def removed(log: Path) -> None:
    log.unlink()


@pytest.mark.parametrize("change", [grown, shortened, exchanged, removed])
def test_a_writer_notices_that_its_log_changed(root: Path, change: Callable[[Path], None]) -> None:
    """A writer whose log was changed by somebody else stops and names what it could not store."""
    # case 12
    session = perdure.open(root).writer("s")
    session.buffer("x", "buffered")
    change(log_of(root))
    before = log_of(root).read_bytes() if change is not removed else b""

    with pytest.raises(StaleWriter) as stale:
        session.append("x", "appended")

    assert [event.data for event in stale.value.lost] == ["buffered", "appended"]
    assert stale.value.session == "s"
    with pytest.raises(perdure.errors.SessionClosed):
        session.append("x")
    if change is not removed:
        assert log_of(root).read_bytes() == before


def test_left_over_buildings_are_swept(tmp_path: Path) -> None:
    """Half-built sessions of dead writers go after a minute; those of live writers stay."""
    root = tmp_path / "store"
    clock = Clockwork(start=SYSTEM.now_ms())
    with perdure.open(root) as store, store.create("s") as session:
        session.append("x")
    for name in ("fresh", "old", "live"):
        (root / "new" / name).mkdir(0o700)
        (root / "new" / name / "log.jsonl").write_bytes(b"half")
    with Folder.open(str(root / "new/live")) as folder:
        lock = Lock(folder, "live")
        for name in ("old", "live"):
            os.utime(root / "new" / name, (0, 0))
        backend = DirectoryBackend(str(root), runtime=clock)
        with Store(backend, runtime=clock) as store, store.create("t") as session:
            session.append("x")
        lock.release()

    assert sorted(path.name for path in (root / "new").iterdir()) == ["fresh", "live"]
    assert sorted(entry.id for entry in perdure.open(root).list()) == ["s", "t"]


def test_opening_creates_nothing(tmp_path: Path) -> None:
    """A store that is only looked at is not made; the first append makes it, with its parents."""
    # heinzel 19
    root = tmp_path / "a" / "b" / "store"
    store = perdure.open(root)
    assert store.list() == []
    with pytest.raises(SessionNotFound):
        store.inspect("s")
    store.create("s").close()
    assert not (tmp_path / "a").exists()

    with store.create("s") as session:
        session.append("x")
    assert root.is_dir()


def test_a_home_path_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`~` leads to the home folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    with perdure.open("~/store") as store, store.create("s") as session:
        session.append("x")

    assert (tmp_path / "store/sessions/s").is_dir()


def test_encodings_stand_side_by_side(tmp_path: Path) -> None:
    """A store keeps what it was created with as its default, and reads both."""
    root = tmp_path / "store"
    for encoding, id in (("raw", "a"), (None, "b"), ("zst", "c")):
        with perdure.open(root, encoding=encoding) as store, store.create(id) as session:
            session.append("x", id)

    store = perdure.open(root)
    names = {entry.id: Path(str(store.locate(entry.id))).name for entry in store.list()}
    assert names == {"a": "log.jsonl", "b": "log.jsonl", "c": "log.jsonl.zst"}
    assert [[e.data for e in store.read_from(id)] for id in "abc"] == [["a"], ["b"], ["c"]]
    for id in "abc":
        with store.writer(id) as session:
            session.append("x")


@pytest.mark.parametrize("encoding", ["raw"])
@pytest.mark.parametrize(
    "text", [b"", b"{}", b"[]", b'{"id":5}', b"\xff", b'{"format":0,"id":null}']
)
def test_a_foreign_description_is_refused(root: Path, text: bytes) -> None:
    """A folder whose store.json is not one of ours is not read and not written."""
    (root / "store.json").write_bytes(text)

    with pytest.raises(UnsafeFile):
        perdure.open(root).list()
    with pytest.raises(UnsafeFile):
        perdure.open(root).create("t").append("x")


@pytest.mark.parametrize("encoding", ["raw"])
@pytest.mark.parametrize("change", [{"format": 1}, {"format": False}, {"encoding": "lzma"}])
def test_a_later_layout_is_refused(root: Path, change: dict[str, object]) -> None:
    """A store of another layout is unsupported, and nothing is written to it."""
    facts = json.loads((root / "store.json").read_bytes())
    (root / "store.json").write_bytes(json.dumps({**facts, **change}).encode())

    with pytest.raises(FormatUnsupported):
        perdure.open(root).create("t").append("x")
    assert not (root / "sessions/t").exists()


def test_an_unknown_encoding_is_refused(tmp_path: Path) -> None:
    """An option that the backend does not know is an invalid value."""
    with pytest.raises(InvalidValue) as refused:
        perdure.open(tmp_path, encoding="gzip")
    assert refused.value.path == "encoding"


def test_a_large_log_is_searched_by_halving(tmp_path: Path, encoding: str) -> None:
    """A page near the end of a long log reads a bounded part of it."""
    backend = DirectoryBackend(str(tmp_path / "store"), encoding=encoding)
    header = new_header("s", created_at=0)
    hold = backend.publish(header, seal(Position(-1, header.genesis), [draft("x", 0, time=0)]))
    noise = Random(7)
    for number in range(300):
        text = noise.randbytes(2000).hex()
        more = seal(hold.position, [draft("x", [number, text], time=0)])
        backend.commit(hold, hold.position, more)
    hold.release()
    size = backend.tail("s").size

    begin = backend.stored("s").begin
    for seq in (1, 150, 299, 300):
        read = [line for piece in backend.scan("s", begin, seq=seq) for line in piece.lines]
        assert len(read) >= 301 - seq
        assert len(read) <= 301 - seq + 80
    assert size - next(backend.scan("s", begin, seq=300)).start < 200_000


def test_slots_know_the_file_that_they_were_made_for(root: Path) -> None:
    """A session that was copied is read whole before it is called complete."""
    log, backend = log_of(root), DirectoryBackend(str(root))
    assert backend.tail("s").settled
    raw = log.read_bytes()
    log.unlink()
    log.write_bytes(raw)
    log.chmod(0o600)

    assert not backend.tail("s").settled
    found = perdure.open(root).inspect("s")
    assert (found.status, found.position) == ("complete", backend.tail("s").acknowledged)
    perdure.open(root).load("s")
    assert backend.tail("s").settled
