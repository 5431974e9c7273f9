"""The format page is exact: its example is recomputed, and a reader made from it agrees always."""

import ast
import hashlib
import json
import os
import re
import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import apsw
import pytest

import perdure
from perdure.backends.directory import DirectoryBackend
from perdure.model.event import draft
from perdure.model.header import encode_header, new_header
from perdure.model.identity import escape_id
from perdure.model.record import Position, seal
from perdure.testing.contract import Clockwork
from tests import agreement, independent_reader
from tests.support import scaled

PAGE = Path(__file__).parent.parent / "docs" / "format.md"
READER = Path(independent_reader.__file__)


def blocks(language: str) -> list[str]:
    text = PAGE.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def example() -> list[bytes]:
    return [line.encode() + b"\n" for line in blocks("jsonl")[0].splitlines()]


# --- the page -----------------------------------------------------------------------------------


def test_the_worked_example_holds_by_its_own_rules() -> None:
    """Digest, links, checksums and the final hash of the example follow from the page alone."""
    header, *records = example()

    digest = hashlib.sha256(header[:-78] + b"}\n").hexdigest()
    assert header.endswith(b',"digest":"%s"}\n' % digest.encode())
    link = digest
    for line in records:
        assert line.endswith(b',"crc":"%08x"}\n' % zlib.crc32(line[:-19]))
        assert json.loads(line)["prev"] == link
        link = hashlib.sha256(line).hexdigest()
    assert f"\n```\n{link}\n```\n" in PAGE.read_text(encoding="utf-8")


def test_the_worked_example_is_what_perdure_writes() -> None:
    """Perdure writes the lines of the example, byte for byte."""
    header = new_header("demo", created_at=1_700_000_000_000, cwd="/work")
    asked = {"content": [{"type": "text", "text": "why?"}]}
    first = seal(
        Position(-1, header.genesis),
        [draft("user/message", asked, time=1_700_000_000_001, turn="t1")],
    )
    pieces = ((10, "Let "), (15, "me "), (12, "look."))
    run = seal(
        first[-1].position,
        [
            draft("assistant/delta", {"text": text}, time=1_700_000_000_000 + after, turn="t1")
            for after, text in pieces
        ],
    )

    assert example() == [encode_header(header), *(record.line for record in (*first, *run))]
    text = PAGE.read_text(encoding="utf-8")
    table = text[text.index("The run stands for these events") : text.index("### Forks")]
    rows = re.findall(r"^\| (\d) \| (\d+) \| `(.*)` \|$", table, re.MULTILINE)
    assert [(e.seq, e.time, e.data) for e in run[0].events()] == [
        (int(seq), int(time), json.loads(data)) for seq, time, data in rows
    ]


def test_the_names_of_the_page_are_the_names_on_disk() -> None:
    """The table of ids and folder names is right."""
    text = PAGE.read_text(encoding="utf-8")
    section = text[text.index("## Names of sessions") : text.index("## The log")]
    rows = re.findall(r"^\| `(.*)` \| `(.*)` \|$", section, re.MULTILINE)

    assert len(rows) == 6
    assert [escape_id(id) for id, _ in rows] == [name for _, name in rows]
    assert [independent_reader.escaped(id) for id, _ in rows] == [name for _, name in rows]


def test_the_independent_reader_is_independent() -> None:
    """The second reader has at most 250 lines and imports nothing of perdure."""
    source = READER.read_text(encoding="utf-8")
    imported = {
        (node.module or "").partition(".")[0]
        if isinstance(node, ast.ImportFrom)
        else alias.name.partition(".")[0]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }

    assert len(source.splitlines()) <= 250
    assert imported - set(sys.stdlib_module_names) - {"backports", "compression"} == set()


# --- files --------------------------------------------------------------------------------------


def written(root: Path, encoding: str, commits: int = 3) -> Path:
    """A store of one session of several commits; its folder."""
    with (
        perdure.open(root, encoding=encoding, runtime=Clockwork()) as store,
        store.create("demo", cwd="/work") as session,
    ):
        for number in range(commits):
            deltas = [{"type": "assistant/delta", "data": {"text": f"{n} "}} for n in range(5)]
            session.append_many([{"type": "x", "data": number}, *deltas, {"type": "y"}])
    return root / "sessions" / "demo"


