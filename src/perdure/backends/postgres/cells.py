"""Texts of callers as bytes, records as rows."""

from collections.abc import Iterable, Iterator
from typing import Any

from perdure.databases.cells import optional
from perdure.databases.postgres.keys import key as key_of
from perdure.model.record import Record

__all__ = ["COLUMNS", "TYPES", "Row", "batches", "row_of", "rows_of", "shown", "text"]

Row = tuple[Any, ...]
"""The cells of a row of `records`, in the order of `COLUMNS`."""

COLUMNS = "namespace, session, seq, count, start, type, time, agent, turn, key, line"

TYPES = (
    "text",
    "int8",
    "int8",
    "int8",
    "int8",
    "text",
    "int8",
    "bytea",
    "bytea",
    "bytea",
    "bytea",
)
"""Those of `COLUMNS`, for COPY."""

_BATCH = 2000
_BATCH_BYTES = 4 * 1024 * 1024


def text(cell: bytes | None) -> str:
    """The text that stands as `cell`."""
    if cell is None:
        return ""
    try:
        return cell.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        # From somebody's hand: no text of ours stands so.
        return cell.decode("utf-8", "backslashreplace")


def shown(text: str) -> str:
    """A text for people, where what PostgreSQL cannot hold need not come back as it was."""
    return text.replace("\0", "\N{SYMBOL FOR NULL}").encode("utf-8", "replace").decode()


def rows_of(
    namespace: str, number: int, records: Iterable[Record], start: int
) -> tuple[list[Row], int]:
    """Records that follow each other as rows, and where the last of them ends."""
    rows = []
    for record in records:
        rows.append(row_of(namespace, number, record, start))
        start += len(record.line)
    return rows, start


def row_of(namespace: str, number: int, record: Record, start: int) -> Row:
    """A record as a row of `records`."""
    fields = record.fields
    agent, turn, key = fields.agent, fields.turn, fields.key
    return (
        namespace,
        number,
        record.first,
        record.last - record.first + 1,
        start,
        fields.type,
        fields.time,
        optional(agent),
        optional(turn),
        None if key is None else key_of(key),
        record.line,
    )


def batches(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Records in lists that memory has room for."""
    batch: list[Record] = []
    size = 0
    for record in records:
        batch.append(record)
        size += len(record.line)
        if len(batch) >= _BATCH or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
