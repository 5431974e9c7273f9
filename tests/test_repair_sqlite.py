"""Repair of sessions in SQLite files: before and after each kind of damage, made with SQL."""

import hashlib
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import perdure
from perdure.backends.sqlite import schema
from perdure.backends.sqlite.bundle import ARTIFACT_BYTES
from perdure.errors import ContentExpired, SessionDamaged, StorageUnavailable
from perdure.model.event import draft
from perdure.model.header import encode_header, new_header
from perdure.model.record import Position, Record, decode_line, seal
from perdure.store import Repair, Store
from tests.test_backends_sqlite import everything, sql
from tests.test_repair import Patient, brief, facts, kept_aside, said

FILES = {"sqlite": "store.db", "bundle": "store.perdure"}
TABLES = ("records", "blobs", "blob_parts", "asides", "aside_parts")
_S = "(SELECT number FROM sessions WHERE id = 's' AND state = 'stored')"
_T = "(SELECT number FROM sessions WHERE id = 't')"
_PAGE = 4096


class Rows:
    """A file with a session `s`, its twin `t`, and content in both."""

    def __init__(self, path: Path, scheme: str, commits: int) -> None:
        self.path = path
        self.scheme = scheme
        if not path.exists():
            path.parent.mkdir(mode=0o700)
            with self.open() as store:
                for name in ("s", "t"):
                    Patient.write(store, name, commits)
        with self.open() as store:
            self.events = [*store.read_from("s")]
            self.raw = [line for line in store.raw("s") if isinstance(line, bytes)]
        self.twin = self.rows_of("t")

    def open(self) -> Store:
        return perdure.open(f"{self.scheme}:{self.path}")

    def sql(self, statement: str, *bindings: Any) -> list[tuple[Any, ...]]:
        """`statement` with the numbers of the two sessions for `{s}` and `{t}`."""
        return sql(self.path, statement.format(s=_S, t=_T), *bindings)

    def log(self) -> bytes:
        """What stands in the file as the log of `s`."""
        header = self.sql("SELECT header FROM sessions WHERE number = {s}")
        lines = self.sql("SELECT line FROM records WHERE session = {s} ORDER BY seq")
        return b"".join(cell for (cell,) in (*header, *lines))

    def rows_of(self, name: str) -> list[list[tuple[Any, ...]]]:
        """Every row of a session."""
        [(number,)] = sql(self.path, "SELECT number FROM sessions WHERE id = ?", name)
        tables = {"sessions": "number", **dict.fromkeys(TABLES, "session")}
        return [
            sql(self.path, f"SELECT * FROM {table} WHERE {column} = ?", number)  # noqa: S608
            for table, column in tables.items()
        ]

    def digest(self, name: str = "s") -> str:
        """Of the content of a session."""
        query = (
            "SELECT digest FROM blobs JOIN sessions ON number = session"
            " WHERE id = ? AND state = 'stored'"
        )
        [(digest,)] = self.sql(query, name)
        return str(digest)

    def put(self, seq: int, line: bytes) -> None:
        """Exchange the bytes of a record."""
        self.sql("UPDATE records SET line = ? WHERE session = {s} AND seq = ?", line, seq)

    def flip(self, seq: int, at: int = 40) -> None:
        """Change one bit of a record."""
        line = bytearray(self.raw[seq + 1])
        line[at] ^= 0x10
        self.put(seq, bytes(line))

    def shift(self, seq: int, by: int) -> None:
        """Make room for rows before the one of an event."""
        for first, step in ((seq, 1000 + by), (1000, -1000)):
            self.sql(
                "UPDATE records SET seq = seq + ? WHERE session = {s} AND seq >= ?", step, first
            )

    def insert(self, seq: int, record: Record) -> None:
        """Add a row as another program would that knows the tables, but for the unique key."""
        [(number,)] = self.sql("SELECT {s}")
        _, _, *rest, _, line = schema.row_of(number, record, 0)
        row = (number, seq, *rest, None, line)
        self.sql("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", *row)

    def zero_page(self) -> list[int]:
        """Empty a page that holds records of `s` alone; the numbers of their events."""
        pages = self.sql(
            "SELECT pageno FROM dbstat WHERE name = 'records' AND pagetype = 'leaf' ORDER BY pageno"
        )
        data = bytearray(self.path.read_bytes())
        for (number,) in pages[1:]:
            at = (number - 1) * _PAGE
            page = bytes(data[at : at + _PAGE])
            if b'"s ' in page and b'"t ' not in page:
                data[at : at + _PAGE] = bytes(_PAGE)
                self.path.write_bytes(data)
                return sorted(int(seq) for seq in re.findall(rb'\{"seq":(\d+),', page))
        raise AssertionError("no page has records of one session alone")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Path]:
    """Files that were closed in good order, each made once."""
    kept: dict[tuple[str, int], Path] = {}

    def folder(scheme: str, commits: int) -> Path:
        if (scheme, commits) not in kept:
            place = tmp_path_factory.mktemp("made") / "store"
            Rows(place / FILES[scheme], scheme, commits)
            kept[scheme, commits] = place
        return kept[scheme, commits]

    return folder


