"""How an imported session goes on in the agent that wrote it: its command, and what that needs.

Nothing is started. What the command needs on this machine is looked up, and what is missing comes
with what to do instead.
"""

import os
import shlex
from typing import Any, NamedTuple

from perdure.errors import InvalidValue, PerdureError, StorageUnavailable, WorkspaceMissing
from perdure.importers.archive import Archive
from perdure.importers.formats import Command, LineFormat, format_of, formats_of
from perdure.importers.incremental import FileImport
from perdure.importers.restoring import belongings
from perdure.model.header import Header
from perdure.runtime import SYSTEM, Runtime
from perdure.store import Inspection, Store
from perdure.store.families import elders

__all__ = ["Check", "Surroundings", "TakingUp", "agent_of", "taking_up"]


class Surroundings:
    """What this machine has: folders, files and programs. Subclass it to say otherwise."""

    def __init__(self, runtime: Runtime = SYSTEM) -> None:
        """`runtime` knows the search path of programs, and what this machine is called."""
        self._runtime = runtime

    def machine(self) -> str:
        """What tells this machine from others; see `Runtime.machine`."""
        return self._runtime.machine()

    def is_folder(self, path: str) -> bool:
        """Whether there is a folder; the same one wherever this is asked."""
        return os.path.isabs(path) and os.path.isdir(path)  # noqa: PTH112, PTH117

    def is_file(self, path: str) -> bool:
        """Whether there is a regular file."""
        return os.path.isfile(path)  # noqa: PTH113

    def lacks(self, store: Store, header: Header) -> str | None:
        """Why the file at its path is not that of an imported session any more; None: it is.

        The file is looked at as an import looks at it, and only read.
        """
        archive = Archive(store, self._runtime)
        return FileImport(store, formats_of(None), archive, self._runtime, dry=True).lacks(header)

    def which(self, program: str) -> str | None:
        """Where the program is that a shell would start, or None."""
        for folder in (self._runtime.environment("PATH") or "").split(os.pathsep):
            path = os.path.join(folder, program)  # noqa: PTH118
            if os.path.isfile(path) and os.access(path, os.X_OK):  # noqa: PTH113
                return path
        return None


class Check(NamedTuple):
    """One thing that the command needs.

    Attributes:
        what: "command", "folder", "source" or "program".
        about: which one: a path, a program, or the name of an agent.
        error: what is missing, with what helps as its hint; None: it is there.

    """

    what: str
    about: str
    error: PerdureError | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        error = self.error
        return {
            "what": self.what,
            "about": self.about,
            "holds": error is None,
            "error": error and {"code": error.code, "message": error.message, "hint": error.hint},
        }


class TakingUp(NamedTuple):
    """How a session goes on in its own agent.

    Attributes:
        session: its id in this store.
        agent: the program that wrote it, as people call it.
        command: program and arguments, or None: there is no such command.
        cwd: the folder to start it in, or None if it is not known.
        checks: what was looked up, in the order in which it is needed.
        of: id in this store of the session that the command is about: that of a sub-agent's
        parent, if it is kept here; else the session itself.
        otherwise: what goes without the agent, in words.
        note: what may keep the agent from finding it all the same, or None.

    """

    session: str
    agent: str
    command: tuple[str, ...] | None
    cwd: str | None
    checks: tuple[Check, ...]
    of: str
    otherwise: str
    note: str | None = None

    @property
    def missing(self) -> list[PerdureError]:
        """What is not there; none: the command will do."""
        return [check.error for check in self.checks if check.error is not None]

    @property
    def line(self) -> str | None:
        """The command for a shell, quoted where it has to be; None if there is none."""
        if self.command is None:
            return None
        folder = "" if self.cwd is None else f"cd {shlex.quote(self.cwd)} && "
        return folder + shlex.join(self.command)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "session": self.session,
            "agent": self.agent,
            "command": None if self.command is None else [*self.command],
            "cwd": self.cwd,
            "of": self.of,
            "otherwise": self.otherwise,
            "note": self.note,
            "checks": [check.as_dict() for check in self.checks],
        }


def agent_of(header: Header | None) -> str | None:
    """The program that wrote a session, as people call it; None for perdure's own.

    A fork of an import is perdure's own.
    """
    if header is None or header.source is None or not header.is_import:
        return None
    kind = _kind(header.source.format)
    return header.source.format if kind is None else kind.agent


def taking_up(
    store: Store, id: str, *, cwd: str | None = None, around: Surroundings | None = None
) -> TakingUp:
    """The command with which its own agent takes up an imported session, and what it needs.

    `cwd` is where the session's folder is now. Of a sub-agent it is the command of its parent.
    Reads the log.

    Raises:
        InvalidValue: the session is no import, or goes on here already.
        SessionNotFound, SessionDamaged, FormatUnsupported: it cannot be read.

    """
    around = around or Surroundings()
    found = store.inspect(id)
    header = found.header
    if header is None or header.source is None or not header.is_import:
        raise InvalidValue("id", f"{id!r} is no import", hint="store.resume takes it up")
    agent = agent_of(header) or header.source.format
    understanding = found.understanding
    read = understanding is not None and understanding.version is not None
    otherwise = _elsewhere(id, agent) if read else _unread(id, header.source.format)
    subject, command = _command(store, found, header)
    if command is None:
        check = Check("command", agent, _no_command(found, header, agent))
        return TakingUp(id, agent, None, cwd or header.cwd, (check,), id, otherwise)
    of = subject.id if subject is not None else id
    began = _folder(found if subject is None else subject, command)
    folder, note = cwd or began, None
    if command.needs_folder and folder != began:
        note = f"{agent} looks for a session by the folder in which it began"
    checks = [
        _folder_check(id, folder, around),
        _source_check(store, subject.header if subject is not None else None, agent, around),
        _program_check(command.arguments[0], agent, around),
    ]
    return TakingUp(id, agent, command.arguments, folder, tuple(checks), of, otherwise, note)


