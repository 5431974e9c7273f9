"""The story of `perdure demo`: real logs come in, an agent is killed, its session goes on.

At the end the sessions of all agents are found and listed.

Every sentence that begins with `ok` was checked in front of the reader.
"""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import perdure
from perdure.cli.output import cut
from perdure.cli.output import when as shown_time
from perdure.durable.temporary import temporary_folder
from perdure.errors import SessionBusy
from perdure.importers import ImportReport, import_sessions, source_text, sync
from perdure.importers.stored_lines import source_bytes
from perdure.importers.taking_up import agent_of, taking_up
from perdure.model.event import Event
from perdure.model.vocabulary import TOOL_OUTCOME_UNKNOWN
from perdure.runtime import Runtime
from perdure.store.abstract import abstract_of

__all__ = ["SAMPLES", "Story", "run"]

SAMPLES = Path(__file__).parent / "demo_data"
"""Session logs of three agents that come with the package; their licences stand beside them."""

_HARNESS = SAMPLES / "deepseek-harness" / "sessions"

SESSION = "demo-agent"
_FORMATS = ("claude-code", "codex", "deepseek-harness")
"""Those of the samples: what somebody else's format finds on this machine is left alone."""

_CHILD_SECONDS_MAX = 30.0


class Story:
    """What the demo tells, and which of its claims held."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        """Tell it line by line to `tell`."""
        self.tell = tell
        self.claims: list[tuple[str, bool]] = []
        self.store: str | None = None

    def chapter(self, title: str) -> None:
        """Begin the next part."""
        self.tell("")
        self.tell(title)

    def claim(self, sentence: str, holds: bool) -> None:
        """Check one claim in front of the reader."""
        self.claims.append((sentence, holds))
        self.tell(f"  {'ok  ' if holds else 'FAIL'}  {sentence}")

    @property
    def passed(self) -> bool:
        """Whether every claim held."""
        return all(holds for _, holds in self.claims)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        claims = [{"claim": sentence, "holds": holds} for sentence, holds in self.claims]
        return {"passed": self.passed, "store": self.store, "claims": claims}


def run(*, keep: bool, tell: Callable[[str], None]) -> Story:
    """Run the demo in a temporary store.

    Raises:
        PerdureError: a step failed in a way that no claim foresees.

    """
    story = Story(tell)
    with temporary_folder("perdure-demo-", keep=keep) as folder:
        location = str(Path(folder) / "store")
        with perdure.open(location) as store:
            _import_logs(story, store)
            reported = _crash(story, store, location)
            _inspect(story, store, reported)
            _recover(story, store)
            _go_on(story, store, location)
            _sync(story, store)
        _conclude(story)
        if keep:
            story.store = location
            tell(f"The store is kept: perdure --store {location} ls")
    return story


def _import_logs(story: Story, store: perdure.Store) -> None:
    story.chapter("1. Logs of another agent come in, every byte as it was found")
    report = import_sessions(store, "deepseek-harness", [str(_HARNESS)])
    for source in report.sources:
        name = Path(source.path).relative_to(_HARNESS)
        story.tell(f"        {name}: {source.new} lines")
        for problem in source.problems:
            story.tell(f"          line {problem.line}, byte {problem.offset}: {problem.reason}")
    plain = [source for source in report.sources if source.path.endswith(".jsonl")]
    exact = all(
        b"".join(source_text(store, str(source.session))) == Path(source.path).read_bytes()
        for source in plain
    )
    story.claim(f"{report.new} lines of {len(report.sources)} files were imported", report.new > 0)
    story.claim("the plain ones come out again byte for byte", exact and bool(plain))
    torn = [source for source in report.sources if source.problem_count]
    kept = len(torn) == 1 and torn[0].new == torn[0].found > 0
    story.claim("the file that a crash had torn gave all its whole lines", kept)
    again = import_sessions(store, "deepseek-harness", [str(_HARNESS)])
    story.claim("importing again adds nothing", again.new == 0 and again.unchanged == report.new)
    sound = all(store.verify(entry.id).sound for entry in store.list())
    story.claim("every chain of hashes holds", sound)


class _Child:
    """The agent as a process of its own; killed if it takes too long or is left behind."""

    def __init__(self, location: str, part: str) -> None:
        arguments = ["-m", "perdure.cli.demo_agent", location, SESSION, part]
        self.process = subprocess.Popen(  # noqa: S603 - our own module, no input from outside
            [sys.executable, "-P", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._alarm = threading.Timer(_CHILD_SECONDS_MAX, self.process.kill)
        self._alarm.start()

    def read(self, until: str) -> list[tuple[int, str]]:
        """Sequence number and type of what it reports as acknowledged, to a line or to its end."""
        acknowledged = []
        for line in self.process.stdout or ():
            words = line.split()
            if words[:1] == ["acknowledged"]:
                acknowledged.append((int(words[1]), words[2]))
            if line.strip() == until:
                break
        return acknowledged

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._alarm.cancel()
        self.process.kill()
        self.process.communicate()


def _crash(story: Story, store: perdure.Store, location: str) -> list[tuple[int, str]]:
    story.chapter("2. An agent works, and dies in the middle of a tool call")
    with _Child(location, "begin") as child:
        reported = child.read("tool running")
        for seq, kind in reported:
            story.tell(f"        agent: event {seq:>2} {kind} is durable")
        story.tell("        agent: the tool is running")
        busy = False
        try:
            store.writer(SESSION).close()
        except SessionBusy as error:
            busy = error.pid == child.process.pid
        story.claim("meanwhile nobody else can write its session, and is told who does", busy)
        child.process.kill()
        killed = child.process.wait() == -signal.SIGKILL
    story.claim("the agent was killed with SIGKILL", killed)
    return reported


def _inspect(story: Story, store: perdure.Store, reported: list[tuple[int, str]]) -> None:
    story.chapter("3. What is left, seen without changing a byte")
    log = Path(str(store.locate(SESSION)))
    before = log.read_bytes()
    found = store.inspect(SESSION)
    verified = found.verified
    kept = {event.seq: event.type for event in store.read_from(SESSION)}
    present = bool(reported) and all(kept.get(seq) == kind for seq, kind in reported)
    story.claim(f"all {len(reported)} events it had reported as durable are there", present)
    deltas = sum(kind == "assistant/delta" for kind in kept.values())
    story.claim(f"so are the {deltas} streamed words in front of its message", deltas > 0)
    story.claim("the chain of hashes holds to the end", verified is not None and not found.problems)
    for event in found.closers:
        story.tell(f"        to be added: event {event.seq:>2} {event.type} {_outcome(event)}")
    ending = [(event.type, _outcome(event)) for event in found.closers]
    expected = [
        ("tool/result", TOOL_OUTCOME_UNKNOWN),
        ("step/end", ""),
        ("turn/end", "interrupted"),
    ]
    story.claim("the open call would be answered, step and turn closed", ending == expected)
    story.claim("looking changed nothing on the disk", log.read_bytes() == before)


def _outcome(event: Event) -> str:
    error = event.data.get("error") or {}
    return str(error.get("code") or event.data.get("reason") or "")


def _recover(story: Story, store: perdure.Store) -> None:
    story.chapter("4. The next writer closes the turn, once")
    closers = store.inspect(SESSION).closers
    store.writer(SESSION).close()
    first = store.inspect(SESSION)
    stored = list(store.read_from(SESSION))[-len(closers) :]
    story.claim("what was shown before is what was stored", bool(closers) and stored == closers)
    store.writer(SESSION).close()
    second = store.inspect(SESSION)
    same = first.position == second.position and not second.closers
    story.claim("opening it again adds nothing", same)
    report = store.verify(SESSION)
    story.claim(f"verified: {report.status}, {report.events} events", report.status == "ok")


def _go_on(story: Story, store: perdure.Store, location: str) -> None:
    story.chapter("5. A new process continues the session")
    before = store.inspect(SESSION).position
    with _Child(location, "continue") as child:
        reported = child.read("")
        ended = child.process.wait() == 0
    for seq, kind in reported:
        story.tell(f"        agent: event {seq:>2} {kind} is durable")
    story.claim("the agent finished its turn", ended and reported[-1:] != [])
    following = before is not None and reported[:1] == [(before.seq + 1, "turn/start")]
    story.claim("its first event follows the last one of the dead process", following)
    report = store.verify(SESSION)
    whole = report.status == "ok" and report.closers == 0
    story.claim(f"verified: {report.status}, {report.events} events, nothing left open", whole)


class _Elsewhere(Runtime):
    """Agents whose folders are the samples, as their environment variables say."""

    def environment(self, name: str) -> str | None:
        found = {
            "CLAUDE_CONFIG_DIR": "claude-code",
            "CODEX_HOME": "codex",
            "DSH_HOME": "deepseek-harness",
        }
        return str(SAMPLES / found[name]) if name in found else super().environment(name)


def _sync(story: Story, store: perdure.Store) -> None:
    story.chapter("6. The sessions of all agents of a machine, found and kept: perdure sync")
    runtime = _Elsewhere()
    report = sync(store, formats=_FORMATS, runtime=runtime)
    for source in report.sources:
        name = Path(source.path).relative_to(SAMPLES)
        story.tell(f"        {source.state:<9} {name}: {source.found} lines")
    states = {"new": 5, "unchanged": 3}
    story.claim("5 files are new, the 3 of the beginning are unchanged", report.states == states)
    formats = {source.format for source in report.sources}
    known = formats == {*_FORMATS}
    story.claim(f"each was recognised: {', '.join(sorted(filter(None, formats)))}", known)
    again = sync(store, formats=_FORMATS, runtime=runtime)
    twice = again.new == 0 and again.states == {"unchanged": len(report.sources)}
    story.claim("again: 0 new lines", twice)
    _list(story, store)
    _resume_elsewhere(story, store, report)


def _list(story: Story, store: perdure.Store) -> None:
    story.tell("        What is kept now, by agent, with title and last activity:")
    by_agent: dict[str, list[tuple[int, str]]] = {}
    for entry in store.list():
        header, about = entry.header, abstract_of(store, entry.id)
        of = " (sub-agent)" if header is not None and header.origin == "subagent" else ""
        when = about.active_at or 0
        what = f"{shown_time(when)}  {cut(about.title or '(nobody asked anything)', 60)}{of}"
        by_agent.setdefault(agent_of(header) or "perdure", []).append((when, what))
    for agent in sorted(by_agent):
        story.tell(f"        {agent}")
        for _, what in sorted(by_agent[agent], reverse=True):
            story.tell(f"            {what}")
    agents = ["Claude Code", "Codex", "deepseek-harness", "perdure"]
    listed = sum(map(len, by_agent.values())) == len(store.list())
    story.claim("all of them are in one list", listed and sorted(by_agent) == agents)


def _resume_elsewhere(story: Story, store: perdure.Store, report: ImportReport) -> None:
    (sub,) = (each for each in report.sources if Path(each.path).name.startswith("agent-"))
    found = taking_up(store, str(sub.session))
    story.tell(f"        $ perdure resume {found.session}")
    story.tell(f"        {found.line}")
    there = {check.what: check.error is None for check in found.checks}
    program = "is" if there["program"] else "is not"
    story.tell(f"        ({found.agent} {program} installed here)")
    path = Path(_path(store, found.of))
    command = found.command == ("claude", "--resume", path.stem)
    story.claim("a sub-agent leads to the command of the session that it belongs to", command)
    story.claim("its folder and its file are there", there["folder"] and there["source"])
    exact = b"".join(source_bytes(store, found.of)) == path.read_bytes()
    story.claim("its file comes out again byte for byte", exact)


def _path(store: perdure.Store, id: str) -> str:
    header = store.inspect(id).header
    source = None if header is None else header.source
    return "" if source is None or source.path is None else source.path


def _conclude(story: Story) -> None:
    story.tell("")
    if not story.passed:
        failed = [sentence for sentence, holds in story.claims if not holds]
        story.tell(f"{len(failed)} of {len(story.claims)} claims did not hold.")
        return
    story.tell(f"All {len(story.claims)} claims held. What you saw:")
    story.tell("  What perdure acknowledges is on disk, whatever happens to the process.")
    story.tell(
        "  A turn that a crash cut off is closed, not thrown away, and says what is unknown."
    )
    story.tell("  Each session is one append-only log whose hashes prove that nothing is missing.")
    story.tell("  What other agents keep comes in with one command, and leads back to them.")
    story.tell(
        "Next: perdure sync, perdure --help, or keep a store of this with perdure demo --keep."
    )