Admit = Callable[..., Rows]


@pytest.fixture
def admit(tmp_path: Path, made: Callable[[str, int], Path]) -> Admit:
    def copy(scheme: str, commits: int = 12) -> Rows:
        shutil.copytree(made(scheme, commits), tmp_path / "store")
        return Rows(tmp_path / "store" / FILES[scheme], scheme, commits)

    return copy


@pytest.fixture(params=FILES)
def rows(admit: Admit, request: pytest.FixtureRequest) -> Rows:
    return admit(request.param)


def repaired(
    rows: Rows, *, kinds: set[str], salvage: bool = False, refused: bool = True, sizes: bool = True
) -> tuple[Repair, Store]:
    """Repair the session, and demand all that must hold after any repair."""
    harmed = rows.log() if sizes else b""
    store = rows.open()
    before = store.verify("s")
    assert not before.sound
    assert {problem.kind for problem in before.problems} >= kinds
    if refused:
        # A writer would trust what stands before its checkpoint, where nobody was refused before.
        with pytest.raises(SessionDamaged):
            store.load("s")
        with pytest.raises(SessionDamaged):
            store.writer("s")
    bytes_before = everything(rows.path)
    foretold = store.repair("s", salvage=salvage, dry_run=True)
    assert everything(rows.path) == bytes_before

    done = store.repair("s", salvage=salvage)

    assert done == foretold._replace(done=True)
    assert done.needed
    assert done.sound
    after = store.verify("s")
    assert (after.sound, after.problems) == (True, [])
    assert after.status == ("interrupted" if after.closers else "ok")
    assert store.reports() == []
    events = [*store.read_from("s")]
    assert events[: done.kept] == rows.events[: done.kept]
    if done.aside is not None and sizes:
        [aside] = [each for each in store._backend.asides("s") if each.place == done.aside]
        assert kept_aside(store, done.aside) == harmed
        assert aside.size == len(harmed)
        assert brief(events).count("session/repaired") == 1
    assert rows.sql("SELECT plan FROM sessions WHERE number = {s}") == [(None,)]
    assert not store.repair("s").needed
    assert store.verify("t").sound
    assert rows.rows_of("t") == rows.twin
    with rows.open() as other, other.writer("s") as session:
        assert session.append("x").seq == len(events) + after.closers
    return done, store


def trashed_and_purged(rows: Rows, store: Store) -> None:
    """Delete, restore and purge the session: what was replaced goes and comes with it."""
    places = [aside.place for aside in store._backend.asides("s")]
    bytes_aside = [kept_aside(store, place) for place in places]
    everything_of = rows.log()
    store.delete("s")
    assert [each.id for each in store.list()] == ["t"]
    store.restore("s")
    assert rows.log() == everything_of
    assert store.verify("s").sound
    assert [aside.place for aside in store._backend.asides("s")] == places
    assert [kept_aside(store, place) for place in places] == bytes_aside
    store.delete("s")
    assert [each.id for each in store.empty_trash()] == ["s"]
    assert rows.sql("SELECT id FROM sessions") == [("t",)]
    left = rows.rows_of("t")
    assert left == rows.twin
    for table, own in zip(TABLES, left[1:], strict=True):
        assert rows.sql(f"SELECT * FROM {table}") == own  # noqa: S608
    assert rows.sql("PRAGMA integrity_check") == [("ok",)]
    with store.create("after") as session:
        session.append("x")


