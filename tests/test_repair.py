"""Repair: before and after each kind of damage, and what became of the bytes that stood there."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import perdure
from perdure.backends.directory.holding import LAYOUTS
from perdure.errors import ContentExpired, SessionDamaged
from perdure.model.event import Event, draft
from perdure.model.header import Parent, encode_header, new_header
from perdure.model.record import Position, Record, decode_line, seal
from perdure.store import Repair, Store
from perdure.testing.mutations import Original

ENCODINGS = ("raw", "zst")


class Patient:
    """A store with a session `s` of twelve commits, its twin `t`, and content in both."""

    def __init__(self, folder: Path, encoding: str) -> None:
        self.path = folder / "store"
        self.encoding = encoding
        self.layout = LAYOUTS[encoding]
        with perdure.open(self.path, encoding=encoding) as store:
            for name in ("s", "t"):
                self.content = self.write(store, name)
        self.log = self.log_of("s")
        self.data = self.log.read_bytes()
        with perdure.open(self.path) as store:
            self.events = [*store.read_from("s")]
            self.raw = [line for line in store.raw("s") if isinstance(line, bytes)]
        self.units = Original(self.data, encoding, self.events).units

    @staticmethod
    def write(store: Store, name: str, commits: int = 12) -> str:
        with store.create(name, cwd="/w", preset="coder") as session:
            digest = session.put_blob(f"content of {name}".encode())
            session.append("turn/start", {}, turn="1")
            for number in range(1, commits - 1):
                data = {"number": f"{name} {number}", "blob": digest}
                session.append("note", data, key=f"k{number}", ignorable=number % 2 == 0)
            session.append("turn/end", {"reason": "completed"}, turn="1")
        return digest

    def log_of(self, name: str) -> Path:
        return self.path / "sessions" / name / self.layout.file_name

    def harm(self, data: bytes) -> None:
        self.log.write_bytes(data)

    def flipped(self, *units: int, at: int = 40) -> bytes:
        data = bytearray(self.log.read_bytes())
        for unit in units:
            data[self.units[unit].start + at] ^= 0x10
        return bytes(data)

    def edited(self, seq: int) -> bytes:
        """The log with another, intact record in the place of one."""
        old = decode_line(self.raw[seq + 1])
        changed = seal(Position(seq - 1, old.prev), [draft("note", "edited", time=1)])
        unit = self.units[seq + 1]
        return self.data[: unit.start] + self.layout.commit(changed) + self.data[unit.end :]

    def blob(self) -> Path:
        [path] = self.path.glob(f"sessions/s/blobs/*/{content_digest(self, 's')}")
        return path


def content_digest(patient: Patient, name: str) -> str:
    with perdure.open(patient.path) as store:
        return store.blobs(name)[0].digest


@pytest.fixture(params=ENCODINGS)
def patient(tmp_path: Path, request: pytest.FixtureRequest) -> Patient:
    return Patient(tmp_path, request.param)


def brief(events: Sequence[Event]) -> list[str]:
    return [event.type for event in events]


def facts(event: Event) -> tuple[Any, ...]:
    return (event.type, event.time, event.agent, event.turn, event.key, event.ignorable, event.raw)


def repaired(patient: Patient, *, kinds: set[str], salvage: bool = False) -> tuple[Repair, Store]:
    """Repair the session, and demand all that must hold after any repair."""
    harmed = patient.log.read_bytes()
    store = perdure.open(patient.path)
    before = store.verify("s")
    assert not before.sound
    assert {problem.kind for problem in before.problems} >= kinds
    foretold = store.repair("s", salvage=salvage, dry_run=True)
    assert patient.log.read_bytes() == harmed
    assert not (patient.log.parent / "aside").exists()

    done = store.repair("s", salvage=salvage)

    assert done == foretold._replace(done=True)
    assert done.needed
    assert done.sound
    after = store.verify("s")
    assert (after.sound, after.problems) == (True, [])
    assert after.status == ("interrupted" if after.closers else "ok")
    assert store.reports() == []
    events = [*store.read_from("s")]
    assert events[: done.kept] == patient.events[: done.kept]
    if done.aside is not None:
        assert kept_aside(store, done.aside) == harmed
        assert brief(events).count("session/repaired") == 1
    assert not store.repair("s").needed
    assert store.verify("t").sound
    # What is derived may stay where the log did.
    names = {path.name for path in patient.log.parent.iterdir()} - {"views"}
    assert names == {patient.layout.file_name, "aside", "blobs", "lock", "tail"}
    with perdure.open(patient.path) as other, other.writer("s") as session:
        assert session.append("x").seq == len(events) + after.closers
    return done, store


def kept_aside(store: Store, place: str) -> bytes:
    parts = store._backend.aside("s", place)
    assert parts is not None
    return b"".join(parts)


def said(store: Store, type: str) -> Any:  # noqa: A002
    [event] = store.read_from("s", types=[type])
    return event.data


# --- the header -----------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [10, 40, -1])
def test_a_lost_header_keeps_every_record(patient: Patient, at: int) -> None:
    """Without its header all records stay byte for byte; a new one takes their genesis."""
    unit = patient.units[0]
    at = at if at >= 0 else len(unit.body) - 1
    patient.harm(patient.flipped(0, at=at))

    done, store = repaired(patient, kinds={"header"})

    assert (done.header_lost, done.kept, done.lost) == (True, 12, None)
    raw = [*store.raw("s")]
    assert raw[1:13] == patient.raw[1:]
    header = store.inspect("s").header
    assert header is not None
    assert (header.id, header.seed) == ("s", 12)
    assert header.genesis == decode_line(patient.raw[1]).prev
    assert (header.created_at, header.cwd) == (patient.events[0].time, None)
    assert header.vocabulary == "perdure/1"
    assert said(store, "session/forked")["header"] == header.digest
    assert said(store, "session/repaired")["header_lost"] is True
    store.close()


def test_a_lost_header_of_a_session_with_its_own_types(tmp_path: Path) -> None:
    """Where the events do not speak the vocabulary, the new header does not say so either."""
    with perdure.open(tmp_path / "store", encoding="raw") as store:
        with store.create("s", vocabulary=None) as session:
            session.append("note", 1, time=-5)
            session.append("turn/start", "not as perdure means it", time=7)
        log = Path(str(store.locate("s")))
        log.write_bytes(b"?" * 20 + log.read_bytes()[20:])

        assert store.repair("s").kept == 2

        header = store.inspect("s").header
        assert header is not None
        assert (header.vocabulary, header.created_at) == (None, 0)
        assert store.verify("s").status == "ok"


def test_a_lost_header_and_a_lost_first_record(patient: Patient) -> None:
    """Where not even record 0 is intact nothing is kept, and only salvage brings the rest."""
    patient.harm(patient.flipped(0, 1))

    done, store = repaired(patient, kinds={"header"}, salvage=True)

    assert (done.header_lost, done.kept, done.lost, done.salvaged) == (True, 0, (0, 11), 11)
    events = [*store.read_from("s")]
    assert brief(events)[:2] == ["session/repaired", "session/salvaged"]
    assert list(map(facts, events[2:13])) == list(map(facts, patient.events[1:]))
    store.close()


def test_a_header_of_another_session(patient: Patient) -> None:
    """Whoever's header stands there, records that were acknowledged under this id stay."""
    other = patient.log_of("t").read_bytes()
    end = Original(other, patient.encoding, _events(patient, "t")).units[0].end
    patient.harm(other[:end] + patient.data[patient.units[0].end :])

    done, store = repaired(patient, kinds={"header"})

    assert (done.header_lost, done.kept) == (True, 12)
    store.close()