@pytest.mark.parametrize("encoding", ["raw", "zst"])
def test_a_store_is_laid_out_as_the_page_says(tmp_path: Path, encoding: str) -> None:
    """A store has the files of the page, with its modes, and nothing else."""
    root = tmp_path / "store"
    folder = written(root, encoding)
    log = "log.jsonl.zst" if encoding == "zst" else "log.jsonl"

    found = {str(path.relative_to(root)): path.lstat().st_mode & 0o7777 for path in root.rglob("*")}

    assert found == {
        "store.json": 0o600,
        "sessions": 0o700,
        "sessions/demo": 0o700,
        f"sessions/demo/{log}": 0o600,
        "sessions/demo/tail": 0o600,
        "sessions/demo/lock": 0o600,
        "new": 0o700,
        "evidence.sqlite": 0o600,
        "evidence.sqlite-journal": 0o600,
        "index.sqlite": 0o600,
        "writing": 0o700,
    }
    assert root.lstat().st_mode & 0o7777 == 0o700
    facts = json.loads((root / "store.json").read_bytes())
    assert list(facts) == list(json.loads(blocks("json")[0])) == ["format", "id", "encoding"]
    assert (folder / "lock").read_bytes()[:1] == b"\n"
    with perdure.open(root).writer("demo"):
        signed = (folder / "lock").read_bytes().partition(b"\n")[0]
    assert list(json.loads(signed)) == list(json.loads(blocks("json")[1]))


def test_trailers_are_laid_out_as_the_page_says(tmp_path: Path) -> None:
    """Each frame is followed by 48 bytes that describe it, at the documented places."""
    raw = (written(tmp_path / "store", "zst") / "log.jsonl.zst").read_bytes()
    at, described = 0, []
    while at < len(raw):
        size, lines = independent_reader.frame_at(raw, at)
        trailer = raw[at + size : at + size + 48]
        assert trailer[:12] == bytes.fromhex("5d2a4d18 28000000") + b"PRDT"
        first, last, length = struct.unpack("<qqQ", trailer[12:36])
        assert length == size
        assert struct.unpack("<I", trailer[44:]) == (zlib.crc32(trailer[8:44]),)
        tail = hashlib.sha256(lines[-1] + b"\n").digest()[:8] if at else bytes(8)
        assert trailer[36:44] == tail
        described.append((first, last))
        at += size + 48

    assert described == [(0, -1), (0, 6), (7, 13), (14, 20)]


def test_slots_are_laid_out_as_the_page_says(tmp_path: Path) -> None:
    """The tail file has two slots, the newer one at the place of its generation."""
    folder = written(tmp_path / "store", "raw")
    raw, status = (folder / "tail").read_bytes(), (folder / "log.jsonl").stat()
    last = (folder / "log.jsonl").read_bytes().splitlines(keepends=True)[-1]

    slots = []
    for at in (0, 512):
        body = raw[at : at + 76]
        assert raw[at + 76 : at + 80] == struct.pack("<I", zlib.crc32(body))
        slots.append(struct.unpack("<4sQq32sQQQ", body))

    assert [slot[:3] for slot in slots] == [(b"PTL0", 2, 13), (b"PTL0", 3, 20)]
    assert slots[1][3] == hashlib.sha256(last).digest()
    assert slots[1][4:] == (status.st_ino, status.st_size, status.st_ctime_ns)


def test_what_is_set_aside_is_described_as_the_page_says(tmp_path: Path) -> None:
    """The bytes cut off a torn log stand beside it with a note of where they were."""
    folder = written(tmp_path / "store", "raw")
    whole = (folder / "log.jsonl").read_bytes()
    with (folder / "log.jsonl").open("ab") as log:
        log.write(b'{"seq":21,"pr')
    perdure.open(tmp_path / "store").load("demo")

    names = sorted(path.name for path in (folder / "aside").iterdir())
    note = json.loads((folder / "aside" / names[1]).read_bytes())
    assert [re.sub(r"[0-9a-f]{8}\.", "R.", re.sub(r"^\d{15}", "T", n)) for n in names] == [
        "T-R.bytes",
        "T-R.json",
    ]
    assert (folder / "aside" / names[0]).read_bytes() == b'{"seq":21,"pr'
    assert list(note) == list(json.loads(blocks("json")[2]))
    assert (note["start"], note["end"], note["after_seq"]) == (len(whole), len(whole) + 13, 20)
    assert (note["session"], note["file"]) == ("demo", "log.jsonl")
    assert (folder / "log.jsonl").read_bytes() == whole


