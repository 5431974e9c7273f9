"""`perdure ls`: every session of the store, the newest first."""

import os
from typing import Any

import click

from perdure.backends.base import Entry
from perdure.cli import output
from perdure.cli.options import json_option, opened
from perdure.errors import PerdureError
from perdure.store import Store

__all__ = ["command"]


@click.command("ls")
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """List the sessions, the newest first.

    Damaged ones are listed with the reason, as far as it shows without reading their logs.

    JSON: {"sessions": [{id, created_at, status, events, bytes, cwd, source, reason}]}. Times are
    Unix milliseconds; what is not known is null.
    """
    store = opened(ctx)
    rows = [_row(store, entry) for entry in store.list()]
    rows.sort(key=lambda row: -1 if row["created_at"] is None else row["created_at"], reverse=True)
    if as_json:
        output.document({"sessions": rows})
        return
    if not rows:
        output.line(f"no sessions in {ctx.obj}")
        return
    table = [["STATUS", "CREATED (UTC)", "EVENTS", "BYTES", "ID", "FOLDER"]]
    table += [_cells(row) for row in rows]
    widths = [max(len(cells[column]) for cells in table) for column in range(5)]
    for cells in table:
        padded = [
            cell.rjust(width) if column in (2, 3) else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=False))
        ]
        output.line("  ".join([*padded, cells[5]]).rstrip())


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
        if entry.problem is not None and entry.problem.kind == "unsupported":
            row["status"] = "unsupported"
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
    except PerdureError as error:
        row["status"], row["reason"] = "damaged", error.message
    return row


def _size(path: str | None) -> int | None:
    try:
        return os.stat(path).st_size if path is not None else None  # noqa: PTH116
    except OSError:
        return None


def _cells(row: dict[str, Any]) -> list[str]:
    """The row as text, escaped here so that the columns stand under each other."""
    created = "-" if row["created_at"] is None else output.timestamp(row["created_at"])
    events, size = ("-" if row[name] is None else str(row[name]) for name in ("events", "bytes"))
    last = f"({row['reason']})" if row["reason"] else row["cwd"] or ""
    cells = (row["status"], created, events, size, row["id"], last)
    return [output.safe(cell) for cell in cells]