def _events(patient: Patient, name: str) -> list[Event]:
    with perdure.open(patient.path) as store:
        return [*store.read_from(name)]


def test_an_older_header_of_the_same_id(patient: Patient) -> None:
    """A header of the same id to which the acknowledged records do not link is not theirs."""
    header = patient.layout.header(encode_header(new_header("s", created_at=1, preset="older")))
    patient.harm(header + patient.data[patient.units[0].end :])

    done, store = repaired(patient, kinds={"header"})

    assert (done.header_lost, done.kept) == (True, 12)
    now = store.inspect("s").header
    assert now is not None
    assert now.preset is None
    store.close()


def test_other_records_behind_the_header(patient: Patient) -> None:
    """Records that nobody acknowledged here do not take the place of those of the header."""
    other = patient.log_of("t").read_bytes()
    end = Original(other, patient.encoding, _events(patient, "t")).units[0].end
    patient.harm(patient.data[: patient.units[0].end] + other[end:])

    done, store = repaired(patient, kinds={"header"}, salvage=True)

    assert (done.header_lost, done.kept, done.lost, done.salvaged) == (False, 0, (0, 11), 12)
    now = store.inspect("s").header
    assert now is not None
    assert (now.preset, now.inherited_genesis) == ("coder", None)
    store.close()


