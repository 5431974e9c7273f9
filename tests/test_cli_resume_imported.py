"""`perdure resume` of imports: the command of their own agent, and what has to be there for it."""

import json
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.cli.exits import Exit
from perdure.errors import InvalidValue, StorageUnavailable, WorkspaceMissing
from perdure.importers import import_sessions, sync
from perdure.importers.taking_up import Surroundings, agent_of, taking_up
from perdure.runtime import Runtime
from tests.command_line import Line
from tests.homes import CHILD, PARENT, THREAD, WORKPLACE, Home


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    made = Home(tmp_path / "home", monkeypatch)
    made.fill()
    made.install("claude", "codex")
    return made


@pytest.fixture
def store(line: Line) -> Iterator[perdure.Store]:
    with perdure.open(line.location) as opened:
        yield opened


@pytest.fixture
def ids(store: perdure.Store, home: Home) -> dict[str, str]:
    """The sessions of the home, by what their files are called there."""
    by_path = {source.path: str(source.session) for source in sync(store, [home.folder]).sources}
    names = ("parent", "child", "rollout", "harness")
    return {name: by_path[str(getattr(home, name))] for name in names}


class Other(Surroundings):
    """A machine that has just what a test says."""

    def __init__(self, *there: str, machine: str = "elsewhere") -> None:
        super().__init__()
        self._there = there
        self._machine = machine

    def machine(self) -> str:
        return self._machine

    def is_folder(self, path: str) -> bool:
        return path in self._there

    def is_file(self, path: str) -> bool:
        return path in self._there

    def which(self, program: str) -> str | None:
        return f"/bin/{program}" if program in self._there else None


def missing(line: Line, *arguments: str) -> tuple[Any, list[dict[str, Any]]]:
    """What a resume that lacks something says to programs: its document, and its errors."""
    result = line("resume", *arguments, "--json")
    assert result.exit_code == Exit.FAILED
    errors = [json.loads(text)["error"] for text in result.stderr.splitlines()]
    return json.loads(result.stdout), errors


def test_resume_prints_the_command_of_the_agent(line: Line, ids: dict[str, str]) -> None:
    """Of an import it is the command of the agent that wrote it, in the folder where it began."""
    shown = line("resume", ids["parent"])
    assert (shown.exit_code, shown.stderr) == (Exit.OK, "")
    assert shown.stdout == f"cd /tmp && claude --resume {PARENT}\n"
    found = line.json("resume", ids["parent"])
    assert (found["session"], found["agent"]) == (ids["parent"], "Claude Code")
    assert (found["command"], found["cwd"]) == (["claude", "--resume", PARENT], WORKPLACE)
    assert [(check["what"], check["holds"]) for check in found["checks"]] == [
        ("folder", True),
        ("source", True),
        ("program", True),
    ]


def test_resume_of_a_subagent_leads_to_its_parent(line: Line, ids: dict[str, str]) -> None:
    """A sub-agent cannot be taken up: the command of the session that it belongs to is printed."""
    shown = line("resume", ids["child"])
    assert shown.stdout == f"cd /tmp && claude --resume {PARENT}\n"
    assert shown.stderr == (
        f"a sub-agent: this takes up the session that it belongs to, {ids['parent']}\n"
    )
    assert line.json("resume", ids["child"])["of"] == ids["parent"]


def test_resume_quotes_what_a_shell_would_take_apart(
    line: Line, home: Home, ids: dict[str, str], tmp_path: Path
) -> None:
    """A folder of any name comes through a shell in one piece."""
    assert home.rollout.exists()
    folder = tmp_path / "it's $HOME; rm"
    folder.mkdir()
    shown = line("resume", ids["rollout"], "--cwd", str(folder)).stdout
    assert shlex.split(shown) == ["cd", str(folder), "&&", "codex", "resume", THREAD]