# --- the header -----------------------------------------------------------------------------------


def header_edited(rows: Rows) -> None:
    line = rows.raw[0].replace(b'"/w"', b'"/v"')
    assert line != rows.raw[0]
    rows.sql("UPDATE sessions SET header = ? WHERE number = {s}", line)


def header_of_another(rows: Rows) -> None:
    [(other,)] = rows.sql("SELECT header FROM sessions WHERE number = {t}")
    rows.sql("UPDATE sessions SET header = ? WHERE number = {s}", other)


def header_gone(rows: Rows) -> None:
    rows.sql("UPDATE sessions SET header = x'' WHERE number = {s}")


def header_of_a_namesake(rows: Rows) -> None:
    line = encode_header(new_header("s", created_at=1, preset="older"))
    rows.sql("UPDATE sessions SET header = ? WHERE number = {s}", line)


HEADERS = (header_edited, header_of_another, header_gone, header_of_a_namesake)


@pytest.mark.parametrize("harm", HEADERS, ids=lambda harm: harm.__name__)
def test_a_lost_header_keeps_every_record(rows: Rows, harm: Callable[[Rows], None]) -> None:
    """Whatever stands in place of the header, the records stay, under a new header of theirs."""
    harm(rows)

    done, store = repaired(rows, kinds={"header"})

    assert (done.header_lost, done.kept, done.lost) == (True, 12, None)
    raw = [*store.raw("s")]
    assert raw[1:13] == rows.raw[1:]
    header = store.inspect("s").header
    assert header is not None
    assert (header.id, header.seed, header.preset) == ("s", 12, None)
    assert header.genesis == decode_line(rows.raw[1]).prev
    assert said(store, "session/forked")["header"] == header.digest
    [(created_at,)] = rows.sql("SELECT created_at FROM sessions WHERE number = {s}")
    assert created_at == header.created_at == rows.events[0].time
    trashed_and_purged(rows, store)
    store.close()


# --- the records ----------------------------------------------------------------------------------


def link_wrong(rows: Rows) -> None:
    prev = decode_line(rows.raw[6]).prev
    [record] = seal(Position(4, prev), [draft("note", "edited", time=1)])
    rows.put(5, record.line)


def last_exchanged(rows: Rows) -> None:
    prev = decode_line(rows.raw[12]).prev
    [record] = seal(Position(10, prev), [draft("turn/end", "edited", time=1)])
    rows.put(11, record.line)


def row_deleted(rows: Rows) -> None:
    rows.sql("DELETE FROM records WHERE session = {s} AND seq = 5")


def tail_deleted(rows: Rows) -> None:
    rows.sql("DELETE FROM records WHERE session = {s} AND seq >= 10")


def tail_deleted_and_denied(rows: Rows) -> None:
    """Only what is remembered beside the file knows of the last two events."""
    tail_deleted(rows)
    size = sum(map(len, rows.raw[1:11]))
    rows.sql(
        "UPDATE sessions SET tail_seq = ?, tail_hash = ?, size = ? WHERE number = {s}",
        *decode_line(rows.raw[10]).position,
        size,
    )


def rows_of_another(rows: Rows) -> None:
    rows.sql("DELETE FROM records WHERE session = {s}")
    rows.sql("UPDATE records SET session = {s} WHERE session = {t}")
    rows.sql("INSERT INTO records SELECT {t}, seq, count, start, type, time, agent, turn, key, line"
             " FROM records WHERE session = {s}")  # fmt: skip


def some_rows_of_another(rows: Rows) -> None:
    lines = rows.sql("SELECT seq, line FROM records WHERE session = {t} AND seq IN (4, 5)")
    for seq, line in lines:
        rows.put(seq, line)


def number_skipped(rows: Rows) -> None:
    """An intact record links to the one before it and leaves a number out."""
    before = decode_line(rows.raw[5]).hash
    [record] = seal(Position(5, before), [draft("note", "skips", time=1)])
    rows.shift(5, 1)
    rows.put(6, record.line)


def one_twice(rows: Rows) -> None:
    rows.shift(6, 1)
    rows.insert(6, decode_line(rows.raw[6]))


