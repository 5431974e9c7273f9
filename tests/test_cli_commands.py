"""What each command prints, for people and for programs, and what it ends with."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import perdure
from perdure.cli.exits import Exit
from perdure.cli.main import COMMANDS, cli
from tests.command_line import Line
from tests.sources import FOLDERS, FORMAT, HEADER, SAMPLES, TORN, record

CALL = {"id": "c1", "name": "bash", "arguments": {"cmd": "make"}}


@pytest.fixture
def store(line: Line) -> Iterator[perdure.Store]:
    with perdure.open(line.location, encoding="raw") as opened:
        yield opened


@pytest.fixture
def session(store: perdure.Store) -> str:
    """A session with a complete turn."""
    with store.create("done", cwd="/srv/a", created_at=1_700_000_000_000) as writer:
        writer.append("turn/start", {}, turn="t", time=1)
        writer.append("user/message", {"content": []}, turn="t", agent="a", time=2)
        writer.append("turn/end", {"reason": "completed"}, turn="t", key="k", time=3)
    return "done"


@pytest.fixture
def interrupted(store: perdure.Store) -> str:
    """A session whose writer ended in a tool call."""
    with store.create("cut", created_at=1_800_000_000_000) as writer:
        writer.append("turn/start", {}, turn="t", time=1)
        writer.append("assistant/message", {"content": [{"type": "tool-call", **CALL}]}, turn="t")
        writer.append("tool/call", CALL, turn="t", time=9)
    return "cut"


def damage(line: Line, session: str) -> None:
    """Change one letter inside the second record of a session."""
    log = line.log(session)
    lines = log.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b'"type":"', b'"type":"x', 1)
    log.write_bytes(b"".join(lines))


# --- ls -------------------------------------------------------------------------------------------


def test_ls_lists_the_newest_first(line: Line, session: str, interrupted: str) -> None:
    """A row of the listing says what a session is, and how it stands."""
    found = line.json("ls")
    assert found["coverage"] == {"sessions": 2, "indexed": 2, "skipped": 0, "reasons": []}
    rows = {row["id"]: row for row in found["sessions"]}
    assert {id: row["status"] for id, row in rows.items()} == {
        session: "paused",
        interrupted: "crashed",
    }
    known = {
        "created": 1_700_000_000_000,
        "events": 3,
        "size": line.log(session).stat().st_size,
        "cwd": "/srv/a",
        "program": "perdure",
        "relation": None,
        "problem": None,
    }
    assert {name: rows[session][name] for name in known} == known
    times = [row["last_active"] for row in found["sessions"]]
    assert times == sorted(times, reverse=True)
    text = line("ls").stdout.splitlines()
    assert text[0].split() == ["STATUS", "LAST", "EVENT", "PROGRAM", "TITLE", "ID"]
    assert {words.split()[-1] for words in text[1:]} == {session, interrupted}


def test_ls_lists_damaged_sessions_with_their_reason(
    line: Line, session: str, interrupted: str
) -> None:
    """A session whose header is broken hides no other and says what is wrong."""
    log = line.log(interrupted)
    log.write_bytes(log.read_bytes().replace(b'"format":0', b'"format":1', 1))
    rows = {row["id"]: row for row in line.json("ls")["sessions"]}
    assert rows[session]["status"] == "paused"
    assert rows[interrupted]["status"] == "damaged"
    assert rows[interrupted]["problem"] == "digest does not match"
    assert "(digest does not match)" in line("ls").stdout


def test_ls_shows_who_writes(line: Line, session: str, store: perdure.Store) -> None:
    """A session that somebody writes is running, and listing it waits for nobody."""
    with store.writer(session):
        assert line.json("ls")["sessions"][0]["status"] == "running"


@pytest.mark.parametrize("command", [["ls"], ["verify"]])
def test_reading_commands_create_nothing(line: Line, command: list[str]) -> None:
    """A store that does not exist is an empty one, and stays away."""
    result = line(*command)
    assert (result.exit_code, line.location.exists()) == (0, False)
    told, *hint = result.stdout.splitlines()
    assert told == f"no sessions in {line.location}"
    assert any("perdure sync" in text for text in hint) == (command == ["ls"])
    assert line.json(*command)["sessions"] == []


@pytest.mark.parametrize(
    "command", [["show", "x"], ["log", "x"], ["log", "x", "--raw"], ["verify", "x"]]
)
def test_unknown_session_is_not_found(line: Line, command: list[str]) -> None:
    """A session that is not there ends a command with 5, and no store appears."""
    result = line(*command)
    assert (result.exit_code, result.stdout) == (Exit.NOT_FOUND, "")
    assert result.stderr == (
        "error: no session 'x' in this store\n"
        "hint: list the sessions with store.list() or `perdure ls`\n"
    )
    assert line.error(*command) == {
        "code": "session-not-found",
        "message": "no session 'x' in this store",
        "hint": "list the sessions with store.list() or `perdure ls`",
        "retryable": False,
        "exit": 5,
        "facts": {"session": "x", "deleted_at": None, "missing": None},
    }
    assert not line.location.exists()


# --- show -----------------------------------------------------------------------------------------


def test_show_tells_what_a_session_is(line: Line, session: str, store: perdure.Store) -> None:
    """Header, end and counts of a session are shown."""
    shown = line.json("show", session)
    position = store.inspect(session).position
    assert position is not None
    assert shown["header"]["cwd"] == "/srv/a"
    assert shown == {
        "session": "done",
        "status": "complete",
        "header": shown["header"],
        "position": {"seq": 2, "hash": position.hash},
        "holder": None,
        "counts": {"turn/end": 1, "turn/start": 1, "user/message": 1},
        "content": {"count": 0, "bytes": 0},
        "import": None,
        "closers": [],
        "problems": [],
        "later": 0,
    }
    assert "2023-11-14 22:13:20 UTC" in line("show", session).stdout


def test_show_tells_how_a_turn_would_be_closed(line: Line, interrupted: str) -> None:
    """Closers are shown and not written; what is counted is what is stored."""
    before = line.log(interrupted).read_bytes()
    shown = line.json("show", interrupted)
    assert [(event["seq"], event["type"]) for event in shown["closers"]] == [
        (3, "tool/result"),
        (4, "turn/end"),
    ]
    assert sum(shown["counts"].values()) == 3
    assert "tool/result  TOOL_OUTCOME_UNKNOWN" in line("show", interrupted).stdout
    assert line.log(interrupted).read_bytes() == before


def test_show_names_damage(line: Line, session: str) -> None:
    """Damage is shown with its place, what is in front of it too, and the command ends with 3."""
    damage(line, session)
    shown = line.json("show", session, ends=Exit.DAMAGE)
    assert (shown["status"], shown["position"]["seq"], shown["later"]) == ("damaged", 0, 1)
    assert [problem["kind"] for problem in shown["problems"]] == ["record"]
    assert "checksum does not match" in line("show", session).stdout


def test_show_takes_a_torn_tail_for_no_damage(line: Line, session: str) -> None:
    """Bytes behind the acknowledged end are the trace of a crash, not damage."""
    with line.log(session).open("ab") as file:
        file.write(b'{"seq":3,"prev":"')
    shown = line.json("show", session)
    assert (shown["status"], shown["position"]["seq"]) == ("torn", 2)
    assert [problem["record"] for problem in shown["problems"]] == [3]
    assert "at event 3" in line("show", session).stdout


def test_show_names_the_writer(line: Line, session: str, store: perdure.Store) -> None:
    """A session that is being written says by whom."""
    with store.writer(session):
        assert set(line.json("show", session)["holder"]) == {"pid", "host", "since"}
        assert "written by pid" in line("show", session).stdout


# --- log ------------------------------------------------------------------------------------------


def test_log_prints_events(line: Line, session: str) -> None:
    """Events are printed one a line, from where and as many as asked."""
    result = line("log", session, "--json")
    events = [json.loads(text) for text in result.stdout.splitlines()]
    assert events[0] == {"seq": 0, "type": "turn/start", "time": 1, "turn": "t", "data": {}}
    assert [event["seq"] for event in events] == [0, 1, 2]
    assert line("log", session).stdout.splitlines()[1] == (
        '     1  1970-01-01 00:00:00  user/message  agent=a  turn=t  {"content":[]}'
    )
    part = line("log", session, "--from", "1", "--limit", "1", "--json").stdout
    assert json.loads(part)["seq"] == 1
    assert line("log", session, "--from", "9").stdout == ""


@pytest.mark.parametrize("encoding", ["raw", "zst"])
def test_log_raw_prints_the_stored_bytes(line: Line, encoding: str) -> None:
    """The raw log is header and record lines, byte for byte, in every encoding."""
    with perdure.open(line.location, encoding=encoding) as store, store.create("s") as writer:
        writer.append("a", "\ud800 \x1b ü")
        writer.append_many([{"type": "b", "data": {"text": str(n)}} for n in range(5)])
    whole = line("log", "s", "--raw").stdout_bytes
    if encoding == "raw":
        assert whole == line.log("s").read_bytes()
    header, first, run = whole.splitlines(keepends=True)
    assert json.loads(header)["id"] == "s"
    assert line("log", "s", "--raw", "--from", "3").stdout_bytes == run
    assert line("log", "s", "--raw", "--limit", "2").stdout_bytes == header + first


def test_log_stops_where_damage_begins(line: Line, session: str) -> None:
    """What is in front of damage is printed, then the error, and the command ends with 3."""
    damage(line, session)
    result = line("log", session)
    assert (result.exit_code, len(result.stdout.splitlines())) == (Exit.DAMAGE, 1)
    assert "is damaged: checksum does not match" in result.stderr
    assert line.error("log", session)["code"] == "session-damaged"


def test_log_raw_prints_damaged_lines_too(line: Line, session: str) -> None:
    """The raw log shows what is stored, whether or not it holds together."""
    damage(line, session)
    assert line("log", session, "--raw").stdout_bytes == line.log(session).read_bytes()


@pytest.mark.parametrize("encoding", ["raw", "zst"])
def test_log_raw_shows_a_broken_header(line: Line, encoding: str) -> None:
    """Where the header is broken, what stands there is shown or named, and the records follow."""
    with perdure.open(line.location, encoding=encoding) as store, store.create("s") as writer:
        writer.append("a")
    log = bytearray(line.log("s").read_bytes())
    log[12] ^= 0x02
    line.log("s").write_bytes(log)
    result = line("log", "s", "--raw")
    assert result.exit_code == (Exit.OK if encoding == "raw" else Exit.DAMAGE)
    assert b'"type":"a"' in result.stdout_bytes.splitlines()[-1]
    assert line("log", "s").exit_code == Exit.DAMAGE


def test_log_raw_names_frames_that_hold_no_lines(line: Line) -> None:
    """A frame that cannot be decoded is named beside the output, and the rest is printed."""
    with perdure.open(line.location) as store, store.create("s") as writer:
        first = writer.append("a", "x" * 50)
        start = line.log("s").stat().st_size
        writer.append("b", "y" * 50)
        writer.append("c", "z" * 50)
    log = bytearray(line.log("s").read_bytes())
    log[start + 12] ^= 0xFF
    line.log("s").write_bytes(log)
    result = line("log", "s", "--raw")
    assert result.exit_code == Exit.DAMAGE
    assert [json.loads(text).get("type") for text in result.stdout.splitlines()] == [
        None,
        first.type,
        "c",
    ]
    assert f"bytes {start} to" in result.stderr


# --- verify ---------------------------------------------------------------------------------------


def test_verify_reports_every_session(line: Line, session: str, interrupted: str) -> None:
    """All sessions are verified by default, one line each; interrupted ones are sound."""
    report = line.json("verify")
    assert report["sound"] is True
    assert [(each["session"], each["status"], each["closers"]) for each in report["sessions"]] == [
        (interrupted, "interrupted", 2),
        (session, "ok", 0),
    ]
    text = line("verify").stdout.splitlines()
    assert text[1] == "ok           done  3 events"
    assert line("verify", session).stdout.splitlines() == text[1:]


def test_verify_tells_of_a_torn_tail(
    line: Line, session: str, interrupted: str, store: perdure.Store
) -> None:
    """A torn tail is told beside whatever else the status says, and is no damage."""
    for name, status in ((session, "torn"), (interrupted, "interrupted")):
        assert line.json("verify", name)["sessions"][0]["torn"] is False
        with line.log(name).open("ab") as file:
            file.write(b'{"seq":3,"prev":"')
        [report] = line.json("verify", name)["sessions"]
        assert (report["status"], report["torn"], report["sound"]) == (status, True, True)
    assert "interrupted  cut  3 events, torn tail, 2 to be added" in line("verify").stdout
    assert store.verify(interrupted).torn
    with store.writer(interrupted):
        report = store.verify(interrupted)
        assert (report.status, report.torn) == ("running", False)
    assert not store.verify(interrupted).torn


def test_verify_ends_with_3_on_damage(line: Line, session: str, interrupted: str) -> None:
    """One damaged session is named with its reason and decides how the command ends."""
    damage(line, session)
    result = line("verify")
    assert result.exit_code == Exit.DAMAGE
    assert "damaged      done  1 event, 1 intact one behind the damage" in result.stdout
    assert "record at event 1, bytes " in result.stdout
    assert "checksum does not match" in result.stdout
    assert line("verify", interrupted).exit_code == Exit.OK
    assert line.json("verify", ends=Exit.DAMAGE)["sound"] is False


def test_verify_sees_a_session_without_a_header(
    line: Line, session: str, store: perdure.Store
) -> None:
    """A session whose header is lost is verified under the id that its folder's name tells."""
    with store.create("Odd/Name") as writer:
        writer.append("a")
    log = line.log("Odd/Name")
    log.write_bytes(log.read_bytes().replace(b'"id"', b'"ix"', 1))
    report = line.json("verify", ends=Exit.DAMAGE)
    assert {each["session"]: each["status"] for each in report["sessions"]} == {
        session: "ok",
        "Odd/Name": "damaged",
    }