def test_a_folder_that_is_missing_is_named(line: Line, ids: dict[str, str]) -> None:
    """Without its folder nothing is printed for a shell, and --cwd says where it is now."""
    shown = line("resume", ids["rollout"])
    assert (shown.exit_code, shown.stdout) == (Exit.FAILED, "")
    assert "error: the working directory '/tmp/large' of session" in shown.stderr
    assert f"`perdure resume {ids['rollout']} --cwd PATH`" in shown.stderr
    found, errors = missing(line, ids["rollout"])
    assert [error["code"] for error in errors] == ["workspace-missing"]
    assert [check["what"] for check in found["checks"] if not check["holds"]] == ["folder"]
    moved = line("resume", ids["rollout"], "--cwd", WORKPLACE)
    assert moved.stdout == f"cd /tmp && codex resume {THREAD}\n"
    assert moved.stderr == ""


def test_a_source_that_is_gone_is_named(line: Line, home: Home, ids: dict[str, str]) -> None:
    """Without its file its agent does not know a session; an export puts it back."""
    text = home.parent.read_bytes()
    home.parent.unlink()
    shown = line("resume", ids["parent"])
    assert (shown.exit_code, shown.stdout) == (Exit.FAILED, "")
    assert f"error: {home.parent}: the source is gone" in shown.stderr
    command = f"perdure export {ids['parent']} {home.parent} --format source --with-files"
    assert f"`{command}` writes it anew" in shown.stderr
    assert f"`perdure fork {ids['parent']}`" in shown.stderr
    assert line(*shlex.split(command)[1:]).exit_code == Exit.OK
    assert home.parent.read_bytes() == text
    assert line("resume", ids["parent"]).exit_code == Exit.OK


def test_what_lay_beside_a_source_comes_back_with_it(
    line: Line, home: Home, store: perdure.Store
) -> None:
    """The command that is named brings back all that belonged to a session: outputs, sub-agents."""
    outputs = home.parent.with_suffix("") / "tool-results"
    outputs.mkdir()
    (outputs / "big.txt").write_bytes(b"much")
    report = sync(store, [home.folder])
    (parent,) = (one.session for one in report.sources if one.path == str(home.parent))
    folder = home.parent.parent
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert len(before) == 4
    shutil.rmtree(folder)
    folder.mkdir()
    hint = line("resume", str(parent)).stderr
    command = hint.partition("hint: `perdure ")[2].partition("`")[0]
    told = line.json(*shlex.split(command))
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert len(told["written"]) == 3
    assert line("resume", str(parent)).exit_code == Exit.OK
    assert set(sync(store, [home.folder]).states) == {"unchanged"}


def test_a_session_without_belongings_is_brought_back_alone(
    line: Line, home: Home, ids: dict[str, str]
) -> None:
    """Where nothing lay beside a source, the command that is named asks for nothing besides."""
    home.rollout.unlink()
    hint = line("resume", ids["rollout"], "--cwd", WORKPLACE).stderr
    assert f"{ids['rollout']} {home.rollout} --format source` writes it anew" in hint


REPLACED = {
    "another session": (
        lambda text: text.replace(PARENT.encode(), CHILD[:8].encode() + PARENT[8:].encode()),
        "the file holds another session now",
    ),
    "another agent's": (
        lambda _: b'{"type":"session_meta","payload":{"id":"x"}}\n',
        "the file holds a session of Codex now",
    ),
    "nothing": (lambda _: b"", "the file is empty"),
}


@pytest.mark.parametrize(("change", "reason"), REPLACED.values(), ids=REPLACED)
@pytest.mark.parametrize("synced", [False, True])
def test_a_file_that_holds_another_session_is_not_that_of_the_first(
    line: Line,
    home: Home,
    store: perdure.Store,
    ids: dict[str, str],
    *,
    change: Callable[[bytes], bytes],
    reason: str,
    synced: bool,
) -> None:
    """That something is at the path of a source does not make it that session's file.

    So it is before and behind the sync that finds it, and until the session's own text is back.
    """
    text = home.parent.read_bytes()
    home.parent.write_bytes(change(text))
    if synced:
        sync(store, [home.folder])
    for id in (ids["parent"], ids["child"]):
        shown = line("resume", id)
        assert (shown.exit_code, shown.stdout) == (Exit.FAILED, "")
        assert f"error: {home.parent}: {reason}, so Claude Code does not know" in shown.stderr
        assert "hint: move what is there away; then `perdure export" in shown.stderr
    home.parent.write_bytes(text + text.splitlines(keepends=True)[-1])
    assert line("resume", ids["parent"]).exit_code == Exit.OK
    # A first line that says nothing, and an id that comes later, are no other session.
    home.parent.write_bytes(b"noise\n" + text.partition(b"\n")[2])
    assert line("resume", ids["parent"]).exit_code == Exit.OK