def some_twice(rows: Rows) -> None:
    rows.shift(8, 4)
    for seq in range(4, 8):
        rows.insert(seq + 4, decode_line(rows.raw[seq + 1]))


def nothing_but_a_header(rows: Rows) -> None:
    rows.sql("DELETE FROM records WHERE session = {s}")


def no_bytes(rows: Rows) -> None:
    rows.put(5, b"")


def several(rows: Rows) -> None:
    rows.flip(3)
    rows.flip(7)
    tail_deleted(rows)
    rows.sql("UPDATE records SET type = 'other' WHERE session = {s} AND seq = 1")


class Case(NamedTuple):
    """One kind of damage, and what must come of it."""

    harm: Callable[[Rows], None]
    kind: str
    kept: int
    lost: tuple[int, int] | None
    later: int


CASES = {
    "bytes edited": Case(lambda rows: rows.flip(5), "record", 5, (5, 11), 6),
    "first record": Case(lambda rows: rows.flip(0), "record", 0, (0, 11), 11),
    "no bytes": Case(no_bytes, "record", 5, (5, 11), 6),
    "link wrong": Case(link_wrong, "link", 5, (5, 11), 7),
    "last exchanged": Case(last_exchanged, "evidence", 11, (11, 11), 1),
    "row deleted": Case(row_deleted, "sequence", 5, (5, 11), 6),
    "tail deleted": Case(tail_deleted, "missing-tail", 10, (10, 11), 0),
    "tail denied": Case(tail_deleted_and_denied, "missing-tail", 10, (10, 11), 0),
    "rows of another": Case(rows_of_another, "header", 0, (0, 11), 12),
    "some rows of another": Case(some_rows_of_another, "link", 3, (3, 11), 9),
    "number skipped": Case(number_skipped, "sequence", 5, (5, 11), 7),
    "one twice": Case(one_twice, "sequence", 6, (6, 11), 6),
    "some twice": Case(some_twice, "sequence", 8, (8, 11), 4),
    "header alone": Case(nothing_but_a_header, "missing-tail", 0, (0, 11), 0),
    "several": Case(several, "record", 3, (3, 11), 5),
}


# Both keep their logs in the same way.
@pytest.mark.parametrize(("scheme", "salvage"), [("sqlite", False), ("bundle", True)])
@pytest.mark.parametrize("case", CASES)
def test_each_damage_is_repaired(admit: Admit, case: str, scheme: str, salvage: bool) -> None:
    """The verified prefix stays byte for byte, under its header; what was wrong is on record."""
    harm, kind, kept, lost, later = CASES[case]
    rows = admit(scheme)
    harm(rows)

    done, store = repaired(rows, kinds={kind}, salvage=salvage)

    assert (done.kept, done.lost, done.later) == (kept, lost, later)
    assert (done.salvaged, done.header_lost) == (later if salvage else 0, False)
    assert [*store.raw("s")][: kept + 1] == rows.raw[: kept + 1]
    data = said(store, "session/repaired")
    assert data["problems"] == [problem._asdict() for problem in done.problems]
    assert (data["kept"], data["acknowledged"], data["later"]) == (kept, 11, later)
    assert data["aside"] == "repair-1"
    trashed_and_purged(rows, store)
    store.close()


def test_a_whole_session_of_another_in_place(rows: Rows) -> None:
    """Another session's header and records are not taken for this one's; salvage brings them."""
    header_of_another(rows)
    rows_of_another(rows)

    done, store = repaired(rows, kinds={"header"}, salvage=True)

    assert (done.header_lost, done.kept, done.lost, done.salvaged) == (True, 0, (0, 11), 12)
    assert "'t'" in said(store, "session/repaired")["problems"][0]["reason"]
    assert brief([*store.read_from("s")])[:2] == ["session/repaired", "session/salvaged"]
    trashed_and_purged(rows, store)
    store.close()


@pytest.mark.parametrize("salvage", [False, True])
def test_a_session_without_a_byte(rows: Rows, salvage: bool) -> None:
    """A row without header and records becomes a log that says what was lost."""
    header_gone(rows)
    nothing_but_a_header(rows)

    done, store = repaired(rows, kinds={"header"}, salvage=salvage)

    assert (done.kept, done.lost, done.later) == (0, (0, 11), 0)
    assert brief([*store.read_from("s")]) == ["session/repaired", "x"]
    trashed_and_purged(rows, store)
    store.close()