# --- the log --------------------------------------------------------------------------------------


def cut_off(patient: Patient) -> bytes:
    return patient.data[: patient.units[-2].end]


def without_one(patient: Patient) -> bytes:
    return patient.data[: patient.units[6].start] + patient.data[patient.units[6].end :]


def with_noise(patient: Patient) -> bytes:
    at = patient.units[6].start
    return patient.data[:at] + b"\0\n? " * 9 + b"\n" + patient.data[at:]


def twice(patient: Patient) -> bytes:
    start, end = patient.units[5].start, patient.units[8].end
    return patient.data[:end] + patient.data[start:]


class Case(NamedTuple):
    """One kind of damage, and what must come of it."""

    harm: Callable[[Patient], bytes]
    kind: str
    kept: int
    lost: tuple[int, int] | None
    later: int


CASES = {
    "record": Case(lambda p: p.flipped(6), "record", 5, (5, 11), 6),
    "sequence": Case(without_one, "sequence", 5, (5, 11), 6),
    "link": Case(lambda p: p.edited(5), "link", 5, (5, 11), 7),
    "evidence": Case(lambda p: p.edited(11), "evidence", 11, (11, 11), 1),
    "missing-tail": Case(cut_off, "missing-tail", 11, (11, 11), 0),
    "noise": Case(with_noise, "noise", 12, None, 0),
    "several": Case(lambda p: p.flipped(4, 8)[: p.units[-2].end], "record", 3, (3, 11), 6),
    "repeated": Case(twice, "sequence", 8, (8, 11), 4),
    "nothing but a header": Case(lambda p: p.data[: p.units[0].end], "missing-tail", 0, (0, 11), 0),
}


@pytest.mark.parametrize("salvage", [False, True], ids=["plain", "salvage"])
@pytest.mark.parametrize("case", CASES)
def test_each_damage_is_repaired(patient: Patient, case: str, salvage: bool) -> None:
    """The verified prefix stays byte for byte, under its header; what was wrong is on record."""
    harm, kind, kept, lost, later = CASES[case]
    patient.harm(harm(patient))
    wanted = {kind if (kind, patient.encoding) != ("record", "zst") else "frame"}

    done, store = repaired(patient, kinds=wanted, salvage=salvage)

    assert (done.kept, done.lost, done.later) == (kept, lost, later)
    assert (done.salvaged, done.header_lost) == (later if salvage else 0, False)
    raw = [*store.raw("s")]
    assert raw[: kept + 1] == patient.raw[: kept + 1]
    data = said(store, "session/repaired")
    assert data["problems"] == [problem._asdict() for problem in done.problems]
    assert data["problems"][0]["kind"] in wanted
    assert (data["kept"], data["acknowledged"], data["later"]) == (kept, 11, later)
    assert data["lost"] == (list(lost) if lost is not None else None)
    store.close()


