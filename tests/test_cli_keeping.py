"""Commands that keep sessions: content, trash, what is remembered, and room on the disk."""

import json
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import perdure
from perdure.cli import output
from perdure.cli.exits import Exit, worst
from perdure.cli.main import cli
from tests.command_line import Line

LARGE = b"0123456789abcdef" * 200_000
NOWHERE = "0" * 64


@pytest.fixture
def store(line: Line) -> Iterator[perdure.Store]:
    with perdure.open(line.location, encoding="raw") as opened:
        yield opened


def written(store: perdure.Store, *ids: str) -> list[str]:
    """Sessions with content; the digest of each."""
    digests = []
    for id in ids:
        with store.create(id) as session:
            digests.append(session.put_blob(f"content of {id}".encode()))
            session.append("tool/result", {"blob": digests[-1]})
            session.append("x")
    return digests


def listed(store: perdure.Store) -> list[str]:
    return sorted(entry.id for entry in store.list())


def blob_file(line: Line, session: str, digest: str) -> Path:
    return line.log(session).parent / "blobs" / digest[:2] / digest


def spoil(line: Line, session: str, digest: str) -> None:
    """Change the last byte of content, in place."""
    with blob_file(line, session, digest).open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"!")


def go_back(line: Line, store: perdure.Store, session: str) -> None:
    """Put a copy in the place of a session that went on after it was made."""
    folder = line.log(session).parent
    copy = line.location.parent / "copy"
    shutil.copytree(folder, copy)
    with store.writer(session) as writer:
        writer.append("late", "x")
    store.close()
    shutil.rmtree(folder)
    shutil.move(copy, folder)


# --- namespaces -----------------------------------------------------------------------------------


def test_commands_see_one_namespace(line: Line, store: perdure.Store) -> None:
    """A command with --namespace is about the sessions of that namespace and no others."""
    written(store, "top")
    written(store.namespace("a"), "mine")
    written(store.namespace("a", "b c"), "inner")

    assert [row["id"] for row in line.json("ls")["sessions"]] == ["top"]
    assert line.json("ls")["namespaces"] == ["a"]
    assert line("ls").stdout.splitlines()[-1] == "namespaces here: a (--namespace NAME)"
    rows = line.json("--namespace", "a", "ls")
    assert ([row["id"] for row in rows["sessions"]], rows["namespaces"]) == (["mine"], ["b c"])
    both = ["--namespace", "a", "--namespace", "b c"]
    assert line.json(*both, "show", "inner")["session"] == "inner"
    assert line.error(*both, "show", "top")["code"] == "session-not-found"
    assert line(*both, "rm", "inner").exit_code == Exit.OK
    assert listed(store.namespace("a", "b c")) == []
    assert listed(store) == ["top"]


def test_verify_says_what_it_did_not_look_at(line: Line, store: perdure.Store) -> None:
    """Namespaces below are named, so that nobody takes them for verified."""
    written(store.namespace("a"), "mine")
    assert line("verify").stdout == (
        f"no sessions in {line.location}\nnot looked at: namespaces a (--namespace NAME)\n"
    )
    assert line.json("verify")["namespaces"] == ["a"]
    assert line("--namespace", "a", "verify").stdout == "ok           mine  2 events, 1 blob\n"


def test_an_empty_namespace_is_told_by_name(line: Line) -> None:
    """A namespace without sessions is empty and is not made; no name is wrong usage."""
    result = line("--namespace", "a", "--namespace", "b", "ls")
    told, _ = result.stdout.splitlines()
    assert told == f"no sessions in namespace a / b of {line.location}"
    assert not line.location.exists()
    assert line("--namespace", "", "ls").exit_code == Exit.USAGE


# --- rm, trash, restore, forget -------------------------------------------------------------------