def test_what_is_salvaged_keeps_all_but_its_number(rows: Rows) -> None:
    """Each stretch stands behind its origin, and its keys are known and unique as before."""
    rows.flip(4)
    rows.flip(8)

    _, store = repaired(rows, kinds={"record"}, salvage=True)

    events = [*store.read_from("s", 4)]
    assert brief(events) == [
        "session/repaired", "session/salvaged", "note", "note", "note",
        "session/salvaged", "note", "note", "turn/end", "x",
    ]  # fmt: skip
    assert [*map(facts, events[2:5])] == [*map(facts, rows.events[5:8])]
    assert [*map(facts, events[6:9])] == [*map(facts, rows.events[9:12])]
    again = rows.events[9]
    with store.writer("s") as session:
        assert session.append(again.type, again.data, key=again.key).seq == 10
    keys = "SELECT key FROM records WHERE session = {s} AND key IS NOT NULL ORDER BY seq"
    assert rows.sql(keys) == [(f"k{number}",) for number in (1, 2, 3, 5, 6, 7, 9, 10)]
    store.close()


def test_without_any_evidence(rows: Rows) -> None:
    """Where only the row itself remembers what was acknowledged, it is believed."""
    tail_deleted(rows)
    Path(f"{rows.path}.d/evidence.sqlite").unlink()

    done, store = repaired(rows, kinds={"missing-tail"})

    assert (done.kept, done.acknowledged, done.lost) == (10, 11, (10, 11))
    store.close()


def test_a_session_is_repaired_again(rows: Rows) -> None:
    """New damage to a repaired log is repaired like any other; every state stays aside."""
    rows.flip(5)
    first = rows.log()
    done, store = repaired(rows, kinds={"record"}, salvage=True)
    store.close()
    rows.sql("DELETE FROM records WHERE session = {s} AND seq = 2")
    second = rows.log()
    with rows.open() as store:
        again = store.repair("s", salvage=True)

        assert (done.aside, again.aside, again.kept) == ("repair-1", "repair-2", 2)
        assert [kept_aside(store, place) for place in ("repair-1", "repair-2")] == [first, second]
        assert store.verify("s").sound
        assert rows.sql("SELECT count(*) FROM sessions WHERE state = 'aside'") == [(2,)]
        trashed_and_purged(rows, store)


# --- the columns ----------------------------------------------------------------------------------

LIES = {
    "type": "type = 'other'",
    "time": "time = 5",
    "key": "key = NULL",
    "agent": "agent = x'00ff'",
    "count": "count = 3",
    "start": "start = start + 7",
    "seq": "seq = 40",
}


@pytest.mark.parametrize("column", LIES)
def test_columns_that_lie_are_made_anew(admit: Admit, column: str) -> None:
    """Where only columns are wrong no event is lost: the new log has the same bytes and all rows.

    Whoever writes goes by the bytes, and is not refused.
    """
    rows = admit("sqlite")
    where = f"session = {{s}} AND seq = {11 if column == 'seq' else 4}"
    rows.sql(f"UPDATE records SET {LIES[column]} WHERE {where}")  # noqa: S608

    done, store = repaired(rows, kinds={"column"}, refused=False)

    assert (done.kept, done.lost, done.later, done.header_lost) == (12, None, 0, False)
    assert [*store.raw("s")][:13] == rows.raw
    assert {problem["kind"] for problem in said(store, "session/repaired")["problems"]} == {
        "column"
    }
    shown = rows.sql("SELECT seq, type, time, key FROM events WHERE session = 's' ORDER BY seq")
    assert shown[:12] == [(e.seq, e.type, e.time, e.key) for e in rows.events]
    trashed_and_purged(rows, store)
    store.close()


# --- what SQLite cannot read ----------------------------------------------------------------------


