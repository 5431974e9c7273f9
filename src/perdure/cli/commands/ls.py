"""`perdure ls`: every session of the store, the newest first."""

import os
from typing import Any

import click

from perdure.backends.base import Entry
from perdure.cli import output
from perdure.cli.options import json_option, opened
from perdure.errors import PerdureError, StorageFull, StorageUnavailable
from perdure.store import Store

__all__ = ["command"]


@click.command("ls")
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """List the sessions, the newest first.

    Damaged ones are listed with the reason, as far as it shows without reading their logs. The
    namespaces directly below are named; their sessions are listed with --namespace. The status is
    that of the log's end: that a turn was left open is told by `perdure show` and `verify`.

    JSON: {"sessions": [{id, created_at, status, events, bytes, cwd, source, reason}],
    "namespaces": [name]}. Times are Unix milliseconds; what is not known is null.
    """
    store = opened(ctx)
    rows = [_row(store, entry) for entry in store.list()]
    rows.sort(key=lambda row: -1 if row["created_at"] is None else row["created_at"], reverse=True)
    below = store.namespaces()
    if as_json:
        output.document({"sessions": rows, "namespaces": below})
        return
    if rows:
        headings = ["STATUS", "CREATED (UTC)", "EVENTS", "BYTES", "ID", "FOLDER"]
        output.table([headings, *map(_cells, rows)], right=(2, 3))
    else:
        output.line(f"no sessions in {ctx.find_root().obj}")
    if below:
        output.line(f"namespaces here: {', '.join(below)} (--namespace NAME)")


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


def _size(path: str | None) -> int | None:
    try:
        return os.stat(path).st_size if path is not None else None  # noqa: PTH116
    except OSError:
        return None


def _cells(row: dict[str, Any]) -> list[str]:
    created = "-" if row["created_at"] is None else output.timestamp(row["created_at"])
    events, size = ("-" if row[name] is None else str(row[name]) for name in ("events", "bytes"))
    last = f"({row['reason']})" if row["reason"] else row["cwd"] or ""
    return [row["status"], created, events, size, row["id"], last]