def test_a_file_that_cannot_be_looked_at_is_not_called_gone(
    store: perdure.Store, home: Home, ids: dict[str, str]
) -> None:
    """A link that leads to the file, and a machine that is another, leave it where it is."""
    away = home.folder / "away.jsonl"
    home.parent.rename(away)
    home.parent.symlink_to(away)
    around = Other(WORKPLACE, str(home.parent), "claude")
    assert taking_up(store, ids["parent"], around=around).missing == []
    named = home.folder / "odd.jsonl"
    named.write_bytes(b'{"odd":1}\n')
    (report,) = import_sessions(store, "claude-code", [named]).sources
    header = store.inspect(str(report.session)).header
    assert header is not None
    assert Surroundings().lacks(store, header) is None
    assert Other(machine="n").lacks(store, header) is None


def test_a_file_whose_id_came_later_is_still_that_of_its_session(
    store: perdure.Store, tmp_path: Path
) -> None:
    """A file that begins with another session's lines, and turns out to go on, is one file."""
    path = tmp_path / f"{PARENT}.jsonl"
    record = '{"type":"user","uuid":"u%d","sessionId":"%s","message":{"content":"x"}}\n'
    path.write_text(record % (1, "other"))
    (first,) = sync(store, [path]).sources
    header = store.inspect(str(first.session)).header
    assert header is not None
    path.write_text(record % (1, "other") + record % (2, PARENT))
    assert Surroundings().lacks(store, header) is None
    path.write_text(record % (2, PARENT))
    assert Surroundings().lacks(store, header) == "the file holds another session now"


def test_a_program_that_is_missing_is_named(line: Line, home: Home, ids: dict[str, str]) -> None:
    """Without the program it is said what to install, and what goes without it."""
    (home.folder / "bin" / "claude").chmod(0o644)
    shown = line("resume", ids["parent"])
    assert (shown.exit_code, shown.stdout) == (Exit.FAILED, "")
    assert "error: claude is not on the PATH\nhint: install Claude Code" in shown.stderr
    assert f"`perdure resume {ids['parent']} --format anthropic`" in shown.stderr
    assert f"the command would be: cd /tmp && claude --resume {PARENT}\n" in shown.stderr


def test_all_that_is_missing_is_named_at_once(line: Line, home: Home, ids: dict[str, str]) -> None:
    """Folder, file and program are each looked up, whatever else is missing."""
    home.rollout.unlink()
    (home.folder / "bin" / "codex").unlink()
    found, errors = missing(line, ids["rollout"])
    assert [check["holds"] for check in found["checks"]] == [False] * 3
    assert [error["message"] for error in errors] == [
        check["error"]["message"] for check in found["checks"]
    ]
    assert found["command"] == ["codex", "resume", THREAD]


def test_an_agent_without_a_command_says_so(line: Line, ids: dict[str, str]) -> None:
    """Where an agent cannot take a session up, a fork and the messages are what is left."""
    shown = line("resume", ids["harness"])
    assert (shown.exit_code, shown.stdout) == (Exit.FAILED, "")
    assert "error: deepseek-harness has no command that takes up a session" in shown.stderr
    assert f"`perdure fork {ids['harness']}`" in shown.stderr
    found, _ = missing(line, ids["harness"])
    assert found["command"] is None


def test_resume_gives_the_messages_of_an_import(
    line: Line, store: perdure.Store, ids: dict[str, str]
) -> None:
    """With --format an import gives its messages to any other agent, with --state its state."""
    for form in ("anthropic", "openai-chat", "openai-responses", "neutral"):
        found = line.json("resume", ids["parent"], "--format", form)["messages"]
        assert found == json.loads(json.dumps(store.inspect(ids["parent"]).messages(format=form)))
        assert "Delegate a repo search to a subagent" in json.dumps(found)
    state = line.json("resume", ids["parent"], "--state")["state"]
    assert state["agents"][""]["turns"] == 1
    assert line("resume", ids["parent"], "--state").stdout.startswith("session ")