def test_what_is_salvaged_says_where_it_comes_from(patient: Patient) -> None:
    """Each linked stretch stands behind its origin, with everything that it had but its numbers."""
    patient.harm(patient.flipped(4, 8))

    _, store = repaired(patient, kinds=set(), salvage=True)

    events = [*store.read_from("s", 3)]
    assert brief(events) == [
        "session/repaired", "session/salvaged", "note", "note", "note",
        "session/salvaged", "note", "note", "note", "turn/end", "x",
    ]  # fmt: skip
    first, second = events[1].data, events[5].data
    assert first == {
        "first": 4,
        "last": 6,
        "hash": decode_line(patient.raw[7]).hash,
        "events": 3,
        "aside": "repair-1",
        "without_key": [],
    }
    assert (second["first"], second["last"], second["events"]) == (8, 11, 4)
    assert list(map(facts, events[2:5])) == list(map(facts, patient.events[4:7]))
    assert list(map(facts, events[6:10])) == list(map(facts, patient.events[8:12]))
    with store.writer("s") as session:
        # A salvaged key is known, and a repeat of the event is one.
        again = patient.events[9]
        assert session.append(again.type, again.data, key=again.key).seq == 10
    store.close()


def test_a_key_is_never_there_twice(patient: Patient) -> None:
    """A salvaged event whose key belongs to an earlier event loses it, and that is said."""
    other = seal(
        Position(6, "ab" * 32),
        [draft("note", "other", time=2, key="k2"), draft("note", "new", time=2, key="k99")],
    )
    start, end = patient.units[6].start, patient.units[7].end
    data = patient.data[:start] + patient.layout.commit(other) + patient.data[end:]
    patient.harm(data)

    _, store = repaired(patient, kinds={"sequence"}, salvage=True)

    origins = [event.data for event in store.read_from("s", types=["session/salvaged"])]
    assert [each["without_key"] for each in origins] == [[7], []]
    notes = [event for event in store.read_from("s", 6) if event.type == "note"]
    assert [(event.data, event.key) for event in notes[:2]] == [("other", None), ("new", "k99")]
    store.close()


def test_packed_runs_are_salvaged_as_runs(tmp_path: Path) -> None:
    """A run of deltas behind damage stays one record, with all its events."""
    with perdure.open(tmp_path / "store", encoding="raw") as store:
        with store.create("s") as session:
            session.append("x", 1)
            session.append("x", 2)
            deltas = [
                {"type": "assistant/delta", "data": {"text": f"word {n}"}, "turn": "1", "time": n}
                for n in range(50)
            ]
            session.append_many(deltas)
        wanted = [facts(event) for event in store.read_from("s", 2)]
        log = Path(str(store.locate("s")))
        lines = log.read_bytes().splitlines(keepends=True)
        assert len(lines) == 4
        log.write_bytes(b"".join([*lines[:2], b"?\n", lines[3]]))

        done = store.repair("s", salvage=True)

        assert (done.kept, done.salvaged) == (1, 50)
        assert [facts(event) for event in store.read_from("s", 3)] == wanted
        assert len([*store.raw("s")]) == 5


def test_a_fork_whose_inherited_part_is_damaged(tmp_path: Path) -> None:
    """A fork that loses the event that names its header gets a header that another one names."""
    path = tmp_path / "store"
    with perdure.open(path, encoding="raw") as store:
        parent = Parent("p", 3)
        genesis = "cd" * 32
        header = new_header(
            "s", created_at=9, parent=parent, seed=4, genesis=genesis, preset="coder"
        )
        drafts = [draft("x", number, time=1) for number in range(4)]
        named = {"header": header.digest, "session": "p", "seq": 3}
        drafts += [draft("session/forked", named, time=2), draft("x", 5, time=3)]
        records = seal(Position(-1, genesis), drafts, pack=False)
        store._backend.publish(header, records).release()
        log = Path(str(store.locate("s")))
        lines = log.read_bytes().splitlines(keepends=True)
        log.write_bytes(b"".join([*lines[:3], b"?\n", *lines[4:]]))

        done = store.repair("s", salvage=True)

        assert (done.kept, done.header_lost, done.salvaged) == (2, False, 3)
        now = store.inspect("s").header
        assert now is not None
        assert (now.parent, now.preset, now.created_at) == (parent, "coder", 9)
        assert (now.seed, now.genesis) == (2, genesis)
        assert [*store.raw("s")][1:3] == lines[1:3]
        assert store.verify("s").status == "ok"
        with store.writer("s") as session:
            session.append("x")
        assert not store.repair("s").needed