# --- two readers --------------------------------------------------------------------------------


def flip(raw: bytearray, rng: Random) -> None:
    raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)


def cut_end(raw: bytearray, rng: Random) -> None:
    del raw[rng.randrange(len(raw)) :]


def cut_middle(raw: bytearray, rng: Random) -> None:
    at = rng.randrange(len(raw))
    del raw[at : at + rng.randrange(1, 300)]


def insert(raw: bytearray, rng: Random) -> None:
    at = rng.randrange(len(raw) + 1)
    raw[at:at] = rng.choice([b"\n", b"\0" * 50, b"{}\n", rng.randbytes(20)])


def double(raw: bytearray, rng: Random) -> None:
    at, size = rng.randrange(len(raw)), rng.randrange(1, 800)
    raw[at:at] = raw[at : at + size]


def zero(raw: bytearray, rng: Random) -> None:
    at, size = rng.randrange(len(raw)), rng.randrange(1, 600)
    raw[at : at + size] = bytes(len(raw[at : at + size]))


def line_out(raw: bytearray, rng: Random) -> None:
    lines = bytes(raw).splitlines(keepends=True)
    lines.pop(rng.randrange(len(lines)))
    raw[:] = b"".join(lines)


def forge(raw: bytearray, rng: Random) -> None:
    """Another intact record in the place of one."""
    lines = bytes(raw).splitlines(keepends=True)
    at = rng.randrange(len(lines))
    body = lines[at][:-19].replace(b'"time":1', b'"time":2')
    lines[at] = b'%s,"crc":"%08x"}\n' % (body, zlib.crc32(body))
    raw[:] = b"".join(lines)


HARM: dict[str, list[Callable[[bytearray, Random], None]]] = {
    "raw": [flip, cut_end, cut_middle, insert, double, zero, line_out, forge],
    "zst": [flip, cut_end, cut_middle, insert, double, zero],
}


@pytest.mark.reads_for_itself(reason="compares the two readers after each harm")
@pytest.mark.parametrize("encoding", ["raw", "zst"])
@pytest.mark.parametrize("evidence", [True, False])
def test_both_readers_agree_about_any_harm(
    tmp_path: Path, rng: Random, encoding: str, *, evidence: bool
) -> None:
    """Whatever is done to the bytes of a log, both readers prove the same and say the same."""
    root = tmp_path / "store"
    folder = written(root, encoding, commits=6)
    log = folder / ("log.jsonl.zst" if encoding == "zst" else "log.jsonl")
    whole, tail = log.read_bytes(), (folder / "tail").read_bytes()
    seen: set[str] = set()
    for number in range(scaled(3000)):
        raw = bytearray(whole)
        for harm in rng.sample(HARM[encoding], rng.choice([1, 1, 2])):
            if raw:
                harm(raw, rng)
        log.write_bytes(raw)
        (folder / "tail").write_bytes(tail if evidence else b"")

        assert agreement.disagreements(root, rng) == [], f"after harm {number}"
        seen.add(independent_reader.read_session(folder).verdict)

    assert seen >= {"damaged", "complete"} | ({"torn"} if not evidence else set())


@pytest.mark.parametrize("encoding", ["raw", "zst"])
def test_both_readers_agree_at_every_length(tmp_path: Path, encoding: str) -> None:
    """A log cut at any byte of its last commit is torn, whole or damaged for both readers."""
    root = tmp_path / "store"
    folder = written(root, encoding, commits=2)
    log = folder / ("log.jsonl.zst" if encoding == "zst" else "log.jsonl")
    slot = (folder / "tail").read_bytes()
    whole = log.read_bytes()
    older = slot[:512] if slot[4] < slot[516] else bytes(512) + slot[512:]
    verdicts = []
    for length in range(len(whole) - 400, len(whole) + 1):
        log.write_bytes(whole[:length])
        (folder / "tail").write_bytes(older)
        assert agreement.disagreements(root, Random(0)) == []
        verdicts.append(independent_reader.read_session(folder).verdict)

    assert "torn" in verdicts
    assert verdicts[-1] == "ahead"


