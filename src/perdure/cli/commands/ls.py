"""`perdure ls`: every session of the store, the newest first."""

import os
import sys
from typing import Any

import click

from perdure.backends.base import Entry
from perdure.cli import output
from perdure.cli.options import json_option, opened
from perdure.cli.progress import Progress
from perdure.errors import PerdureError, StorageFull, StorageUnavailable
from perdure.lenses import lens_of
from perdure.model.header import Header
from perdure.store import Store
from perdure.store.abstract import Abstract, abstract_of

__all__ = ["command"]

_OWN = "perdure"
"""Whose sessions are no imports."""

_TITLE_CHARS = 60
"""What is shown of a title where nothing tells how wide the terminal is."""

_TITLE_CHARS_MIN = 12
_COLUMNS = 80


@click.command("ls")
@click.option(
    "--titles", is_flag=True, help="With title and last activity; reads the log of each session."
)
@click.option(
    "--agent",
    metavar="NAME",
    help="Only sessions of this agent, or of this format; perdure: its own.",
)
@json_option
@click.pass_context
def command(ctx: click.Context, *, titles: bool, agent: str | None, as_json: bool) -> None:
    """List the sessions, the newest first.

    Damaged ones are listed with the reason, as far as it shows without reading their logs. The
    namespaces directly below are named; their sessions are listed with --namespace. The status is
    that of the log's end: that a turn was left open is told by `perdure show` and `verify`.

    With --titles each log is read, which takes its time: then agent, title and last activity are
    listed, the session first in which something came last. Without a title it is what somebody
    asked first. On a terminal titles are cut so that a line fits, and ids are not.

    JSON: {"sessions": [{id, created_at, status, events, bytes, cwd, source, agent, origin,
    relation, reason}], "namespaces": [name]}, with --titles title, named and active_at for each
    session as well; named says that the title was given. Relation says what it is to another one:
    subagent, fork or continuation. Times are Unix milliseconds; what is not known is null.
    """
    store = opened(ctx)
    progress = Progress(as_json=as_json, few=True)
    entries = [entry for entry in store.list() if _is_of(entry, agent)]
    rows = []
    for number, entry in enumerate(entries):
        if titles:
            progress.bar(number, len(entries), "sessions")
        row = _row(store, entry)
        if titles:
            row |= _abstract(store, entry)
            row["reason"] = row["reason"] or _unread(entry)
        rows.append(row)
    progress.clear()
    by = "active_at" if titles else "created_at"
    rows.sort(key=lambda row: -1 if row[by] is None else row[by], reverse=True)
    below = store.namespaces()
    if as_json:
        output.document({"sessions": rows, "namespaces": below})
        return
    if rows and titles:
        headings = ["STATUS", "LAST EVENT (UTC)", "AGENT", "TITLE", "ID"]
        output.table(_fitting([headings, *map(_titled, rows)]))
    elif rows:
        headings = ["STATUS", "CREATED (UTC)", "EVENTS", "BYTES", "ID", "FOLDER"]
        output.table([headings, *map(_cells, rows)], right=(2, 3))
    else:
        whose = "" if agent is None else f" of {agent}"
        output.line(f"no sessions{whose} in {ctx.find_root().obj}")
        output.line("`perdure sync` brings in what other agents keep on this machine")
    if below:
        output.line(f"namespaces here: {', '.join(below)} (--namespace NAME)")


def _is_of(entry: Entry, agent: str | None) -> bool:
    """Whether it is a session of an agent, by the name of the program or of its format."""
    if agent is None:
        return True
    header = entry.header
    names = [_agent(entry)]
    if header is not None and header.source is not None and header.is_import:
        names.append(header.source.format)
    return agent.casefold() in [name.casefold() for name in names]


def _agent(entry: Entry) -> str:
    if entry.header is None or not entry.header.is_import:
        return _OWN
    from perdure.importers.taking_up import agent_of

    return agent_of(entry.header) or _OWN


