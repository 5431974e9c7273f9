"""`perdure export --format source`: what was imported comes out again, byte for byte."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure.cli.exits import Exit
from perdure.errors import InvalidValue
from perdure.importers import source_text, sync
from perdure.importers.stored_lines import last_generation, source_bytes, stored_parts
from tests.command_line import Line
from tests.sources import DATA, HEADER, frame, record

SAMPLES = sorted(
    path
    for folder in ("claude-code", "codex", "deepseek-harness", "dsh")
    for path in (DATA / folder).rglob("*.jsonl*")
    if path.is_file() and "history-multi" not in path.name
)


@pytest.fixture
def store(line: Line) -> Iterator[perdure.Store]:
    with perdure.open(line.location) as opened:
        yield opened


def imported(store: perdure.Store, path: Path) -> str:
    (source,) = sync(store, [path]).sources
    return str(source.session)


def test_every_sample_comes_out_as_it_went_in(line: Line, tmp_path: Path) -> None:
    """The bytes of each source are given back, those of a compressed or torn one as well."""
    report = line.json("sync", *(part for path in SAMPLES for part in ("--from", str(path))))
    assert report["states"] == {"new": len(SAMPLES)} == {"new": 55}
    for number, source in enumerate(report["sources"]):
        target = tmp_path / str(number)
        told = line.json("export", source["session"], str(target), "--format", "source")
        original = Path(source["path"]).read_bytes()
        assert target.read_bytes() == original, source["path"]
        assert (told["size"], told["generation"]) == (len(original), 0)
        assert told["compressed"] == source["path"].endswith(".zstd")
        assert target.stat().st_mode & 0o777 == 0o600


def test_what_exists_is_not_written_over(line: Line, store: perdure.Store, tmp_path: Path) -> None:
    """A file that is there stays as it is."""
    path = tmp_path / "session.jsonl"
    path.write_bytes(HEADER)
    session = imported(store, path)
    target = tmp_path / "kept"
    target.write_text("mine")
    assert line("export", session, str(target), "--format", "source").exit_code == Exit.FAILED
    assert target.read_text() == "mine"


def test_the_output_takes_it_too(line: Line, store: perdure.Store, tmp_path: Path) -> None:
    """With - it goes to the output, and nothing else does."""
    path = tmp_path / "session.jsonl"
    path.write_bytes(HEADER + b'{"type":"a"}\n\xff\n')
    session = imported(store, path)
    result = line("export", session, "-", "--format", "source")
    assert (result.exit_code, result.stdout_bytes) == (Exit.OK, path.read_bytes())
    assert line("export", session, "-", "--format", "source", "--json").exit_code == Exit.USAGE


def test_an_earlier_state_comes_out(line: Line, store: perdure.Store, tmp_path: Path) -> None:
    """Of a source that was rewritten each generation is given, and others are refused."""
    path = tmp_path / "session.jsonl"
    first, second = HEADER + record("a", 1) + record("b", 2), HEADER + record("c", 3)
    path.write_bytes(first)
    session = imported(store, path)
    path.write_bytes(second)
    assert imported(store, path) == session
    for number, text in ((0, first), (1, second)):
        target = tmp_path / str(number)
        line("export", session, str(target), "--format", "source", "--generation", str(number))
        assert target.read_bytes() == text
    told = line.json("export", session, str(tmp_path / "last"), "--format", "source")
    assert told["generation"] == last_generation(store, session) == 1
    error = line.error("export", session, "x", "--format", "source", "--generation", "2")
    assert (error["exit"], error["hint"]) == (Exit.USAGE, "there are 0 to 1")
    with pytest.raises(InvalidValue):
        source_bytes(store, session, -1)


def test_a_compressed_source_comes_out_in_each_of_its_states(
    store: perdure.Store, tmp_path: Path
) -> None:
    """Frames that were added, and a file that was replaced, come out as they were found."""
    path = tmp_path / "session.jsonl.zstd"
    states = [frame(HEADER)]
    states.append(states[0] + frame(record("a", 1)))
    states.append(frame(HEADER + record("b", 2)))
    session = ""
    for state in states:
        path.write_bytes(state)
        session = imported(store, path)
        assert b"".join(source_bytes(store, session)) == state
    assert b"".join(source_bytes(store, session, 0)) == states[1]
    assert last_generation(store, session) == 1


def test_a_compressed_source_whose_bytes_never_came(
    line: Line, store: perdure.Store, tmp_path: Path
) -> None:
    """Where an import was broken off before its bytes, the text comes, and it is said."""
    path = "/srv/session.jsonl.zstd"
    source = perdure.Source("deepseek-harness", "s-1", None, path)
    with store.create("cut", vocabulary=None, source=source) as session:
        session.append("deepseek-harness/session", HEADER.decode(), key="0:0")
        digest = session.put_blob(frame(HEADER))
        session.append("source/bytes", {"offset": 0, "blob": digest, "bytes": 9})
        session.append("deepseek-harness/a", record("a", 1).decode(), key=f"0:{len(HEADER)}")
    assert stored_parts(store, "cut") == []
    result = line("export", "cut", str(tmp_path / "text"), "--format", "source")
    assert result.stderr == "its compressed bytes are not kept; this is its text\n"
    assert (tmp_path / "text").read_bytes() == HEADER + record("a", 1)
    with store.writer("cut") as session:
        session.append("source/bytes", "of another kind")
    assert b"".join(source_bytes(store, "cut")) == b"".join(source_text(store, "cut"))


def test_only_an_import_has_a_source(line: Line, store: perdure.Store, tmp_path: Path) -> None:
    """A session of perdure's own, and a fork of an import, are refused and leave no file."""
    with store.create("own") as session:
        session.append("note", 1)
    path = tmp_path / "session.jsonl"
    path.write_bytes(HEADER)
    fork = store.fork(imported(store, path))
    fork.close()
    for id in ("own", fork.id):
        error = line.error("export", id, str(tmp_path / "x"), "--format", "source")
        assert (error["code"], error["exit"]) == ("invalid-value", Exit.USAGE)
        assert "no import" in error["message"]
    assert not (tmp_path / "x").exists()
    assert line("export", "none", "x", "--format", "source").exit_code == Exit.NOT_FOUND
    assert line("export", "own", "x.perdure", "--generation", "0").exit_code == Exit.USAGE


def test_a_damaged_import_leaves_no_file(line: Line, store: perdure.Store, tmp_path: Path) -> None:
    """What does not hold together is refused with 3, and no half of it stays."""
    path = tmp_path / "session.jsonl"
    path.write_bytes(HEADER + record("a", 1) * 40)
    session = imported(store, path)
    log = line.log(session)
    raw = bytearray(log.read_bytes())
    raw[len(raw) * 2 // 3] ^= 1
    log.write_bytes(raw)
    result = line("export", session, str(tmp_path / "x"), "--format", "source", "--json")
    assert result.exit_code == Exit.DAMAGE
    assert json.loads(result.stderr)["error"]["code"] == "session-damaged"
    assert not (tmp_path / "x").exists()
