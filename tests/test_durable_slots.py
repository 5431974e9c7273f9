"""The tail file: two slots, the newer valid one holds."""

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure.durable.files import Folder
from perdure.durable.slots import Slot, TailSlots
from perdure.model.record import Position
from perdure.recovery.tail import Verdict

HASH = "ab" * 32


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    """A private folder with a log to point at."""
    tmp_path.chmod(0o700)
    (tmp_path / "log").write_bytes(b"log")
    with Folder.open(str(tmp_path)) as opened:
        yield opened


def status(folder: Folder) -> os.stat_result:
    found = folder.stat("log")
    assert found is not None
    return found


def filled(folder: Folder, count: int) -> Path:
    slots = TailSlots(folder)
    for seq in range(count):
        slots.write(Position(seq, HASH), status(folder))
    slots.sync()
    slots.close()
    return Path(folder.path) / "tail"


@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_the_last_written_slot_holds(folder: Folder, count: int) -> None:
    """What was acknowledged last is read back, with the file it was acknowledged in."""
    filled(folder, count)
    there = status(folder)

    assert TailSlots.read(folder) == Slot(
        count, Position(count - 1, HASH), there.st_ino, there.st_size, there.st_ctime_ns
    )


def test_without_a_file_nothing_is_known(folder: Folder) -> None:
    """A missing, empty or foreign tail file is no evidence and no error."""
    assert TailSlots.read(folder) is None
    path = Path(folder.path) / "tail"
    for raw in (b"", b"\0" * 1024, b"x" * 1024, b"PTL0"):
        path.write_bytes(raw)
        path.chmod(0o600)
        assert TailSlots.read(folder) is None


def test_a_torn_slot_leaves_the_other(folder: Folder) -> None:
    """Whatever byte of the newer slot is changed or missing, the older one holds."""
    path = filled(folder, 3)
    raw = path.read_bytes()
    newer = 512
    for at in range(80):
        torn = bytearray(raw)
        torn[newer + at] ^= 0x10
        for damaged in (bytes(torn), raw[: newer + at]):
            path.write_bytes(damaged)
            found = TailSlots.read(folder)
            assert found is not None
            assert (found.generation, found.position.seq) == (2, 1)


def test_two_torn_slots_are_no_evidence(folder: Folder) -> None:
    """If both slots are damaged nothing is known, and the next writer begins anew."""
    path = filled(folder, 4)
    raw = bytearray(path.read_bytes())
    raw[10] ^= 1
    raw[522] ^= 1
    path.write_bytes(raw)
    assert TailSlots.read(folder) is None

    filled(folder, 1)
    found = TailSlots.read(folder)
    assert found is not None
    assert found.position == Position(0, HASH)


def test_a_writer_goes_on_counting(folder: Folder) -> None:
    """A reopened tail file is continued in the slot that is older."""
    filled(folder, 3)
    slots = TailSlots(folder)
    slots.write(Position(9, HASH), status(folder))
    slots.close()

    found = TailSlots.read(folder)
    assert found is not None
    assert (found.generation, found.position.seq) == (4, 9)


def test_a_right_checksum_of_another_layout_is_ignored(folder: Folder) -> None:
    """A slot of another magic is no slot of ours."""
    path = filled(folder, 2)
    raw = bytearray(path.read_bytes())
    for at in (0, 512):
        raw[at : at + 4] = b"PTL9"
        raw[at + 76 : at + 80] = struct.pack("<I", zlib.crc32(bytes(raw[at : at + 76])))
    path.write_bytes(raw)

    assert TailSlots.read(folder) is None


def damaged_tail(raw: bytes, how: str) -> bytes:
    """A tail file of which the newer slot, or both, or all is gone."""
    changed = bytearray(raw)
    newer = 0 if raw[4:12] > raw[516:524] else 512
    for at in {"one": (newer,), "both": (0, 512)}.get(how, ()):
        changed[at + 20] ^= 1
    return b"" if how == "all" else bytes(changed)


@pytest.mark.parametrize("encoding", ["raw", "zst"])
@pytest.mark.parametrize(
    ("how", "verdict"),
    [
        ("none", Verdict.COMPLETE),
        ("one", Verdict.AHEAD),
        ("both", Verdict.COMPLETE),
        ("all", Verdict.COMPLETE),
    ],
)
def test_lost_slots_lose_no_event(
    tmp_path: Path, encoding: str, how: str, verdict: Verdict
) -> None:
    """With one slot, or none, every event is still read, and the next writer makes them anew."""
    root = tmp_path / "store"
    with perdure.open(root, encoding=encoding) as store, store.create("s") as session:
        for number in range(4):
            session.append("x", number)
    tail = root / "sessions/s/tail"
    tail.write_bytes(damaged_tail(tail.read_bytes(), how))
    (root / "evidence.sqlite").unlink()
    store = perdure.open(root)

    assert [event.data for event in store.read_from("s")] == [0, 1, 2, 3]
    assert store.inspect("s").status == verdict.value
    assert store.verify("s").status == "ok"
    with store.writer("s") as session:
        session.append("x", 4)
    assert store.inspect("s").status == "complete"
    with Folder.open(str(root / "sessions/s")) as folder:
        found = TailSlots.read(folder)
    assert found is not None
    assert found.position.seq == 4


def test_evidence_of_a_lost_end_is_not_forgotten(tmp_path: Path) -> None:
    """A log that lost acknowledged events is refused for writing until somebody decides."""
    # heinzel 8, 9
    root = tmp_path / "store"
    with perdure.open(root, encoding="raw") as store, store.create("s") as session:
        for number in range(4):
            session.append("x", number)
    log = root / "sessions/s/log.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:-1]))
    store = perdure.open(root)

    for _ in range(2):
        with pytest.raises(perdure.errors.SessionDamaged) as damaged:
            store.writer("s")
        assert (damaged.value.kind, damaged.value.record) == ("missing-tail", 3)
    assert [e.data for e in store.inspect("s").events] == [0, 1, 2]
    with pytest.raises(perdure.errors.SessionDamaged):
        list(store.read_from("s", types=("nothing",)))
