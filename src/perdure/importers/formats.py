"""What the importer has to know of a format, and the formats it knows."""

from importlib import import_module
from typing import Any, NamedTuple, Protocol

from perdure.errors import InvalidValue

__all__ = ["FORMATS", "LineFormat", "Opening", "format_of"]


class Opening(NamedTuple):
    """What the first line of a source says of its session.

    Attributes:
        id: the session's id in its own format, or None.
        cwd: its working directory as found, or None.
        created_at: Unix milliseconds, or None if the line gives no valid time.

    """

    id: str | None = None
    cwd: str | None = None
    created_at: int | None = None


class LineFormat(Protocol):
    """A format that keeps one session in one file, one JSON object a line.

    Attributes:
        name: what events and session ids of the format begin with.

    """

    name: str

    def matches(self, name: str) -> bool:
        """Whether a file of this name, met in a folder, may be of this format."""

    def owns(self, name: str) -> bool:
        """Whether a file of this name is of this format, even where its first line is damaged."""

    def opening(self, value: dict[str, Any]) -> Opening | None:
        """What the object on line 1 says of the session; None if it opens none of this format."""

    def record(self, value: dict[str, Any]) -> tuple[str | None, int | None]:
        """Type and time (Unix milliseconds) of a record, each None where it has none."""


FORMATS: dict[str, tuple[str, str]] = {
    "deepseek-harness": ("perdure.importers.deepseek_harness", "DeepseekHarness"),
}
"""Name of a format to its module and class, imported when it is first asked for."""


def format_of(name: str) -> LineFormat:
    """The format of that name.

    Raises:
        InvalidValue: there is none.

    """
    if name not in FORMATS:
        known = ", ".join(sorted(FORMATS))
        raise InvalidValue("format", f"{name!r} cannot be imported", hint=f"known are: {known}")
    module, kind = FORMATS[name]
    made: LineFormat = getattr(import_module(module), kind)()
    return made