def test_verify_goes_on_behind_an_unknown_session(line: Line, session: str) -> None:
    """A session that is not found keeps no other from being verified."""
    result = line("verify", "none", session)
    assert result.exit_code == Exit.NOT_FOUND
    assert result.stdout == "ok           done  3 events\n"


# --- import ---------------------------------------------------------------------------------------


def test_import_reports_what_it_did(line: Line) -> None:
    """The samples go in; importing again finds them unchanged."""
    report = line.json("import", FORMAT, *map(str, FOLDERS))
    assert (len(report["sources"]), report["problem_count"]) == (len(SAMPLES), 1)
    assert report["found"] == report["new"] == 1426
    assert report["states"] == {"new": len(SAMPLES)}
    assert {"path", "format", "session", "state", "found", "new", "unchanged", "large"} < set(
        report["sources"][0]
    )
    text = line("import", FORMAT, *map(str, FOLDERS)).stdout
    assert text.endswith("20 files: 20 unchanged\n1426 lines, 0 new, 1 problem\n")
    assert f"{TORN}:182, byte 89081: the compressed frame at byte 29646" in text
    assert len(line.json("ls")["sessions"]) == len(SAMPLES)


def test_import_ends_with_1_if_a_file_fails(line: Line, tmp_path: Path) -> None:
    """A file that fails is named and decides how the command ends; the others go in."""
    good = tmp_path / "good.jsonl"
    good.write_bytes(HEADER + record("a", 1))
    result = line("import", FORMAT, str(tmp_path / "none"), str(good))
    assert result.exit_code == Exit.FAILED
    assert f"error: {tmp_path / 'none'}: No such file or directory" in result.stdout
    assert f"new        {good}\n    2 lines in deepseek-harness:s-1:" in result.stdout
    assert result.stdout.endswith("2 files: 1 new, 1 failed\n2 lines, 2 new\n")