def test_a_fork_of_an_import_is_resumed_here(line: Line, ids: dict[str, str]) -> None:
    """A fork is perdure's own: what a run goes on with is its state, and --cwd is not for it."""
    fork = line.json("fork", ids["parent"])["session"]
    assert line.json("resume", fork)["state"]["agents"][""]["turns"] == 1
    assert line("resume", fork, "--cwd", WORKPLACE).exit_code == Exit.USAGE


# --- the decision alone ---------------------------------------------------------------------------


def test_what_is_there_is_asked_of_the_surroundings(
    store: perdure.Store, home: Home, ids: dict[str, str]
) -> None:
    """What is missing is an error of its own kind; with all of it there is nothing missing."""
    here = Other(WORKPLACE, str(home.parent), "claude")
    assert taking_up(store, ids["parent"], around=here).missing == []
    kinds = [type(error) for error in taking_up(store, ids["parent"], around=Other()).missing]
    assert kinds == [WorkspaceMissing, StorageUnavailable, perdure.errors.PerdureError]


def test_a_source_of_another_machine_is_not_called_gone(
    store: perdure.Store, ids: dict[str, str]
) -> None:
    """A session that came from another machine says which one has its file."""
    there = Runtime().host()
    found = taking_up(store, ids["parent"], around=Other(WORKPLACE, "claude"))
    assert [error.message.endswith(f"it was found on {there}") for error in found.missing] == [True]


def test_a_moved_folder_comes_with_a_warning_where_the_agent_looks_for_it(
    line: Line, ids: dict[str, str]
) -> None:
    """Claude Code looks for a session by its folder: whoever names another one is told so."""
    shown = line("resume", ids["parent"], "--cwd", "/usr")
    assert shown.stdout == f"cd /usr && claude --resume {PARENT}\n"
    assert "Claude Code looks for a session by the folder in which it began" in shown.stderr


def test_a_subagent_whose_parent_is_not_kept(store: perdure.Store, home: Home) -> None:
    """A sub-agent alone still gives the command, and says that its session is not kept here."""
    (source,) = sync(store, [home.child]).sources
    found = taking_up(store, str(source.session), around=Other(WORKPLACE, "claude"))
    assert found.command == ("claude", "--resume", PARENT)
    assert [error.message for error in found.missing] == [
        "the session that this sub-agent belongs to is not kept here"
    ]
    alone = home.folder / f"agent-{CHILD}.jsonl"
    record = json.loads(home.child.read_bytes().splitlines()[0])
    del record["sessionId"]
    alone.write_text(json.dumps(record) + "\n")
    (source,) = sync(store, [alone]).sources
    nobody = taking_up(store, str(source.session))
    assert nobody.command is None
    assert "nothing tells whose" in str(nobody.missing[0])


def test_a_folder_that_is_not_absolute_is_not_there(store: perdure.Store, tmp_path: Path) -> None:
    """A folder means the same wherever the command is run: one from a template is missing."""
    path = tmp_path / "rollout-1.jsonl"
    meta = {"id": THREAD, "timestamp": "2025-12-18T10:00:00.000Z", "cwd": "{{cwd}}"}
    line = {"timestamp": meta["timestamp"], "type": "session_meta", "payload": meta}
    path.write_text(json.dumps(line) + "\n")
    (source,) = sync(store, [path]).sources
    first = taking_up(store, str(source.session)).missing[0]
    assert isinstance(first, WorkspaceMissing)
    assert first.cwd == "{{cwd}}"


def test_only_imports_are_taken_up_elsewhere(store: perdure.Store) -> None:
    """A session of perdure's own has no other agent."""
    with store.create("own") as session:
        session.append("note", 1)
    with pytest.raises(InvalidValue):
        taking_up(store, "own")
    assert agent_of(store.inspect("own").header) is None