def _relation(header: Header) -> str | None:
    """What a session is to another one, here or in its own agent."""
    if header.origin is not None:
        return header.origin
    if header.is_import:
        return None if header.source is None else header.source.relation
    return None if header.parent is None else "fork"


def _abstract(store: Store, entry: Entry) -> dict[str, Any]:
    try:
        found = abstract_of(store, entry.id)
    except PerdureError:
        # What is wrong with it stands in its status, or is told by `verify`.
        created = None if entry.header is None else entry.header.created_at
        found = Abstract(None, named=False, active_at=created)
    return found._asdict()


def _row(store: Store, entry: Entry) -> dict[str, Any]:
    header = entry.header
    row: dict[str, Any] = {
        "id": entry.id,
        "created_at": None,
        "status": "damaged",
        "events": None,
        "bytes": None,
        "cwd": None,
        "source": None,
        "agent": _agent(entry),
        "origin": None if header is None else header.origin,
        "relation": None if header is None else _relation(header),
        "reason": entry.problem.reason if entry.problem is not None else None,
    }
    if header is None:
        if entry.problem is not None and entry.problem.kind in ("unsupported", "unreadable"):
            row["status"] = entry.problem.kind
        return row
    row["created_at"], row["cwd"] = header.created_at, header.cwd
    if header.source is not None:
        row["source"] = header.source.format
    try:
        found = store.inspect(entry.id)
        row["status"] = found.status
        position = found.position
        row["events"] = position.seq + 1 if position is not None else None
        row["bytes"] = _size(store.locate(entry.id))
        if row["status"] == "damaged":
            row["reason"] = "; ".join(problem.reason for problem in found.problems[:1])
    except (StorageUnavailable, StorageFull) as error:
        row["status"], row["reason"] = "unreadable", error.message
    except PerdureError as error:
        row["status"], row["reason"] = "damaged", error.message
    return row


def _unread(entry: Entry) -> str | None:
    """Why nobody can tell what stands in the lines of an import, or None."""
    source = None if entry.header is None or not entry.header.is_import else entry.header.source
    if source is None:
        return None
    try:
        known = lens_of(source.format) is not None
    except Exception:  # noqa: BLE001 - it may be anybody's, and a list lists all the same
        known = False
    return None if known else f"no lens for the format {source.format} is installed"


def _size(path: str | None) -> int | None:
    try:
        return os.stat(path).st_size if path is not None else None  # noqa: PTH116
    except OSError:
        return None


def _cells(row: dict[str, Any]) -> list[str]:
    created = output.when(row["created_at"])
    events, size = ("-" if row[name] is None else str(row[name]) for name in ("events", "bytes"))
    last = f"({row['reason']})" if row["reason"] else row["cwd"] or ""
    return [row["status"], created, events, size, row["id"], last]


def _titled(row: dict[str, Any]) -> list[str]:
    relation = {None: "", "subagent": ", sub-agent"}.get(row["relation"], f", {row['relation']}")
    title = f"({row['reason']})" if row["reason"] else row["title"] or "-"
    return [row["status"], output.when(row["active_at"]), row["agent"] + relation, title, row["id"]]


def _columns() -> int:
    """How many characters a line of the terminal has."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or _COLUMNS
    except (OSError, ValueError):
        return _COLUMNS


def _fitting(rows: list[list[str]]) -> list[list[str]]:
    """The rows with titles of a length that lets them stand on one line each."""
    room = _TITLE_CHARS
    if sys.stdout.isatty():
        widths = [
            max(len(output.safe(cell)) for cell in column) for column in zip(*rows, strict=True)
        ]
        others = sum(widths) - widths[3] + 2 * (len(widths) - 1)
        room = max(_columns() - others, _TITLE_CHARS_MIN)
    return [[*row[:3], output.cut(output.safe(row[3]), room), row[4]] for row in rows]