def test_import_knows_its_formats(line: Line) -> None:
    """A format that is not known is wrong usage."""
    result = line("import", "nothing", "x")
    assert result.exit_code == Exit.USAGE
    for name in ("claude-code", "codex", "deepseek-harness", "bundle"):
        assert name in result.stderr


# --- every command --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_takes_json_and_explains_it(line: Line, name: str) -> None:
    """Every command has --json, and its help says what it prints then."""
    text = line(name, "--help").stdout
    assert "--json" in text
    assert "JSON: " in text


def test_wrong_usage_ends_with_2(line: Line) -> None:
    """A missing argument, an unknown option and an unknown command are wrong usage."""
    for arguments in (["show"], ["ls", "--nope"], ["nope"], []):
        assert line(*arguments).exit_code == Exit.USAGE
    assert line.error("show")["code"] == "usage"


@pytest.mark.parametrize("option", ["--store", "--namespace"])
def test_an_option_behind_the_command_is_told_its_place(option: str) -> None:
    """Whoever writes --store last is told where it stands, not of another option."""
    result = CliRunner().invoke(cli, ["ls", option, "x"])
    assert result.exit_code == Exit.USAGE
    assert result.stderr == (
        f"error: {option} stands before the command\nhint: perdure {option} … ls …\n"
    )