def test_rm_moves_to_the_trash(line: Line, store: perdure.Store) -> None:
    """Deleted sessions are in the trash, and both are told how they come back."""
    written(store, "a", "b", "c")
    result = line("rm", "a", "b", "a")
    assert result.exit_code == Exit.OK
    assert result.stdout == (
        "deleted a\ndeleted b\n`perdure restore ID` brings back what is in the trash\n"
    )
    rows = line.json("trash")["trash"]
    assert [row["id"] for row in rows] == ["a", "b"]
    assert line.json("rm", "c")["deleted"] == line.json("trash")["trash"][2:]
    assert line("trash").stdout.splitlines()[0].split() == ["DELETED", "(UTC)", "DIGEST", "ID"]
    error = line.error("show", "a")
    assert (error["exit"], error["facts"]["deleted_at"]) == (5, rows[0]["deleted_at"])
    assert "perdure restore" in error["hint"]
    assert line("rm", "a").exit_code == Exit.NOT_FOUND


@pytest.mark.parametrize("wrong", ["dead*", "*", "deadbeef", "deadbeef-?", "DEADBEEF-1", "none"])
def test_rm_takes_exact_ids_only(line: Line, store: perdure.Store, wrong: str) -> None:
    """A pattern, a beginning or an unknown id is not found, and then nothing at all is deleted."""
    written(store, "deadbeef-1", "deadbeef-2")
    result = line("rm", "deadbeef-1", wrong)
    told = line("rm", "deadbeef-1", wrong, "--json")
    assert json.loads(told.stdout) == {"deleted": []}
    assert (result.exit_code, result.stdout) == (Exit.NOT_FOUND, "")
    assert wrong in result.stderr
    assert ("patterns are not looked up" in result.stderr) == bool({"*", "?"} & set(wrong))
    assert listed(store) == ["deadbeef-1", "deadbeef-2"]
    assert store.trash() == []


def test_rm_leaves_a_session_that_is_written(line: Line, store: perdure.Store) -> None:
    """A busy session is named and stays, the others are deleted, and the command ends with 4."""
    written(store, "a", "b")
    with store.writer("a"):
        result = line("rm", "a", "b", "--json")
    assert result.exit_code == Exit.BUSY
    assert json.loads(result.stderr)["error"]["code"] == "session-busy"
    assert [row["id"] for row in json.loads(result.stdout)["deleted"]] == ["b"]
    assert listed(store) == ["a"]


def test_rm_deletes_what_is_damaged(line: Line, store: perdure.Store) -> None:
    """A session without a readable header, or behind a link, is deleted like any other."""
    written(store, "a", "b")
    line.log("a").write_bytes(b"noise\n")
    target = line.location.parent / "elsewhere"
    log = line.log("b")
    log.rename(target)
    log.symlink_to(target)
    assert line("rm", "a", "b").exit_code == Exit.OK
    assert listed(store) == []
    assert target.exists()


def test_the_trash_is_emptied_only_knowingly(line: Line, store: perdure.Store) -> None:
    """Where nobody can be asked, nothing is removed without --yes."""
    written(store, "a", "b")
    line("rm", "a", "b")
    result = line("trash", "--empty")
    assert result.exit_code == Exit.USAGE
    assert "--yes" in result.stderr
    assert len(store.trash()) == 2

    assert line.error("trash", "--empty", "--yes", "b", "none")["exit"] == Exit.NOT_FOUND
    assert len(store.trash()) == 2
    assert [row["id"] for row in line.json("trash", "--empty", "--yes", "b")["removed"]] == ["b"]
    assert line("trash", "--empty", "--yes").stdout.splitlines()[-1] == "removed 1 session"
    assert store.trash() == []
    result = line("trash", "--empty")
    assert result.exit_code == Exit.OK
    assert result.stdout == f"nothing to remove from the trash of {line.location}\n"


def test_the_trash_is_emptied_by_age(line: Line, store: perdure.Store) -> None:
    """With --older-than only what was deleted before is listed and removed."""
    written(store, "old", "new")
    store.delete("old")
    folder = next((line.location / "trash").glob("*/*"))
    folder.rename(folder.with_name("000001000000000-abc"))
    store.delete("new")
    chosen = ["trash", "--older-than", "30d"]
    assert [row["id"] for row in line.json(*chosen)["trash"]] == ["old"]
    assert [row["id"] for row in line.json(*chosen, "--empty", "--yes")["removed"]] == ["old"]
    assert [trashed.id for trashed in store.trash()] == ["new"]
    assert line.json("trash", "--older-than", "1h") == {"trash": []}


