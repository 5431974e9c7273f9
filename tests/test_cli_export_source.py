"""`perdure export --format source`: what was imported comes out again, byte for byte."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure.cli.exits import Exit
from perdure.errors import InvalidValue
from perdure.importers import source_text, sync
from perdure.importers.stored_lines import (
    last_generation,
    source_bytes,
    stored_files,
    stored_parts,
)
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


# --- what belongs to it ---------------------------------------------------------------------------

STEM = "0a1b2c3d-4e5f-4061-8071-2a3b4c5d6e7f"
CLAUDE = (
    b'{"type":"user","uuid":"u","sessionId":"%s","isSidechain":%s,'
    b'"message":{"role":"user","content":"%s"}}\n'
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A session of Claude Code with outputs, a workflow, and a sub-agent that has its own."""
    folder = tmp_path / "project"
    texts = {
        f"{STEM}.jsonl": CLAUDE % (STEM.encode(), b"false", b"hi"),
        f"{STEM}/tool-results/a.txt": b"one",
        f"{STEM}/tool-results/odd: name?.txt": b"",
        f"{STEM}/subagents/agent-abc.jsonl": CLAUDE % (STEM.encode(), b"true", b"sub"),
        f"{STEM}/subagents/agent-abc.meta.json": b"{}",
        f"{STEM}/subagents/workflows/w/journal.jsonl": b"x\n",
    }
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    return folder