@pytest.mark.parametrize("salvage", [False, True], ids=["plain", "salvage"])
@pytest.mark.parametrize("scheme", FILES)
def test_a_page_that_cannot_be_read(admit: Admit, scheme: str, salvage: bool) -> None:
    """What stands before an emptied page stays, what stands behind it can be salvaged."""
    rows = admit(scheme, commits=150)
    [(number,)] = rows.sql("SELECT {s}")
    gone = rows.zero_page()
    first, behind = gone[0], len(rows.events) - gone[-1] - 1
    assert gone == [*range(first, gone[-1] + 1)]
    assert min(first, behind) > 0

    done, store = repaired(rows, kinds={"frame"}, salvage=salvage, sizes=False)

    last = len(rows.events) - 1
    assert (done.kept, done.lost, done.later) == (first, (first, last), behind)
    told = said(store, "session/repaired")["problems"]
    assert any("SQLite" in problem["reason"] for problem in told)
    assert [*store.raw("s")][: first + 1] == rows.raw[: first + 1]
    if salvage:
        events = [*store.read_from("s", first + 2)][:behind]
        assert [*map(facts, events)] == [*map(facts, rows.events[gone[-1] + 1 :])]
    # No row was touched, and what is aside ends where SQLite cannot go on.
    kept = "SELECT count(line) FROM records WHERE session = ? AND seq NOT BETWEEN ? AND ?"
    assert sql(rows.path, kept, number, gone[0], gone[-1]) == [(first + behind,)]
    with pytest.raises(StorageUnavailable, match="is damaged"):
        kept_aside(store, "repair-1")
    # What cannot be read cannot be removed, which stops nobody else.
    store.delete("s")
    store.restore("s")
    assert store.verify("s").sound
    store.delete("s")
    with pytest.raises(StorageUnavailable, match="is damaged"):
        store.empty_trash("s")
    assert [each.id for each in store.trash()] == ["s"]
    store.delete("t")
    assert [each.id for each in store.empty_trash("t")] == ["t"]
    store.restore("s")
    assert store.verify("s").sound
    store.close()


# --- content --------------------------------------------------------------------------------------


def part_edited(rows: Rows, digest: str) -> bytes:
    rows.sql("UPDATE blob_parts SET bytes = ? WHERE digest = ?", b"content of x", digest)
    return b"content of x"


def part_gone(rows: Rows, digest: str) -> bytes:
    rows.sql("DELETE FROM blob_parts WHERE digest = ?", digest)
    return b""


def part_of_another(rows: Rows, digest: str) -> bytes:
    [(other,)] = rows.sql("SELECT bytes FROM blob_parts WHERE session = {t}")
    rows.sql("UPDATE blob_parts SET bytes = ? WHERE digest = ?", other, digest)
    return bytes(other)


CONTENT = (part_edited, part_gone, part_of_another)


@pytest.mark.parametrize("harm", CONTENT, ids=lambda harm: harm.__name__)
def test_damaged_content_expires(rows: Rows, harm: Callable[[Rows, str], bytes]) -> None:
    """Damaged content goes aside and counts as expired; the log grows by the event that says so."""
    digest = rows.digest()
    harmed = harm(rows, digest)

    done, store = repaired(rows, kinds=set(), refused=False)

    assert (done.aside, done.content, done.kept) == (None, (digest,), 12)
    assert kept_aside(store, f"repair-1-{digest}") == harmed
    assert store.blobs("s") == []
    with pytest.raises(ContentExpired):
        store.blob("s", digest)
    data = said(store, "content/expired")
    assert (data["blobs"], data["rule"]["aside"]) == ([digest], "repair-1")
    assert [*store.raw("s")][:13] == rows.raw
    assert store.blob("t", rows.digest("t")) == b"content of t"
    with store.writer("s") as session:
        assert session.put_blob(b"content of s") == digest
    assert not store.repair("s").needed
    trashed_and_purged(rows, store)
    store.close()


@pytest.mark.parametrize("harmed", [b"edited", b""], ids=["edited", "emptied"])
@pytest.mark.parametrize("scheme", FILES)
def test_large_content_that_is_damaged(admit: Admit, scheme: str, harmed: bytes) -> None:
    """Large content, which a bundle keeps beside itself, is repaired like any other."""
    rows = admit(scheme)
    large = b"L" * (ARTIFACT_BYTES + 1)
    with rows.open() as store, store.writer("s") as session:
        digest = session.put_blob(large)
    beside = rows.path.with_suffix(".artifacts") / digest
    if scheme == "bundle":
        assert beside.read_bytes() == large
        beside.write_bytes(harmed)
    else:
        rows.sql("UPDATE blob_parts SET bytes = ? WHERE digest = ?", harmed, digest)

    done, store = repaired(rows, kinds=set(), refused=False)

    assert (done.aside, done.content) == (None, (digest,))
    assert kept_aside(store, f"repair-1-{digest}") == harmed
    assert rows.sql("SELECT 1 FROM blobs WHERE digest = ?", digest) == []
    assert not beside.exists()
    with store.writer("s") as session:
        session.put_blob(large)
    assert store.blob("s", digest) == large
    trashed_and_purged(rows, store)
    store.close()