@pytest.mark.parametrize("age", ["30", "d", "1.5d", "-1d", "1w", "1 d", "", "\u0661d"])
def test_what_is_no_age_is_wrong_usage(line: Line, age: str) -> None:
    """An age is a whole number and d, h, m or s."""
    assert line("trash", "--older-than", age).exit_code == Exit.USAGE


def test_restore_brings_sessions_back(line: Line, store: perdure.Store) -> None:
    """What was deleted comes back whole; what is not in the trash is named."""
    written(store, "a", "b")
    before = line("log", "a", "--raw").stdout_bytes
    line("rm", "a", "b")
    result = line("restore", "a", "none", "b")
    assert (result.exit_code, result.stdout) == (Exit.NOT_FOUND, "restored a\nrestored b\n")
    assert line("log", "a", "--raw").stdout_bytes == before
    assert line.json("verify")["sound"] is True
    assert line.error("restore", "a")["code"] == "session-exists"
    line("rm", "a")
    assert line.json("restore", "a") == {"restored": ["a"]}


def test_forget_gives_an_id_free(line: Line, store: perdure.Store) -> None:
    """What is stored or in the trash is not forgotten; what is gone is."""
    written(store, "a")
    assert line("forget", "a").exit_code == Exit.USAGE
    line("rm", "a")
    assert line("forget", "a").exit_code == Exit.USAGE
    line("trash", "--empty", "--yes")
    with pytest.raises(perdure.errors.SessionExists):
        store.create("a")
    assert line.json("forget", "a") == {"forgotten": ["a"]}
    written(store, "a")


# --- verify, accept, show -------------------------------------------------------------------------


def test_verify_names_what_vanished(line: Line, store: perdure.Store) -> None:
    """A session that is gone though nobody deleted it is missing until it is forgotten."""
    written(store, "gone", "here", "deleted")
    folder = line.log("gone").parent
    store.delete("deleted")
    store.close()
    shutil.rmtree(folder)

    report = line.json("verify", ends=Exit.DAMAGE)
    assert report["sound"] is False
    assert {each["session"]: each["status"] for each in report["sessions"]} == {
        "gone": "missing",
        "here": "ok",
    }
    text = line("verify").stdout
    assert "missing      gone\n    its log is not there any more; events up to 1 were" in text
    assert "`perdure forget`" in text
    assert line.json("verify", "gone", ends=Exit.DAMAGE)["sessions"][0]["status"] == "missing"
    assert line("verify", "here").exit_code == Exit.OK
    error = line.error("accept", "gone", "--yes")
    assert (error["exit"], "events up to 1" in error["hint"]) == (5, True)
    line("forget", "gone")
    assert line.json("verify")["sound"] is True


def test_verify_reads_content(line: Line, store: perdure.Store) -> None:
    """Content whose bytes have another hash is damage; content that expired is none."""
    _, damaged = written(store, "a", "b")
    store.expire("a", keep_last=0)
    spoil(line, "b", damaged)
    report = line.json("verify", ends=Exit.DAMAGE)
    content = {each["session"]: each["content"] for each in report["sessions"]}
    nothing = {"count": 0, "bytes": 0, "damaged": [], "unreadable": None, "expired": 0}
    assert content["a"] == {**nothing, "expired": 1}
    assert content["b"] == {**nothing, "count": 1, "bytes": 12, "damaged": [damaged]}
    assert [each["sound"] for each in report["sessions"]] == [True, False]
    assert report["sound"] is False
    assert f"b  2 events, 1 blob\n    content {damaged} is damaged\n" in line("verify").stdout
    assert line("verify", "a").stdout == "ok           a  3 events, 1 blob expired\n"
    (line.log("a").parent / "blobs").chmod(0o755)
    result = line("verify", "a")
    assert result.exit_code == Exit.DAMAGE
    assert "its content cannot be listed" in result.stdout