def _command(
    store: Store, found: Inspection, header: Header
) -> tuple[Inspection | None, Command | None]:
    """The session that a command is about, as far as it is kept here, and the command."""
    kind = _kind(header.source.format) if header.source is not None else None
    if kind is None or header.source is None:
        return found, None
    understanding = found.understanding
    facts = understanding.facts if understanding is not None else None
    if _is_subagent(header):
        parent = header.source.parent or (facts.parent if facts is not None else None)
        command = None if parent is None else kind.command(parent)
        return (None if parent is None else _kept(store, header, parent)), command
    own = _own_id(found, header)
    return found, None if own is None else kind.command(own)


def _own_id(found: Inspection, header: Header) -> str | None:
    """The id that its agent gave a session, as far as it is known."""
    understanding = found.understanding
    facts = understanding.facts if understanding is not None else None
    given = None if header.source is None else header.source.id
    return given or (facts.id if facts is not None else None)


def _kept(store: Store, header: Header, parent: str) -> Inspection | None:
    """The session of a sub-agent's parent, as `Store.lineage` finds it."""
    headers = (entry.header for entry in store.list() if entry.header is not None)
    found = elders(headers, header, parent)
    return store.inspect(found[0].id) if found else None


def _folder(found: Inspection, command: Command) -> str | None:
    """Where it began, if the agent looks for it there; else where it was at work last."""
    header, understanding = found.header, found.understanding
    first = None if header is None else header.cwd
    last = None if understanding is None else understanding.facts.cwd
    return (first or last) if command.needs_folder else (last or first)


# --- what it needs --------------------------------------------------------------------------------


def _folder_check(id: str, folder: str | None, around: Surroundings) -> Check:
    where = f"say where it is now: `perdure resume {shlex.quote(id)} --cwd PATH`"
    if folder is None:
        return Check("folder", "", PerdureError("its working directory is not known", hint=where))
    if around.is_folder(folder):
        return Check("folder", folder)
    error = WorkspaceMissing(id, folder)
    error.hint = f"bring it back, or {where}"
    return Check("folder", folder, error)


def _source_check(store: Store, header: Header | None, agent: str, around: Surroundings) -> Check:
    source = None if header is None else header.source
    if source is None or header is None:
        reason = "the session that this sub-agent belongs to is not kept here"
        return Check("source", "", PerdureError(reason, hint="`perdure sync` brings what there is"))
    path = source.path or ""
    there = around.is_file(path)
    why = around.lacks(store, header) if there else None
    if there and why is None:
        return Check("source", path)
    to, first = shlex.quote(path), ""
    reason = f"the source is gone, so {agent} does not know the session any more"
    if why is not None:
        reason = f"{why}, so {agent} does not know the session any more"
        first = "move what is there away; then "
    elif source.machine is not None and source.machine != around.machine():
        reason = f"the source is not here; it was found on {source.host or 'another machine'}"
        to = "FILE"
    more = " --with-files" if belongings(store, header.id) else ""
    command = f"perdure export {shlex.quote(header.id)} {to} --format source{more}"
    error = StorageUnavailable(path, reason, hint=f"{first}`{command}` writes it anew")
    return Check("source", path, error)


def _program_check(program: str, agent: str, around: Surroundings) -> Check:
    if around.which(program) is not None:
        return Check("program", program)
    hint = f"install {agent}, or add its folder to PATH"
    return Check("program", program, PerdureError(f"{program} is not on the PATH", hint=hint))


def _no_command(found: Inspection, header: Header, agent: str) -> PerdureError:
    kind = None if header.source is None else _kind(header.source.format)
    if kind is None:
        hint = "install the package that brought it"
        return PerdureError(f"the format {agent} is not installed here", hint=hint)
    if type(kind).command is LineFormat.command:
        return PerdureError(f"{agent} has no command that takes up a session")
    if _is_subagent(header):
        return PerdureError(f"it is a sub-agent of {agent}, and nothing tells whose")
    own = _own_id(found, header)
    if own is None:
        return PerdureError(f"its file does not say which id {agent} gave it")
    return PerdureError(f"{agent} has no command that takes up a session of the id {own!r}")


def _elsewhere(id: str, agent: str) -> str:
    quoted = shlex.quote(id)
    return (
        f"to go on without {agent}: `perdure fork {quoted}` makes a session of perdure's own, "
        f"`perdure resume {quoted} --format anthropic` gives its messages to another agent"
    )


def _unread(id: str, format: str) -> str:  # noqa: A002
    quoted = shlex.quote(id)
    return (
        f"no lens for the format {format} is installed, so nobody can tell its messages: "
        f"`perdure log {quoted}` shows its lines, "
        f"`perdure export {quoted} FILE --format source` gives its file"
    )


def _is_subagent(header: Header) -> bool:
    return header.origin == "subagent"


def _kind(name: str) -> LineFormat | None:
    """The format of that name; None: the package that brought it is not installed, or broken."""
    try:
        return format_of(name)
    except PerdureError:
        return None