def test_large_content_that_two_sessions_share(admit: Admit) -> None:
    """A damaged file beside a bundle is repaired for each session that names it, by itself."""
    rows = admit("bundle")
    large = b"L" * (ARTIFACT_BYTES + 1)
    digest = hashlib.sha256(large).hexdigest()
    with rows.open() as store:
        for name in ("s", "t"):
            with store.writer(name) as session:
                session.put_blob(large)
    beside = rows.path.with_suffix(".artifacts") / digest
    beside.write_bytes(b"edited")
    with rows.open() as store:
        for name in ("s", "t"):
            assert not store.verify("t").sound
            assert store.repair(name).content == (digest,)
            assert store.verify(name).sound
            place = f"repair-1-{digest}"
            assert b"".join(store._backend.aside(name, place) or ()) == b"edited"
        assert not beside.exists()
        with store.writer("s") as session:
            session.put_blob(large)
        assert store.blob("s", digest) == large


def test_content_that_others_can_change_stays(admit: Admit) -> None:
    """What cannot be read safely beside a bundle is neither kept aside nor removed."""
    rows = admit("bundle")
    large = b"L" * (ARTIFACT_BYTES + 1)
    with rows.open() as store, store.writer("s") as session:
        digest = session.put_blob(large)
    beside = rows.path.with_suffix(".artifacts") / digest
    beside.chmod(0o644)
    rows.flip(5)
    with rows.open() as store:
        done = store.repair("s")
        assert (done.done, done.sound, done.content, done.unsafe) == (True, False, (), (digest,))
        beside.chmod(0o600)
        assert store.repair("s").sound
        assert store.blob("s", digest) == large


def test_everything_at_once(rows: Rows) -> None:
    """Header, records, tail, columns and content of one session are repaired in one go."""
    header_edited(rows)
    several(rows)
    digest = rows.digest()
    harmed = part_edited(rows, digest)

    done, store = repaired(rows, kinds={"header", "column"}, salvage=True)

    kinds = {problem.kind for problem in done.problems}
    assert kinds >= {"header", "record", "column"}
    assert (done.header_lost, done.content) == (True, (digest,))
    assert (done.kept, done.lost, done.later, done.salvaged) == (3, (3, 11), 5, 5)
    assert kept_aside(store, f"repair-1-{digest}") == harmed
    assert said(store, "content/expired")["blobs"] == [digest]
    assert {each.place for each in store._backend.asides("s")} == {
        "repair-1",
        f"repair-1-{digest}",
    }
    trashed_and_purged(rows, store)
    store.close()


# --- nothing to repair ----------------------------------------------------------------------------


def ahead(rows: Rows) -> None:
    """A row stands behind the acknowledged tail, as another program may leave one."""
    last = decode_line(rows.raw[-1]).position
    [record] = seal(last, [draft("note", "more", time=1)])
    rows.insert(12, record)
    end = sum(map(len, rows.raw[1:]))
    rows.sql("UPDATE records SET start = ? WHERE session = {s} AND seq = 12", end)


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("state", [lambda _: None, ahead], ids=["ok", "ahead"])
def test_where_nothing_is_damaged(rows: Rows, state: Callable[[Rows], None], dry_run: bool) -> None:
    """Where nothing is damaged no byte of the file is written, and that is said."""
    state(rows)
    before = everything(rows.path)
    with rows.open() as store:
        done = store.repair("s", salvage=True, dry_run=dry_run)
        assert (done.needed, done.done, done.sound, done.aside) == (False, False, True, None)
    after = everything(rows.path)
    assert before.keys() == after.keys()
    changed = {name for name in before if before[name] != after[name]}
    assert {Path(name).parent.name for name in changed} <= {"locks"}
