"""What the importer has to know of a format, and the formats it knows.

What the records of a format mean is its lens's business (`perdure.lenses`); here is what is asked
before anything is stored: which files are its own, which session a file holds, and where its agent
keeps them and takes them up again.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, ClassVar, NamedTuple

from perdure.errors import InvalidValue

__all__ = [
    "ENTRY_POINTS",
    "FORMATS",
    "HEAD_LINES",
    "Command",
    "Environment",
    "LineFormat",
    "Opening",
    "below_home",
    "format_names",
    "format_of",
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

    """

    id: str | None = None
    cwd: str | None = None
    created_at: int | None = None
    parent: str | None = None
    relation: str | None = None


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

    def superseded_by(self, path: str) -> str | None:  # noqa: ARG002
        """Path of the file that, if it exists, holds all that this one does and more; or None."""
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
    """The formats that can be imported, in the order in which a file is tried with them."""
    return [*FORMATS, *sorted({point.name for point in entry_points(group=ENTRY_POINTS)})]


def format_of(name: str) -> LineFormat:
    """The format of that name.

    Raises:
        InvalidValue: there is none.

    """
    if name in FORMATS:
        module, kind = FORMATS[name]
        made: LineFormat = getattr(import_module(module), kind)()
        return made
    for point in entry_points(group=ENTRY_POINTS, name=name):
        other: type[LineFormat] = point.load()
        return other()
    known = ", ".join(sorted(format_names()))
    raise InvalidValue("format", f"{name!r} cannot be imported", hint=f"known are: {known}")