def test_verify_says_how_far_it_is(
    line: Line, store: perdure.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the output goes elsewhere, a terminal shows progress, escaped, and is left clean."""
    written(store, "a", "b\x1b[2J")
    assert line("verify").stderr == ""

    def only_stderr(stream: Any) -> bool:
        return bool(stream.name == "<stderr>")

    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", only_stderr, raising=False)
    told = line("verify").stderr
    assert told.startswith("\r1 of 2: a\r")
    assert "2 of 2: b\\x1b[2J" in told
    assert "\x1b" not in told
    assert told.endswith(" \r")


def test_verify_says_how_far_it_is_in_a_session(
    line: Line, store: perdure.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a large session the number of verified events is told every few thousand."""
    monkeypatch.setattr("perdure.store.survey.PROGRESS_EVENTS", 3)
    with store.create("s") as session:
        session.append_many([{"type": "x", "data": [number]} for number in range(10)])
    told: list[int] = []
    assert store.verify("s", progress=told.append).sound
    assert told == [3, 6, 9]

    def only_stderr(stream: Any) -> bool:
        return bool(stream.name == "<stderr>")

    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", only_stderr, raising=False)
    assert "\r9 events verified, 1 of 1: s\r" in line("verify").stderr
    assert "\r9 events verified, s\r" in line("verify", "s").stderr
    left = line("verify", "s", "none").stderr
    assert left.rpartition("\r")[2].startswith("error: ")


def test_verify_tells_if_evidence_cannot_be_read(line: Line, store: perdure.Store) -> None:
    """Where nobody can know what is missing, verify says so and does not end well."""
    written(store, "a")
    store.close()
    assert line.json("verify")["evidence"] == {"unreadable": None, "set_aside": []}
    evidence = line.location / "evidence.sqlite"
    evidence.write_bytes(b"noise" * 1000)
    report = line.json("verify", ends=Exit.FAILED)
    assert (report["sound"], report["sessions"][0]["status"]) == (False, "ok")
    assert report["evidence"]["unreadable"]
    text = line("verify", "a")
    assert (text.exit_code, text.stdout.startswith("evidence     cannot be read: ")) == (1, True)

    line("archive", "a")
    report = line.json("verify")
    (aside,) = report["evidence"]["set_aside"]
    assert f"evidence     was damaged once: {aside}\n" in line("verify").stdout
    Path(aside).unlink()
    assert line.json("verify")["evidence"] == {"unreadable": None, "set_aside": []}


def test_accept_makes_an_older_copy_the_truth(line: Line, store: perdure.Store) -> None:
    """What a restored copy lacks is shown, and accepted only knowingly; then it goes on."""
    written(store, "s")
    go_back(line, store, "s")
    refused = line("archive", "s")
    assert refused.exit_code == Exit.DAMAGE
    report = line.json("verify", ends=Exit.DAMAGE)["sessions"][0]
    assert [problem["kind"] for problem in report["problems"]] == ["missing-tail"]
    assert [(each["kind"], each["record"]) for each in report["reports"]] == [("missing-tail", 2)]
    assert "    a writer was refused at " in line("verify").stdout

    asked = line("accept", "s")
    assert asked.exit_code == Exit.USAGE
    assert "events 2 to 2 were acknowledged and are missing" in asked.stdout
    assert line("verify").exit_code == Exit.DAMAGE
    accepted = line.json("accept", "s", "--yes")
    assert (accepted["session"], accepted["accepted"]) == ("s", True)
    assert [problem["kind"] for problem in accepted["problems"]] == ["missing-tail"]
    assert accepted["position"] == {"seq": 1, "hash": line.json("show", "s")["position"]["hash"]}
    report = line.json("verify")["sessions"][0]
    assert (report["status"], report["reports"]) == ("ok", [])
    assert line("archive", "s").exit_code == Exit.OK


def test_accept_of_a_whole_session_does_nothing(line: Line, store: perdure.Store) -> None:
    """Where nothing is missing nothing is asked and nothing is accepted."""
    written(store, "s")
    before = sorted(line.location.glob("sessions/**/*"))
    accepted = line.json("accept", "s")
    assert (accepted["accepted"], accepted["position"]["seq"]) == (False, 1)
    assert line("accept", "s").stdout.startswith("nothing that was acknowledged is missing\n")
    assert sorted(line.location.glob("sessions/**/*")) == before


def test_accept_refuses_what_does_not_hold_together(line: Line, store: perdure.Store) -> None:
    """A log with a broken record is damaged, whatever somebody accepts."""
    written(store, "s")
    log = line.log("s")
    log.write_bytes(log.read_bytes().replace(b'"type":"tool', b'"type":"toll', 1))
    assert line.error("accept", "s", "--yes")["code"] == "session-damaged"
    assert line("accept", "none").exit_code == Exit.NOT_FOUND


def test_show_counts_content(line: Line, store: perdure.Store) -> None:
    """How much content a session has is shown, and that it cannot be listed."""
    written(store, "s")
    assert line.json("show", "s")["content"] == {"count": 1, "bytes": 12}
    assert "content   1 blob, 12 bytes" in line("show", "s").stdout
    (line.log("s").parent / "blobs").chmod(0o755)
    result = line("show", "s", "--json")
    assert (result.exit_code, json.loads(result.stdout)["content"]) == (Exit.OK, None)
    assert "the content cannot be listed" in result.stderr


# --- compact, archive -----------------------------------------------------------------------------


def test_compact_makes_logs_smaller(line: Line) -> None:
    """Sessions take less room and read as before; the sizes are told."""
    with perdure.open(line.location) as store:
        for id in ("a", "b", "busy"):
            with store.create(id) as session:
                for number in range(20):
                    session.append("x", {"text": "the same text again " * 9, "number": number})
        before = line("log", "a", "--raw").stdout_bytes
        sizes = {id: line.log(id).stat().st_size for id in ("a", "b", "busy")}
        with store.writer("busy"):
            result = line("compact", "--all", "--json")
        assert result.exit_code == Exit.BUSY
        rows = {row["id"]: row for row in json.loads(result.stdout)["sessions"]}
        assert set(rows) == {"a", "b"}
        assert json.loads(result.stderr)["error"]["facts"]["session"] == "busy"
        for id, row in rows.items():
            assert row["before"] == sizes[id] > row["after"] == line.log(id).stat().st_size
    assert line("log", "a", "--raw").stdout_bytes == before
    text = line("compact", "busy", "none")
    assert text.exit_code == Exit.NOT_FOUND
    assert text.stdout == f"busy: {sizes['busy']} -> {line.log('busy').stat().st_size} bytes\n"
    assert line.json("verify")["sound"] is True


@pytest.mark.parametrize("command", [["compact"], ["expire", "--keep-last", "0"]])
def test_all_sessions_are_only_meant_if_said(line: Line, command: list[str]) -> None:
    """Without ids and without --all nothing is done, and both together are a contradiction."""
    assert line(*command).exit_code == Exit.USAGE
    assert line(*command, "--all", "s").exit_code == Exit.USAGE
    assert line(*command, "--all").exit_code == Exit.OK
    assert not line.location.exists()


def test_archiving_is_on_record(line: Line, store: perdure.Store) -> None:
    """Archiving and taking it back are events; a busy session is named and left out."""
    written(store, "a", "b")
    with store.writer("b"):
        result = line("archive", "a", "b")
    assert (result.exit_code, result.stdout) == (Exit.BUSY, "archived a\n")
    assert line.json("unarchive", "a") == {"unarchived": [{"id": "a", "seq": 3}]}
    kinds = [event.type for event in store.read_from("a", 2)]
    assert kinds == ["session/archived", "session/unarchived"]


# --- blob, expire ---------------------------------------------------------------------------------


def test_blob_lists_content(line: Line, store: perdure.Store) -> None:
    """Digest, size and age of the content are listed."""
    (digest,) = written(store, "s")
    (blob,) = store.blobs("s")
    body = line.json("blob", "s")
    assert body == {"session": "s", "blobs": [blob._asdict()]}
    cells = line("blob", "s").stdout.splitlines()[1].split()
    assert cells[:2] == [digest, "12"]
    with store.create("t") as session:
        session.append("x")
    assert line("blob", "t").stdout == "no content in t\n"
    assert line("blob", "none").exit_code == Exit.NOT_FOUND
    assert line("blob", "s", "--force").exit_code == Exit.USAGE


@pytest.mark.parametrize("value", [b"", bytes(range(256)), LARGE])
def test_blob_prints_the_exact_bytes(line: Line, store: perdure.Store, value: bytes) -> None:
    """What comes out is what was put, also of several MiB, on the output and in a file."""
    with store.create("s") as session:
        digest = session.put_blob(value)
        session.append("x", {"blob": digest})
    assert line("blob", "s", digest).stdout_bytes == value
    target = line.location.parent / "out"
    result = line("blob", "s", digest, "--output", str(target))
    assert (result.exit_code, result.stdout, target.read_bytes()) == (Exit.OK, "", value)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_blob_takes_the_place_of_no_file(line: Line, store: perdure.Store) -> None:
    """A file, a link and a folder that are there already stay as they are."""
    (digest,) = written(store, "s")
    folder = line.location.parent
    (folder / "file").write_text("mine")
    (folder / "link").symlink_to(folder / "nowhere")
    (folder / "folder").mkdir()
    for name in ("file", "link", "folder", "none/file", "folder/", ".."):
        error = line.error("blob", "s", digest, "--output", f"{folder}/{name}")
        assert error["exit"] == Exit.FAILED
    assert (folder / "file").read_text() == "mine"
    assert sorted(path.name for path in folder.iterdir()) == ["file", "folder", "link", "store"]
    body = line.json("blob", "s", digest, "--output", str(folder / "new"))
    assert body == {"session": "s", "digest": digest, "size": 12, "output": str(folder / "new")}


@pytest.mark.parametrize("value", [b"small", LARGE])
def test_blob_gives_nothing_of_damaged_content(
    line: Line, store: perdure.Store, value: bytes
) -> None:
    """Content with another hash is refused before its first byte, and no file stays."""
    with store.create("s") as session:
        digest = session.put_blob(value)
        session.append("x", {"blob": digest})
    spoil(line, "s", digest)
    target = line.location.parent / "out"
    for option in ([], ["--output", str(target)]):
        result = line("blob", "s", digest, *option)
        assert (result.exit_code, result.stdout_bytes) == (Exit.DAMAGE, b"")
        assert "is damaged" in result.stderr
    assert not target.exists()
    assert line.error("blob", "s", digest)["code"] == "content-damaged"


def test_a_file_for_content_is_whole_or_not_there(
    line: Line, store: perdure.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Content that turns out to be damaged while it is written leaves no file."""
    with store.create("s") as session:
        digest = session.put_blob(LARGE)
        session.append("x", {"blob": digest})
    spoil(line, "s", digest)
    monkeypatch.setattr("perdure.cli.commands.blob._check", lambda *_: len(LARGE))
    target = line.location.parent / "out"
    assert line("blob", "s", digest, "--output", str(target)).exit_code == Exit.DAMAGE
    assert not target.exists()


def test_blob_tells_expired_from_unknown(line: Line, store: perdure.Store) -> None:
    """Content that is not there ends the command with 5, what is no digest with 2."""
    (digest,) = written(store, "s")
    store.expire("s", keep_last=0)
    assert line.error("blob", "s", digest)["code"] == "content-expired"
    assert line("blob", "s", NOWHERE).exit_code == Exit.NOT_FOUND
    assert line("blob", "s", "beef").exit_code == Exit.USAGE


def test_expire_removes_what_satisfies_every_condition(line: Line, store: perdure.Store) -> None:
    """The options are the conditions of the store; what goes is told; a dry run removes none."""
    with store.create("s") as session:
        now = session.append("x").time
        old, user, new = (session.put_blob(name) for name in (b"old", b"user", b"new"))
        loose = session.put_blob(b"loose")
        session.append("tool/result", {"blob": old}, time=now - 2 * 86_400_000)
        session.append("user/message", {"blob": user}, time=now - 2 * 86_400_000)
        session.append("tool/result", {"blob": new})

    def would(*options: str) -> set[str]:
        body = line.json("expire", "s", "--dry-run", *options)
        assert (body["dry_run"], len(store.blobs("s"))) == (True, 4)
        (row,) = body["sessions"]
        assert [blob["digest"] for blob in row["unreferenced"]] == [loose]
        return {blob["digest"] for blob in row["expired"]}

    assert would() == set()
    assert would("--older-than", "1d") == would("--older-than", "86400s") == {old, user}
    assert would("--older-than", "3d") == would("--older-than", "72h") == set()
    assert would("--older-than", "1440m", "--kind", "tool/result") == {old}
    assert would("--kind", "tool/result", "--kind", "user/message") == {old, user, new}
    assert would("--keep-last", "1") == {old, user}

    shown = line("expire", "s", "--keep-last", "1", "--dry-run").stdout.splitlines()
    assert shown[0] == "s: would remove 3 of 4 blobs, 12 bytes; no event refers to 1 of them"
    assert len(shown) == 4
    done = line("expire", "s", "--keep-last", "1").stdout
    assert done == "s: removed 3 of 4 blobs, 12 bytes; no event refers to 1 of them\n"
    assert [blob.digest for blob in store.blobs("s")] == [new]


def test_expire_leaves_out_what_is_written(line: Line, store: perdure.Store) -> None:
    """A busy session is named and skipped, and the command ends with 4."""
    written(store, "a", "b")
    with store.writer("a"):
        result = line("expire", "--all", "--keep-last", "0")
    assert (result.exit_code, len(result.stdout.splitlines())) == (Exit.BUSY, 1)
    assert result.stdout.startswith("b: removed 1 of 1 blob, ")
    assert len(store.blobs("a")) == 1


# --- completion -----------------------------------------------------------------------------------


def completed(line: Line, *words: str) -> list[str]:
    """What a shell is offered behind the last of these words."""
    given = ["perdure", "--store", str(line.location), *words]
    environment = {
        "_PERDURE_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(given),
        "COMP_CWORD": str(len(given) - 1),
    }
    result = CliRunner().invoke(cli, [], prog_name="perdure", env=environment)
    assert (result.exit_code, result.stderr) == (0, "")
    return sorted(text.removeprefix("plain,") for text in result.stdout.split())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(line: Line, shell: str) -> None:
    """The script for a shell calls the command back, and is the same in JSON."""
    text = line("completion", shell).stdout
    assert "_PERDURE_COMPLETE" in text
    assert line.json("completion", shell) == {"shell": shell, "script": text.removesuffix("\n")}
    assert line("completion", "csh").exit_code == Exit.USAGE
    assert not line.location.exists()


def test_completion_offers_what_is_stored(line: Line, store: perdure.Store) -> None:
    """Ids, deleted ids, missing ids, namespaces, digests and commands are completed."""
    digests = written(store, "ab", "ac", "b", "gone")
    written(store.namespace("n1"), "inner")
    written(store.namespace("n1", "n2"), "innermost")
    folder = line.log("gone").parent
    store.delete("b")
    store.close()
    shutil.rmtree(folder)

    assert completed(line, "show", "") == ["ab", "ac"]
    assert completed(line, "rm", "ab", "ac") == ["ac"]
    assert completed(line, "restore", "") == completed(line, "trash", "") == ["b"]
    assert completed(line, "forget", "") == ["gone"]
    assert completed(line, "blob", "ab", "") == [digests[0]]
    assert completed(line, "--namespace", "") == ["n1"]
    assert completed(line, "--namespace", "n1", "--namespace", "") == ["n2"]
    assert completed(line, "--namespace", "n1", "verify", "") == ["inner"]
    assert completed(line, "un") == ["unarchive"]


def test_completion_is_quiet_and_makes_nothing(line: Line) -> None:
    """Where nothing can be found there is nothing to offer, and no store appears."""
    assert completed(line, "show", "") == completed(line, "--namespace", "") == []
    assert completed(line, "blob", "none", "") == []
    assert not line.location.exists()
    line.location.write_text("no folder")
    assert completed(line, "show", "") == completed(line, "forget", "") == []
    assert completed(line, "--store", "gopher:x", "show", "") == []


def test_completion_offers_nothing_that_a_shell_obeys(line: Line, store: perdure.Store) -> None:
    """An id that would be expanded, executed or taken for an option is not put before a user."""
    harmless = ["a", "A-1:b_c.d/e@f"]
    hostile = ["$(reboot)", "`x`", "a b", "*", "~", "a;b", "x\ny", "-rf", "'", "\x1b[31m", "é"]
    for id in (*harmless, *hostile):
        written(store, id)
        written(store.namespace(id), "s")
    assert completed(line, "rm", "") == completed(line, "--namespace", "") == sorted(harmless)


# --- what they share ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "ends"),
    [
        (["rm", "x"], Exit.NOT_FOUND),
        (["trash"], Exit.OK),
        (["trash", "--empty", "--yes"], Exit.OK),
        (["restore", "x"], Exit.NOT_FOUND),
        (["forget", "x"], Exit.NOT_FOUND),
        (["accept", "x", "--yes"], Exit.NOT_FOUND),
        (["compact", "x"], Exit.NOT_FOUND),
        (["compact", "--all"], Exit.OK),
        (["blob", "x"], Exit.NOT_FOUND),
        (["blob", "x", NOWHERE], Exit.NOT_FOUND),
        (["expire", "x"], Exit.NOT_FOUND),
        (["archive", "x"], Exit.NOT_FOUND),
        (["unarchive", "x"], Exit.NOT_FOUND),
    ],
)
def test_a_store_that_is_not_there_stays_away(line: Line, command: list[str], ends: Exit) -> None:
    """No command makes a store; what it would need there is not found."""
    assert line(*command).exit_code == ends
    assert not line.location.exists()
    if ends is Exit.NOT_FOUND:
        assert line.error(*command)["code"] == "session-not-found"


def test_without_persistence_nothing_is_kept() -> None:
    """Commands for sessions are wrong usage where persistence is switched off."""
    for arguments in (["rm", "x"], ["restore", "x"], ["compact", "x"], ["blob", "x", NOWHERE]):
        result = CliRunner().invoke(cli, ["--store", "none:", *arguments])
        assert result.exit_code == Exit.USAGE
    assert CliRunner().invoke(cli, ["--store", "none:", "trash"]).exit_code == Exit.OK


def test_the_gravest_of_several_ends_decides() -> None:
    """Damage comes before all others, and a busy session, which passes, last."""
    assert worst([]) == worst([Exit.OK]) == Exit.OK
    assert worst([Exit.OK, Exit.BUSY]) == Exit.BUSY
    assert worst([Exit.NOT_FOUND, Exit.BUSY, Exit.OK]) == Exit.NOT_FOUND
    assert worst([Exit.NOT_FOUND, Exit.FAILED]) == Exit.FAILED
    assert worst([Exit.OK, Exit.FAILED, Exit.DAMAGE, Exit.USAGE]) == Exit.DAMAGE


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [(-5, "0s"), (119_999, "119s"), (120_000, "2m"), (7_200_000, "2h"), (2 * 86_400_000, "2d")],
)
def test_ages_are_short(milliseconds: int, shown: str) -> None:
    """An age is shown in the largest unit of which it has two."""
    assert output.span(milliseconds) == shown