def test_damaged_store_is_refused(line: Line) -> None:
    """A folder that is no private store is refused with what to do."""
    line.location.mkdir(mode=0o755)
    line.location.chmod(0o755)
    error = line.error("ls")
    assert (error["code"], error["exit"]) == ("unsafe-file", 1)
    assert "mode 700" in error["hint"]


def test_unknown_kind_of_store_is_wrong_usage() -> None:
    """A URL of no known backend is wrong usage; persistence that is off is, too."""
    for location, arguments in (("gopher:x", ["ls"]), ("none:", ["show", "x"])):
        result = CliRunner().invoke(cli, ["--store", location, *arguments])
        assert result.exit_code == Exit.USAGE


def test_environment_names_the_store(line: Line, session: str) -> None:
    """Without --store the environment says where the store is."""
    result = CliRunner().invoke(cli, ["ls"], env={"PERDURE_STORE": str(line.location)})
    assert session in result.stdout


# --- what is done where the store is --------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["token", "ls"], "token"),
        (["sync"], "sync"),
        (["serve"], "serve"),
        (["copy", "URL", "there"], "copy"),
        (["copy", "here", "URL"], "copy"),
    ],
    ids=str,
)
def test_what_is_not_done_over_http_says_so(
    words: list[str], named: str, line: Line, tmp_path: Path
) -> None:
    """A command that has to be called where the store is says this of itself, and asks nobody."""
    url = "http://127.0.0.1:1"
    places = {"URL": url, "here": str(line.location), "there": str(tmp_path / "there")}
    with perdure.open(line.location) as store:
        store.create("s").append("x", 1)
    result = CliRunner().invoke(cli, ["--store", url, *(places.get(each, each) for each in words)])
    assert result.exit_code != Exit.OK
    assert f"{named} is not offered over HTTP" in result.stderr
    assert "on the machine of the store" in result.stderr