def tree(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def session_in(store: perdure.Store, folder: Path) -> str:
    """Import a folder; return the session of its one transcript."""
    sources = sync(store, [folder]).sources
    (session,) = (one.session for one in sources if Path(one.path).parent == folder)
    return str(session)


def test_what_belongs_to_a_source_comes_out_with_it(
    line: Line, store: perdure.Store, project: Path, tmp_path: Path
) -> None:
    """Files beside a source, and those of its sub-agents, stand below the folder of the new file.

    They have the names that they had beside the source, whatever the new file is called.
    """
    session, before = session_in(store, project), tree(project)
    out = tmp_path / "out"
    out.mkdir()
    told = line.json(
        "export", session, str(out / f"{STEM}.jsonl"), "--format", "source", "--with-files"
    )
    assert tree(out) == before
    assert (sorted(told["written"]), told["skipped"]) == (sorted({*before} - {f"{STEM}.jsonl"}), [])
    modes = {path.stat().st_mode & 0o777 for path in out.rglob("*") if path.is_file()}
    assert modes == {0o600}
    alone = tmp_path / "alone"
    alone.mkdir()
    told = line.json("export", session, str(alone / "x"), "--format", "source")
    assert (told["written"], [*tree(alone)]) == ([], ["x"])
    shown = line("export", session, str(alone / "y"), "--format", "source", "--with-files")
    assert shown.stdout.endswith(f"in {alone}/y\n5 files besides\n")


def test_the_last_of_each_file_beside_a_source_comes_out(
    line: Line, store: perdure.Store, project: Path, tmp_path: Path
) -> None:
    """A file is given as it was last, also if it is gone; of a generation what came until then."""
    path, output = project / f"{STEM}.jsonl", project / STEM / "tool-results" / "a.txt"
    session = session_in(store, project)
    output.write_bytes(b"two")
    sync(store, [project])
    path.write_bytes(CLAUDE % (STEM.encode(), b"false", b"other"))
    output.write_bytes(b"three")
    sync(store, [project])
    output.unlink()
    sync(store, [project])
    for generation, text in (("0", b"two"), ("1", b"three")):
        out = tmp_path / generation
        out.mkdir()
        asked = ("--format", "source", "--with-files", "--generation", generation)
        assert line("export", session, str(out / "x"), *asked).exit_code == Exit.OK
        assert (out / STEM / "tool-results" / "a.txt").read_bytes() == text
    with pytest.raises(InvalidValue):
        stored_files(store, session, -1)


def test_nothing_that_is_there_is_written_over(
    line: Line, store: perdure.Store, project: Path, tmp_path: Path
) -> None:
    """What is there stays, and is named unless it is the same; the rest is written all the same.

    Folders that are there may be of any mode.
    """
    session, before = session_in(store, project), tree(project)
    out = tmp_path / "out"
    results = out / STEM / "tool-results"
    results.mkdir(parents=True)
    results.chmod(0o755)
    (results / "a.txt").write_bytes(b"mine")
    (out / STEM / "subagents").mkdir()
    (out / STEM / "subagents" / "agent-abc.meta.json").write_bytes(b"{}")
    result = line(
        *("export", session, str(out / f"{STEM}.jsonl"), "--format", "source", "--with-files")
    )
    assert result.exit_code == Exit.FAILED
    name = f"{STEM}/tool-results/a.txt"
    assert result.stderr == f"{name} was not written: something else is there already\n"
    assert tree(out) == {**before, name: b"mine"}


HOSTILE = [
    *("../up", "/abs", "a/../../up", "..", ".", "", "a//b", "a/./b", "a/", "nul\0", "\ud800"),
    *("link/inside", "file/below", "kept.jsonl", "dangling"),
]


def test_hostile_names_lead_nowhere(line: Line, store: perdure.Store, tmp_path: Path) -> None:
    """Names in a log lead neither out of the folder nor through a link, nor over a file."""
    outside, out = tmp_path / "outside", tmp_path / "deep" / "out"
    outside.mkdir()
    out.mkdir(parents=True)
    (out / "link").symlink_to(outside)
    (out / "dangling").symlink_to(outside / "new")
    (out / "file").write_bytes(b"mine")
    source = perdure.Source("deepseek-harness", "s-1", None, "/srv/session.jsonl")
    with store.create("evil", vocabulary=None, source=source) as session:
        session.append("deepseek-harness/session", HEADER.decode(), key="0:0")
        digest = session.put_blob(b"evil")
        for name in (*HOSTILE, "sound"):
            session.append("source/file", {"name": name, "blob": digest, "bytes": 4})
        session.append("source/file", {"name": "lost", "blob": "0" * 64, "bytes": 4})
        session.append("source/file", {"name": 7, "blob": digest})
        session.append("source/file", "of another kind")
    asked = ("export", "evil", str(out / "kept.jsonl"), "--format", "source", "--with-files")
    result = line(*asked, "--json")
    assert result.exit_code == Exit.FAILED
    told = json.loads(result.stdout)
    assert told["written"] == ["sound"]
    named = {name.replace("\ud800", "\ufffd") for name in HOSTILE}
    assert {each["name"] for each in told["skipped"]} == {*named, "lost"}
    assert all(each["reason"] for each in told["skipped"])
    assert tree(tmp_path / "deep") == {
        "out/kept.jsonl": HEADER,
        "out/sound": b"evil",
        "out/file": b"mine",
    }
    assert [*outside.iterdir()] == []


def test_paths_of_sub_agents_lead_nowhere(line: Line, store: perdure.Store, tmp_path: Path) -> None:
    """A sub-agent's file is written where it lay below its session's folder, and else not at all.

    One of another machine lay nowhere near it.
    """

    def made(id: str, path: str, parent: str | None, machine: str = "m") -> None:
        relation = None if parent is None else "subagent"
        source = perdure.Source("claude-code", id, "h", path, parent, relation, machine)
        with store.create(id, vocabulary=None, source=source, origin=relation) as session:
            session.append("claude-code/user", f"{id}\n", key="0:0")

    made("p", "/srv/in/p.jsonl", None)
    places = {
        "below": "/srv/in/p/subagents/agent-1.jsonl",
        "beside": "/srv/in/agent-2.jsonl",
        "up": "/srv/in/../../agent-3.jsonl",
        "other": "/srv/in-other/agent-4.jsonl",
        "away": "/etc/agent-5.jsonl",
    }
    for id, path in places.items():
        made(id, path, "p")
    made("nested", "/srv/in/p/subagents/deep/agent-6.jsonl", "below")
    made("foreign", "/srv/in/agent-7.jsonl", "p", "n")
    out = tmp_path / "a" / "b" / "out"
    out.mkdir(parents=True)
    asked = ("export", "p", str(out / "p.jsonl"), "--format", "source", "--with-files", "--json")
    result = line(*asked)
    assert result.exit_code == Exit.FAILED
    assert [each["name"] for each in json.loads(result.stdout)["skipped"]] == [
        "../../agent-3.jsonl"
    ]
    assert tree(tmp_path / "a") == {
        "b/out/p.jsonl": b"p\n",
        "b/out/p/subagents/agent-1.jsonl": b"below\n",
        "b/out/p/subagents/deep/agent-6.jsonl": b"nested\n",
        "b/out/agent-2.jsonl": b"beside\n",
    }


def test_a_damaged_sub_agent_costs_itself_alone(
    line: Line, store: perdure.Store, project: Path, tmp_path: Path
) -> None:
    """A sub-agent that cannot be read is named, and the others of the family are written."""
    session = session_in(store, project)
    (child,) = (each.session for each in store.children(session))
    log = line.log(child)
    raw = bytearray(log.read_bytes())
    raw[len(raw) * 2 // 3] ^= 1
    log.write_bytes(raw)
    out = tmp_path / "out"
    out.mkdir()
    asked = ("export", session, str(out / f"{STEM}.jsonl"), "--format", "source", "--with-files")
    result = line(*asked, "--json")
    assert result.exit_code == Exit.FAILED
    told = json.loads(result.stdout)
    assert [each["name"] for each in told["skipped"]] == [f"{STEM}/subagents/agent-abc.jsonl"]
    assert f"{STEM}/tool-results/a.txt" in told["written"]
    assert not (out / STEM / "subagents" / "agent-abc.jsonl").exists()


def test_files_go_with_a_file(line: Line, store: perdure.Store, project: Path) -> None:
    """Files are written beside a file: the output has no folder, and a bundle holds them anyway."""
    session = session_in(store, project)
    for target, form in (("-", "source"), ("x.perdure", "bundle")):
        shown = line("export", session, target, "--format", form, "--with-files")
        assert shown.exit_code == Exit.USAGE
    assert not Path("x.perdure").exists()


# --- what is refused ------------------------------------------------------------------------------


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
