"""What the importer has to know of a format, and the formats it knows.

What the records of a format mean is its lens's business (`perdure.lenses`); here is what is asked
before anything is stored: which files are its own, which session a file holds, and where its agent
keeps them and takes them up again.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, ClassVar, NamedTuple, TypeVar

from perdure.errors import InvalidValue, PerdureError
from perdure.lenses.registry import PlugIns, told
from perdure.model import values
from perdure.model.limits import TIME_MS_MAX

__all__ = [
    "ENTRY_POINTS",
    "FORMATS",
    "HEAD_LINES",
    "Command",
    "Environment",
    "LineFormat",
    "Opening",
    "below_home",
    "broken_formats",
    "format_names",
    "format_of",
    "formats_of",
]

ENTRY_POINTS = "perdure.formats"
"""The group of entry points in which another package names a format and its class."""

HEAD_LINES = 50
"""So many lines a format is recognised by: some agents begin with dozens that say little."""

Environment = Callable[[str], str | None]
"""Gives the value of an environment variable, or None."""


class Opening(NamedTuple):
    """What the first lines of a source, and its path, say of its session.

    Attributes:
        id: the session's id in its own format, or None; of a sub-agent its own.
        cwd: its first working directory as found, or None.
        created_at: Unix milliseconds, or None if no line gives a valid time.
        parent: the id, in its own format, of the session it comes from, or None.
        relation: what it is to that one: "subagent", "fork" or "continuation"; None without one.
            A sub-agent is one even where nothing tells whose.
        depth: its delegation depth, 0 at the top, as the source says; None: it does not.

    """

    id: str | None = None
    cwd: str | None = None
    created_at: int | None = None
    parent: str | None = None
    relation: str | None = None
    depth: int | None = None


class Command(NamedTuple):
    """How an agent takes up one of its sessions.

    Attributes:
        arguments: program and arguments, never put through a shell.
        needs_folder: whether it finds the session only in the session's working directory.

    """

    arguments: tuple[str, ...]
    needs_folder: bool = True


class LineFormat(ABC):
    """A format that keeps one session in one file, one JSON object a line.

    Attributes:
        name: what events and session ids of the format begin with, and what its lens is called.
        agent: the program whose sessions these are, as people call it.

    """

    name: ClassVar[str]
    agent: ClassVar[str]

    @abstractmethod
    def matches(self, path: str) -> bool:
        """Whether a file at this path, met in a folder, may be of this format."""

    @abstractmethod
    def owns(self, path: str) -> bool:
        """Whether a file at this path is of this format, even where its lines are damaged."""

    @abstractmethod
    def recognises(self, head: Sequence[dict[str, Any]]) -> bool:
        """Whether the objects on the first lines (at most 50) are of this format."""

    def sure(self, head: Sequence[dict[str, Any]]) -> bool:
        """Whether they certainly are; a file is first tried with what is certain.

        Formats of perdure's own know what is merely likely, too; of others each `recognises`
        counts as certain.
        """
        return self.recognises(head)

    @abstractmethod
    def opening(self, head: Sequence[dict[str, Any]], path: str) -> Opening:
        """What they say of the session; `path` is absolute. Never raises."""

    @abstractmethod
    def record(self, value: dict[str, Any]) -> tuple[str | None, int | None]:
        """Type and time (Unix milliseconds) of a record, each None where it has none."""

    def folders(self, environment: Environment, home: str) -> list[str]:  # noqa: ARG002
        """Where the agent keeps its sessions, whether or not that is there."""
        return []

    def command(self, id: str) -> Command | None:  # noqa: ARG002
        """How the agent takes up the session of this id of its own; None if it cannot."""
        return None

    def document(self, path: str, start: bytes) -> list[dict[str, Any]] | None:  # noqa: ARG002
        """Of a file that is one JSON document: what stands for its first records; else None.

        Its lines are kept one by one all the same, and no line of it is asked to be a record.
        `start` is how it begins, up to 50 lines; an empty list says that nothing can be read there.
        """
        return None

    def unread(self, environment: Environment, home: str) -> dict[str, str]:  # noqa: ARG002
        """Files that are there and may hold sessions in a form that is not read, each with why.

        None is opened.
        """
        return {}

    def superseded_by(self, path: str) -> str | None:  # noqa: ARG002
        """Path of a file in the same folder that may hold all that this one does; or None.

        It is looked at whether it does, and `path` is left out of a sync only then.
        """
        return None

    def lists(self, path: str) -> bool:  # noqa: ARG002
        """Whether a file at this path is a list of the agent's that gives its sessions titles."""
        return False

    def titled(self, value: dict[str, Any]) -> tuple[str, str] | None:  # noqa: ARG002
        """Id and title of a session that a record of such a list names, or None."""
        return None

    def companions(self, path: str) -> list[str]:  # noqa: ARG002
        """Files beside a source that belong to its session and are no sessions themselves.

        Regular files that are there, sorted, reached through no symbolic link; none is opened. A
        folder that is missing or cannot be listed holds none.
        """
        return []


