"""How values stand in the cells of a database of ours.

Texts stand as bytes, lone surrogates included, so that two of them never share a row. Every number
has 64 bits; what has more stands as the nearest that has not.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import apsw
import msgspec

__all__ = [
    "BIGGEST",
    "Kinds",
    "Unsound",
    "ask",
    "cell",
    "cells",
    "clamped",
    "numbers",
    "optional",
    "pack",
    "sql",
    "text",
    "unpack",
]

BIGGEST = 2**63 - 1
_SMALLEST = -(2**63)

Unsound = apsw.CorruptError
"""What is raised for a cell that holds what no cell of ours does, in whichever database."""

Kinds = type | tuple[type, ...]
"""What a cell may be."""


def ask(
    db: apsw.Connection,
    query: str,
    bindings: dict[str, Any] | Sequence[Any] = (),
    kinds: Sequence[Kinds] = (),
) -> list[tuple[Any, ...]]:
    """All rows of an answer.

    Raises:
        apsw.CorruptError: a cell is of none of the types that `kinds` names for its column; a
            damaged page may say so.

    """
    rows = db.execute(query, bindings).fetchall()
    for row in rows if kinds else ():
        for value, kind in zip(row, kinds, strict=True):
            if not isinstance(value, kind):
                raise apsw.CorruptError("a row has cells of another type than its columns")
    return rows


def sql(*parts: str) -> str:
    """A statement made of parts that stand in our modules alone; values are bound."""
    return " ".join(parts)


def clamped(number: int) -> int:
    """The nearest number that SQLite can hold."""
    return max(_SMALLEST, min(BIGGEST, number))


def cell(text: str) -> bytes:
    """A text as it stands in a column."""
    return text.encode("utf-8", "surrogatepass")


def optional(text: str | None) -> bytes | None:
    """As `cell`; None stands as it is."""
    return None if text is None else text.encode("utf-8", "surrogatepass")


def text(cell: object) -> str:
    """The text of a cell.

    Raises:
        apsw.CorruptError: no text of ours stands so.

    """
    if not isinstance(cell, bytes):
        raise apsw.CorruptError("a cell that holds a text holds something else")
    try:
        return cell.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise apsw.CorruptError(f"a cell holds no text: {error}") from error


def cells(texts: Iterable[str]) -> str:
    """Texts to be compared with cells: `IN (SELECT unhex(value) FROM json_each(:name))`.

    So a statement is the same whatever the number of texts, and has to be prepared once.
    """
    return json.dumps([cell(text).hex() for text in texts])


def numbers(found: Iterable[int]) -> str:
    """Numbers to be compared with cells: `IN (SELECT value FROM json_each(:name))`."""
    return f"[{','.join(map(str, found))}]"


# --- values ---------------------------------------------------------------------------------------

_TEXT, _NUMBER, _PAIRS = 1, 2, 3
_DEPTH_MAX = 200
_encoder = msgspec.msgpack.Encoder()


def _from_extension(code: int, data: memoryview) -> Any:
    if code == _TEXT:
        return bytes(data).decode("utf-8", "surrogatepass")
    if code == _NUMBER:
        return int(bytes(data), 16)
    return dict(_decoder.decode(data))


_decoder = msgspec.msgpack.Decoder(ext_hook=_from_extension)


def pack(value: Any) -> bytes:
    """Any JSON value as bytes; what is none is kept as well as it can be."""
    try:
        return _encoder.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return _encoder.encode(_packable(value, 0))


def unpack(packed: object) -> Any:
    """What `pack` was given.

    Raises:
        apsw.CorruptError: it was given nothing that would stand so.

    """
    if not isinstance(packed, bytes):
        raise apsw.CorruptError("a cell that holds a value holds something else")
    try:
        return _decoder.decode(packed)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        raise apsw.CorruptError(f"a cell holds no value: {error}") from error


def _packable(value: Any, depth: int) -> Any:
    """The same with what MessagePack has no form for in a form of ours."""
    if isinstance(value, str):
        return (
            value
            if value.isascii()
            else msgspec.msgpack.Ext(_TEXT, value.encode("utf-8", "surrogatepass"))
        )
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        if _SMALLEST <= value <= BIGGEST:
            return value
        return msgspec.msgpack.Ext(_NUMBER, f"{value:x}".encode())
    if depth < _DEPTH_MAX:
        if isinstance(value, dict):
            pairs = [
                (_packable(str(name), depth), _packable(each, depth + 1))
                for name, each in value.items()
            ]
            return msgspec.msgpack.Ext(_PAIRS, _encoder.encode(pairs))
        if isinstance(value, list | tuple):
            return [_packable(each, depth + 1) for each in value]
    return None