def test_the_log_of_another_session_in_place(patient: Patient) -> None:
    """Another session's log is not taken for this one's; salvage brings its events, with origin."""
    shutil.copy(patient.log_of("t"), patient.log)

    done, store = repaired(patient, kinds={"header"}, salvage=True)

    assert (done.header_lost, done.kept, done.lost, done.salvaged) == (True, 0, (0, 11), 12)
    assert "'t'" in said(store, "session/repaired")["problems"][0]["reason"]
    assert brief([*store.read_from("s")])[:2] == ["session/repaired", "session/salvaged"]
    store.close()


def test_the_log_of_a_namesake_in_place(patient: Patient, tmp_path: Path) -> None:
    """A log of the same id from elsewhere holds together: it stays, and what is missing is said."""
    with perdure.open(tmp_path / "elsewhere", encoding=patient.encoding) as elsewhere:
        patient.write(elsewhere, "s", commits=20)
        namesake = Path(str(elsewhere.locate("s"))).parent
        events = [*elsewhere.read_from("s")]
    shutil.copy(namesake / patient.log.name, patient.log)
    shutil.copy(namesake / "tail", patient.log.parent / "tail")
    patient.events = events

    done, store = repaired(patient, kinds={"evidence"})

    assert (done.kept, done.acknowledged, done.lost) == (20, 11, (0, 11))
    store.close()


@pytest.mark.parametrize("salvage", [False, True])
def test_an_empty_log(patient: Patient, salvage: bool) -> None:
    """A log without a byte becomes one that says what was lost."""
    patient.harm(b"")

    done, store = repaired(patient, kinds={"header"}, salvage=salvage)

    assert (done.kept, done.lost, done.later) == (0, (0, 11), 0)
    assert brief([*store.read_from("s")]) == ["session/repaired", "x"]
    store.close()


def test_without_any_evidence(patient: Patient) -> None:
    """Where nobody remembers what was acknowledged, nothing is said to be lost."""
    patient.harm(patient.flipped(6))
    (patient.log.parent / "tail").unlink()
    (patient.path / "evidence.sqlite").unlink()

    done, store = repaired(patient, kinds=set())

    assert (done.kept, done.acknowledged, done.lost) == (5, None, None)
    store.close()


def test_a_session_is_repaired_again(patient: Patient) -> None:
    """New damage to a repaired log is repaired like any other; every state stays aside."""
    patient.harm(patient.flipped(6))
    first = patient.log.read_bytes()
    with perdure.open(patient.path) as store:
        assert store.repair("s").aside == "repair-1"
        second = store.verify("s").events
        whole = patient.log.read_bytes()
        patient.harm(whole[:-60])
        harmed = patient.log.read_bytes()

        done = store.repair("s")

        # A frame is lost whole, and the new log has one for many commits.
        assert (done.aside, done.kept) == ("repair-2", second - 1 if whole[:1] == b"{" else 0)
        assert kept_aside(store, "repair-1") == first
        assert kept_aside(store, "repair-2") == harmed
        assert store.verify("s").sound


# --- content --------------------------------------------------------------------------------------