def below_home(folder: str, home: str) -> str:
    """A folder as its agent's settings name it: a tilde in front stands for `home`."""
    return home + folder[1:] if folder == "~" or folder.startswith("~/") else folder


FORMATS: dict[str, tuple[str, str]] = {
    "claude-code": ("perdure.importers.claude_code", "ClaudeCode"),
    "codex": ("perdure.importers.codex", "Codex"),
    "deepseek-harness": ("perdure.importers.deepseek_harness", "DeepseekHarness"),
}
"""Name of a format to its module and class, imported when it is first asked for."""


def format_names() -> list[str]:
    """The formats that can be imported, in the order in which a file is tried with them.

    Loads those of other packages; the ones that are broken are left out (see `broken_formats`).
    """
    return [*FORMATS, *_others.names()]


def format_of(name: str) -> LineFormat:
    """The format of that name.

    One of another package never raises where its errors would concern more than one file, and
    raises a `PerdureError` elsewhere.

    Raises:
        InvalidValue: there is none, or it is broken.

    """
    if name in FORMATS:
        module, kind = FORMATS[name]
        made: LineFormat = getattr(import_module(module), kind)()
        return made
    other = _others.get(name)
    if other is not None:
        return other
    wrong = _others.wrong(name)
    if wrong is not None:
        raise wrong
    known = ", ".join(sorted(format_names()))
    raise InvalidValue("format", f"{name!r} cannot be imported", hint=f"known are: {known}")


def formats_of(names: Sequence[str] | None) -> list[LineFormat]:
    """The formats of these names, by default all that are known.

    Raises:
        InvalidValue: as `format_of`.

    """
    return [format_of(name) for name in (format_names() if names is None else names)]


def broken_formats() -> list[PerdureError]:
    """What is wrong with formats of other packages, each thing once.

    First those that cannot be used at all, then what was answered wrongly in this process by those
    that are used. Loads all.
    """
    return [*_others.broken(), *_failures.values()]


# --- formats of other packages ------------------------------------------------------------------

_failures: dict[tuple[str, str], PerdureError] = {}
"""By the name of the format and what it was asked, what went wrong first."""

T = TypeVar("T")


