"""deepseek-harness: `session.jsonl` or `session.jsonl.zstd`, a header line, then one event a line.

A row of packed chunks (`text-chunks` and its kin) is one line and stays one event; its time is that
of its first chunk, `time0`.
"""

import os
import posixpath
from collections.abc import Sequence
from typing import Any

from perdure.importers.formats import Environment, LineFormat, Opening, below_home
from perdure.importers.heads import created
from perdure.importers.signs import DEEPSEEK_HARNESS, sure_writer_of, writer_of
from perdure.lenses.pieces import count, ident, text
from perdure.model.limits import TIME_MS_MAX

__all__ = ["DeepseekHarness"]

_SUFFIXES = (".jsonl", ".jsonl.zst", ".jsonl.zstd")
_DATABASES = (".db", ".sqlite", ".sqlite3")
_UNREAD = "an SQLite database, and of deepseek-harness only session files (session.jsonl) are read"


class DeepseekHarness(LineFormat):
    """The format as its own harness writes it, version 0 of the header."""

    name = DEEPSEEK_HARNESS
    agent = "deepseek-harness"

    def matches(self, path: str) -> bool:
        """Session files by their usual name, and whatever else holds lines of JSON."""
        return path.endswith(_SUFFIXES)

    def owns(self, path: str) -> bool:
        """The name that the harness gives its session files."""
        return posixpath.basename(path).startswith("session.jsonl")

    def recognises(self, head: Sequence[dict[str, Any]]) -> bool:
        """The header: type `session`, told from that of other formats by `createdAt`."""
        return writer_of(head[:1]) == self.name

    def sure(self, head: Sequence[dict[str, Any]]) -> bool:
        """The header is the first record."""
        return sure_writer_of(head[:1]) == self.name

    def opening(self, head: Sequence[dict[str, Any]], path: str) -> Opening:  # noqa: ARG002
        """What the header says."""
        if not self.recognises(head):
            return Opening()
        header = head[0]
        parent = ident(header.get("parentSession"))
        forked = None if parent is None else "fork"
        return Opening(
            id=ident(header.get("id")),
            cwd=text(header.get("cwd")),
            created_at=created([_time(header["createdAt"])]),
            parent=parent,
            relation="subagent" if header.get("origin") == "subagent" else forked,
            depth=count(header.get("delegationDepth")),
        )

    def record(self, value: dict[str, Any]) -> tuple[str | None, int | None]:
        """Type, and the time of the event, of the first packed chunk, or of the creation."""
        kind = value.get("type")
        names = ("time", "time0", "createdAt") if kind == "session" else ("time", "time0")
        times = (_time(value.get(name)) for name in names)
        time = next((time for time in times if time is not None), None)
        return kind if isinstance(kind, str) else None, time

    def folders(self, environment: Environment, home: str) -> list[str]:
        """Its sessions."""
        return [posixpath.join(_root(environment, home), "sessions")]

    def unread(self, environment: Environment, home: str) -> dict[str, str]:
        """Databases in its folder, and beside the session files: it may keep sessions in one."""
        root = _root(environment, home)
        folders = (root, posixpath.join(root, "sessions"))
        return {path: _UNREAD for folder in folders for path in _databases(folder)}


def _root(environment: Environment, home: str) -> str:
    return below_home(environment("DSH_HOME") or "~/.dsh", home)


def _databases(folder: str) -> list[str]:
    """Regular files by their names; none in a folder that is missing or cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            return sorted(
                each.path
                for each in entries
                if each.name.endswith(_DATABASES) and each.is_file(follow_symlinks=False)
            )
    except (OSError, ValueError):
        return []


def _time(value: object) -> int | None:
    """An integer in the range of times; True is no integer here."""
    inside = type(value) is int and -TIME_MS_MAX <= value <= TIME_MS_MAX
    return value if inside and isinstance(value, int) else None