def test_a_disagreement_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison sees a reader that is wrong about the header, the events, or the end."""
    root = tmp_path / "store"
    written(root, "raw")
    right = next(independent_reader.read_store(root))
    assert agreement.disagreements(root, Random(0)) == []
    changes: list[dict[str, Any]] = [
        {"header": {**(right.header or {}), "digest": "0" * 64}},
        {"header": None},
        {"events": right.events[:-1]},
        {"events": [*right.events[:-1], {**right.events[-1], "data": "other"}]},
        {"tail": "0" * 64},
        {"verdict": "torn"},
        {"noise": 1},
    ]
    for change in changes:
        wrong = right._replace(**change)
        monkeypatch.setattr(independent_reader, "read_session", lambda _, wrong=wrong: wrong)
        assert len(agreement.disagreements(root, Random(0))) >= 1
    monkeypatch.undo()


def test_the_store_is_read_whole(tmp_path: Path) -> None:
    """The second reader lists the sessions of a store in the order of their names."""
    with perdure.open(tmp_path / "store") as store:
        for id in ("b", "A/..", "\u00e9", "con"):
            with store.create(id) as session:
                session.append("x", id)

    read = list(independent_reader.read_store(tmp_path / "store"))

    assert [(s.header or {})["id"] for s in read] == sorted(
        ("b", "A/..", "\u00e9", "con"), key=escape_id
    )
    assert [[e["data"] for e in s.events] for s in read] == [[(s.header or {})["id"]] for s in read]
    backend = DirectoryBackend(str(tmp_path / "store"))
    assert [s.name for s in read] == [entry.name for entry in backend.entries()]


def test_another_format_of_the_store_is_refused_by_both(tmp_path: Path) -> None:
    """A store.json of another format is read by nobody."""
    root = tmp_path / "store"
    written(root, "raw")
    facts = json.loads((root / "store.json").read_bytes())
    (root / "store.json").write_bytes(json.dumps({**facts, "format": 1}).encode())
    os.chmod(root / "store.json", 0o600)

    with pytest.raises(ValueError, match="unsupported"):
        list(independent_reader.read_store(root))
    with pytest.raises(perdure.errors.FormatUnsupported) as refused:
        perdure.open(root).list()
    assert "newer" in refused.value.hint


# --- SQLite -------------------------------------------------------------------------------------


def test_the_page_has_the_tables_as_they_are(tmp_path: Path) -> None:
    """Every statement that SQLite keeps of a new file stands on the page, and no other."""
    path = tmp_path / "store.db"
    with perdure.open(f"sqlite:{path}") as store, store.create("s") as session:
        session.append("x")
    connection = apsw.Connection(str(path))
    query = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name != 'sqlite_sequence'"
    kept = {" ".join(sql.split()) for (sql,) in connection.execute(query)}
    connection.close()

    printed = {" ".join(sql.split()) for sql in blocks("sql")[0].split(";") if sql.strip()}

    assert {sql.replace("( ", "(").replace(" )", ")") for sql in printed} == {
        sql.replace("( ", "(").replace(" )", ")") for sql in kept
    }


def test_the_queries_of_the_media_page_run(tmp_path: Path) -> None:
    """What docs/media.md asks with SQL works on a store as it stands there."""
    path = tmp_path / "agents.db"
    with perdure.open(f"sqlite:{path}") as store, store.create("fix-the-test") as session:
        session.append("tool/call", {"id": "c1", "name": "bash"}, turn="t1")
    connection = apsw.Connection(str(path))
    page = PAGE.with_name("media.md").read_text(encoding="utf-8")
    (queries,) = re.findall(r"^```sql\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)

    answers = [connection.execute(sql).fetchall() for sql in queries.strip().splitlines()]

    connection.close()
    assert answers[0] == [("fix-the-test", 0, "tool/call", "bash")]
    assert all(answers)