class _Guarded(LineFormat):
    """A format of another package, whose errors and odd answers cost no more than they must.

    What is asked of one open file raises a `PerdureError` for the report of that file. All else
    gives what a format says that knows nothing, and the first time is noted.
    """

    def __init__(self, kind: LineFormat, package: str) -> None:
        self._kind = kind
        self._package = package

    def matches(self, path: str) -> bool:
        return self._quietly("matches", lambda: self._kind.matches(path) is True, otherwise=False)

    def owns(self, path: str) -> bool:
        return self._told("owns", lambda: self._kind.owns(path) is True)

    def recognises(self, head: Sequence[dict[str, Any]]) -> bool:
        return self._told("recognises", lambda: self._kind.recognises(head) is True)

    def opening(self, head: Sequence[dict[str, Any]], path: str) -> Opening:
        return self._told("opening", lambda: _opening(self._kind.opening(head, path)))

    def record(self, value: dict[str, Any]) -> tuple[str | None, int | None]:
        return self._told("record", lambda: _record(self._kind.record(value)))

    def folders(self, environment: Environment, home: str) -> list[str]:
        ask = lambda: _texts(self._kind.folders(environment, home))  # noqa: E731
        return self._quietly("folders", ask, otherwise=[])

    def command(self, id: str) -> Command | None:
        return self._quietly("command", lambda: _command(self._kind.command(id)), otherwise=None)

    def document(self, path: str, start: bytes) -> list[dict[str, Any]] | None:
        ask = lambda: _records(self._kind.document(path, start))  # noqa: E731
        return self._quietly("document", ask, otherwise=None)

    def unread(self, environment: Environment, home: str) -> dict[str, str]:
        ask = lambda: _reasons(self._kind.unread(environment, home))  # noqa: E731
        return self._quietly("unread", ask, otherwise={})

    def superseded_by(self, path: str) -> str | None:
        ask = lambda: _text(self._kind.superseded_by(path))  # noqa: E731
        return self._quietly("superseded_by", ask, otherwise=None)

    def lists(self, path: str) -> bool:
        return self._quietly("lists", lambda: self._kind.lists(path) is True, otherwise=False)

    def titled(self, value: dict[str, Any]) -> tuple[str, str] | None:
        return self._quietly("titled", lambda: _titled(self._kind.titled(value)), otherwise=None)

    def companions(self, path: str) -> list[str]:
        ask = lambda: _texts(self._kind.companions(path))  # noqa: E731
        return self._quietly("companions", ask, otherwise=[])

    def _quietly(self, asked: str, ask: Callable[[], T], *, otherwise: T) -> T:
        try:
            return ask()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - it may be anybody's
            _failures.setdefault((self.name, asked), self._failure(asked, error))
            return otherwise

    def _told(self, asked: str, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except (Exception, SystemExit) as error:
            raise self._failure(asked, error) from error

    def _failure(self, asked: str, error: BaseException) -> PerdureError:
        return PerdureError(
            f"the format {self.name!r} of the package {self._package} failed in `{asked}`: "
            f"{told(error)}",
            hint="tell whoever made it",
        )


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise TypeError(f"{values.shown(value)} is no text")


def _texts(value: object) -> list[str]:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return value
    raise TypeError(f"{values.shown(value)} is no list of texts")


def _records(value: object) -> list[dict[str, Any]] | None:
    if value is None or (isinstance(value, list) and all(isinstance(each, dict) for each in value)):
        return value
    raise TypeError(f"{values.shown(value)} is no list of objects")


def _reasons(value: object) -> dict[str, str]:
    if isinstance(value, dict):
        _texts([*value.keys(), *value.values()])
        return value
    raise TypeError(f"{values.shown(value)} is no dict of texts")


def _titled(value: object) -> tuple[str, str] | None:
    if value is None:
        return None
    id, title = _texts(list(value) if isinstance(value, tuple) else value)
    return id, title


def _command(value: object) -> Command | None:
    if value is None or (isinstance(value, Command) and value.arguments and _all_texts(value)):
        return value
    raise TypeError(f"{values.shown(value)} is no Command")


def _all_texts(command: Command) -> bool:
    arguments: object = command.arguments
    return isinstance(arguments, tuple) and all(isinstance(each, str) for each in arguments)


def _opening(value: object) -> Opening:
    if not isinstance(value, Opening):
        raise TypeError(f"{values.shown(value)} is no Opening")
    for each in (value.id, value.cwd, value.parent):
        _text(each)
    if value.relation not in (None, "subagent", "fork", "continuation"):
        raise ValueError(f"{values.shown(value.relation)} is no relation")
    _whole(value.created_at)
    _whole(value.depth)
    return value


def _record(value: object) -> tuple[str | None, int | None]:
    if not (isinstance(value, tuple) and len(value) == 2):
        raise TypeError(f"{values.shown(value)} is no pair of type and time")
    return _text(value[0]), _whole(value[1])


def _whole(value: object) -> int | None:
    if value is None:
        return None
    if type(value) is int and abs(value) <= TIME_MS_MAX:
        return value
    raise TypeError(f"{values.shown(value)} is no integer of at most 53 bits")


def _guarded(name: str, package: str, kind: object) -> LineFormat:
    """The format that an entry point holds.

    Raises:
        Exception: it is none, or cannot be made.

    """
    if not (isinstance(kind, type) and issubclass(kind, LineFormat)):
        raise TypeError(f"{values.shown(kind)} is no subclass of {LineFormat.__qualname__}")
    if kind.name != name:
        raise ValueError(f"its format is called {values.shown(kind.name)}")
    if not (isinstance(kind.agent, str) and kind.agent):
        raise TypeError(f"{values.shown(kind.agent)} is no name of an agent")
    return _like(kind(), package)


def _like(kind: LineFormat, package: str) -> _Guarded:
    class Guarded(_Guarded):
        name = kind.name
        agent = kind.agent

    return Guarded(kind, package)


_others = PlugIns(ENTRY_POINTS, FORMATS, _guarded)