def test_a_format_that_nobody_brings_any_more(line: Line, store: perdure.Store) -> None:
    """An import whose format is not installed keeps its name, and says that there is no command."""
    source = perdure.Source("acme", "a-1", None, "/srv/a.jsonl")
    with store.create("old", vocabulary=None, source=source) as session:
        session.append("acme/record", "{}\n", key="0:0")
    assert agent_of(store.inspect("old").header) == "acme"
    found, _ = missing(line, "old")
    assert found["checks"][0]["error"]["message"] == "the format acme is not installed here"


def test_messages_that_nobody_can_read_are_not_called_none(
    line: Line, store: perdure.Store
) -> None:
    """Without a lens for its format an import has no messages to give, and that is said.

    A fork of it gives its own, with a word on what is left out.
    """
    source = perdure.Source("acme", "a-1", None, "/srv/a.jsonl")
    with store.create("old", vocabulary=None, source=source) as session:
        session.append("acme/record", "{}\n", key="0:0")
    for arguments in (["--format", "anthropic"], ["--state"], ["--at", "t1"]):
        shown = line("resume", "old", *arguments)
        assert (shown.exit_code, shown.stdout) == (Exit.FAILED, "")
        assert "no lens for the format acme is installed" in shown.stderr
    assert "`perdure export old FILE --format source`" in line("resume", "old").stderr
    row = line.json("ls")["sessions"][0]
    assert row["problem"] == "no lens for the format acme is installed"
    assert "(no lens for the format acme is installed)" in line("ls").stdout
    shown = line("show", "old")
    assert "records   kept, and understood by no lens that is installed\n" in shown.stdout
    with store.fork("old", new_id="mine") as fork, fork.turn() as turn:
        turn.user("hello")
    shown = line("resume", "mine", "--format", "openai-chat")
    assert (shown.exit_code, "hello" in shown.stdout) == (Exit.OK, True)
    assert "what came from the import is left out" in shown.stderr


def test_a_subagent_is_not_led_to_a_fork_of_its_parent(
    store: perdure.Store, ids: dict[str, str]
) -> None:
    """A fork has the same id in the other format, and is no session of the agent."""
    with store.fork(ids["parent"], new_id="!before all others") as fork:
        fork.append("note", 1)
    assert agent_of(store.inspect("!before all others").header) is None
    assert taking_up(store, ids["child"]).of == ids["parent"]
    store.delete(ids["parent"])
    alone = taking_up(store, ids["child"], around=Other(WORKPLACE, "claude"))
    assert alone.of == ids["child"]
    assert [error.message for error in alone.missing] == [
        "the session that this sub-agent belongs to is not kept here"
    ]


def test_an_id_that_its_agent_does_not_take_is_the_reason(
    line: Line, store: perdure.Store, tmp_path: Path
) -> None:
    """Where an agent could take up sessions, but not one of this id, it is said why."""
    path = tmp_path / "rollout-1.jsonl"
    meta = {"id": "abc", "timestamp": "2025-12-18T10:00:00.000Z", "cwd": "/tmp"}  # noqa: S108
    record = {"timestamp": meta["timestamp"], "type": "session_meta", "payload": meta}
    path.write_text(json.dumps(record) + "\n")
    (source,) = sync(store, [path]).sources
    _, (error,) = missing(line, str(source.session))
    assert error["message"] == "Codex has no command that takes up a session of the id 'abc'"


def test_a_folder_that_no_line_can_carry_is_refused(
    line: Line, ids: dict[str, str], tmp_path: Path
) -> None:
    """What would come out of the terminal as another command is not printed as one."""
    folder = tmp_path / "a\nb\x1b"
    folder.mkdir()
    shown = line("resume", ids["parent"], "--cwd", str(folder))
    assert (shown.exit_code, shown.stdout) == (Exit.FAILED, "")
    assert "has characters that no line of a shell can carry safely" in shown.stderr
    found = line.json("resume", ids["parent"], "--cwd", str(folder))
    assert (found["cwd"], found["command"]) == (str(folder), ["claude", "--resume", PARENT])