def test_damaged_content_expires(patient: Patient) -> None:
    """Damaged content goes aside and counts as expired; the log grows by the event that says so."""
    digest, path = content_digest(patient, "s"), patient.blob()
    path.write_bytes(b"content of x")

    done, store = repaired(patient, kinds=set())

    assert (done.aside, done.content, done.kept) == (None, (digest,), 12)
    assert kept_aside(store, f"repair-1-{digest}") == b"content of x"
    assert store.blobs("s") == []
    with pytest.raises(ContentExpired):
        store.blob("s", digest)
    data = said(store, "content/expired")
    assert data["blobs"] == [digest]
    assert data["rule"]["aside"] == "repair-1"
    assert "SHA-256" in data["rule"]["reason"]
    assert [*store.raw("s")][:13] == patient.raw
    with store.writer("s") as session:
        assert session.put_blob(b"content of s") == digest
    assert store.repair("s").needed is False
    store.close()


def test_damaged_content_beside_a_damaged_log(patient: Patient) -> None:
    """Log and content are repaired together, with one event for each."""
    digest = content_digest(patient, "s")
    patient.blob().write_bytes(b"")
    patient.harm(patient.flipped(6))

    done, store = repaired(patient, kinds=set(), salvage=True)

    assert (done.content, done.kept, done.salvaged) == ((digest,), 5, 6)
    assert said(store, "content/expired")["blobs"] == [digest]
    # Both within a millisecond, perhaps.
    kept = {aside.place for aside in store._backend.asides("s")}
    assert kept == {f"repair-1-{digest}", "repair-1"}
    store.close()


def test_content_that_others_can_change_stays(patient: Patient) -> None:
    """What cannot be read safely is neither kept aside nor removed, and the repair says so."""
    patient.harm(patient.flipped(6))
    path = patient.blob()
    path.chmod(0o644)
    with perdure.open(patient.path) as store:
        done = store.repair("s")
        assert (done.done, done.sound, done.content) == (True, False, ())
        assert done.unsafe == (path.name,)
        path.chmod(0o600)
        assert store.repair("s").sound
        assert store.blob("s", path.name) == b"content of s"


# --- nothing to repair ----------------------------------------------------------------------------


def torn(patient: Patient) -> None:
    with patient.log.open("ab") as log:
        log.write(patient.layout.commit(_more(patient))[:30])


def ahead(patient: Patient) -> None:
    with patient.log.open("ab") as log:
        log.write(patient.layout.commit(_more(patient)))


def unterminated(patient: Patient) -> None:
    with patient.log.open("ab") as log:
        log.write(patient.layout.commit(_more(patient))[:-1])


def interrupted(patient: Patient) -> None:
    store = perdure.open(patient.path)
    with store.writer("s") as session:
        session.append("turn/start", {}, turn="2")
    store.close()


def _more(patient: Patient) -> list[Record]:
    last = decode_line(patient.raw[-1]).position
    return seal(last, [draft("note", "more", time=1)])


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize(
    "state", [lambda _: None, torn, ahead, unterminated, interrupted],
    ids=["ok", "torn", "ahead", "unterminated", "interrupted"],
)  # fmt: skip
def test_what_a_writer_settles_is_not_repaired(
    patient: Patient, state: Callable[[Patient], None], dry_run: bool
) -> None:
    """Where nothing is damaged nothing is written, and that is said."""
    state(patient)
    before = {path: path.read_bytes() for path in patient.path.rglob("*") if path.is_file()}
    with perdure.open(patient.path) as store:
        done = store.repair("s", salvage=True, dry_run=dry_run)
        assert (done.needed, done.done, done.sound, done.aside) == (False, False, True, None)
    after = {path: path.read_bytes() for path in patient.path.rglob("*") if path.is_file()}
    changed = {path.name for path in before if before[path] != after.get(path)}
    assert changed <= {"lock"}
    assert before.keys() == after.keys()


def test_a_folder_without_a_log(patient: Patient) -> None:
    """Where no log is there is nothing to keep: the log has to be brought back."""
    patient.log.unlink()
    with perdure.open(patient.path) as store:
        for dry_run in (False, True):
            with pytest.raises(SessionDamaged) as refused:
                store.repair("s", dry_run=dry_run)
            assert refused.value.kind == "missing-log"
            assert "bring its log back" in refused.value.hint
