"""The record: the physical unit of every backend, one line of JSON, linked to the line before.

A record holds one event or one packed run. Its first members are its sequence number and `prev`,
the SHA-256 of the preceding record line (newline included; for record 0 the genesis of the
session). Its last member is the CRC-32 of everything before it in the line, so that each line also
proves itself: a page can be checked without its neighbours, and damage is put down to the line that
has it and not to the one whose link no longer fits.
"""

import hashlib
import itertools
import zlib
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import msgspec

from perdure.errors import InvalidValue
from perdure.model import limits, packing, values
from perdure.model.event import TYPE_PATTERN, Draft, Event

__all__ = ["BadRecordError", "Position", "Record", "decode_line", "digest", "seal"]

_CRC_TAIL = len(b',"crc":"00000000"}\n')
_HEX64 = "^[0-9a-f]{64}$"
_Time = Annotated[int, msgspec.Meta(ge=-limits.TIME_MS_MAX, le=limits.TIME_MS_MAX)]


class Position(NamedTuple):
    """Where a log stands: the last event's sequence number and the hash of the last record line.

    An empty log stands at (-1, genesis).
    """

    seq: int
    hash: str


class BadRecordError(Exception):
    """A line that is not an intact record. Internal: readers turn it into a problem report."""


def _length(chars_max: int) -> msgspec.Meta:
    return msgspec.Meta(min_length=1, max_length=chars_max)


class _Line(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """The members of a record line, in their order on disk."""

    seq: Annotated[int, msgspec.Meta(ge=0)]
    prev: Annotated[str, msgspec.Meta(pattern=_HEX64)]
    type: Annotated[str, msgspec.Meta(pattern=TYPE_PATTERN)]
    time: _Time
    crc: str
    data: msgspec.Raw
    agent: Annotated[str, _length(limits.AGENT_CHARS_MAX)] | None = None
    turn: Annotated[str, _length(limits.TURN_CHARS_MAX)] | None = None
    key: Annotated[str, _length(limits.KEY_CHARS_MAX)] | None = None
    ignorable: bool = False
    path: tuple[str | int, ...] | None = None
    dt: list[int] | None = None
    more: list[str] | None = None


_decoder = msgspec.json.Decoder(_Line)


class Record(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One intact record line.

    Attributes:
        first: sequence number of its first event.
        last: sequence number of its last event.
        prev: hash of the line before, 64 hex digits.
        hash: hash of this line, 64 hex digits.
        line: the exact bytes, newline included.

    """

    first: int
    last: int
    prev: str
    hash: str
    line: bytes
    fields: _Line

    @property
    def type(self) -> str:
        """Type of its events; all events of a record share it."""
        return self.fields.type

    @property
    def position(self) -> Position:
        """Where a log stands that ends with this record."""
        return Position(self.last, self.hash)

    def events(self, start: int = 0) -> list[Event]:
        """Its events from sequence number `start` on, expanded."""
        head = self.fields
        if head.more is None or head.dt is None or head.path is None:
            if self.last < start:
                return []
            return [self._event(0, head.time, bytes(head.data))]
        template = values.decode(head.data)
        time = head.time
        out = [] if self.first < start else [self._event(0, time, bytes(head.data))]
        for offset, (step, string) in enumerate(zip(head.dt, head.more, strict=True), 1):
            time += step
            if self.first + offset >= start:
                data = values.encode(packing.replace(template, head.path, string))
                out.append(self._event(offset, time, data))
        return out

    def _event(self, offset: int, time: int, raw: bytes) -> Event:
        head = self.fields
        return Event(
            self.first + offset,
            head.type,
            time,
            head.agent,
            head.turn,
            head.key,
            head.ignorable,
            raw,
        )


def digest(line: bytes) -> str:
    """SHA-256 of a line as 64 hex digits."""
    return hashlib.sha256(line).hexdigest()


def seal(position: Position, drafts: Sequence[Draft], *, pack: bool = True) -> list[Record]:
    """Number, pack and link `drafts` behind `position`.

    Raises:
        InvalidValue: a record line would be longer than 16 MiB.

    """
    groups = packing.group(drafts) if pack else (((one,), None) for one in drafts)
    records = []
    seq, prev = position.seq + 1, position.hash
    for members, run in groups:
        head = members[0]
        fields = _Line(
            seq,
            prev,
            head.type,
            head.time,
            "",
            msgspec.Raw(head.raw),
            head.agent,
            head.turn,
            head.key,
            head.ignorable,
            None if run is None else run.path,
        )
        if run is not None:
            times = [member.time for member in members]
            fields.dt = [after - before for before, after in itertools.pairwise(times)]
            fields.more = run.more
        line = _encode(fields, head.raw)
        if len(line) > limits.RECORD_BYTES_MAX:
            raise InvalidValue(
                "data",
                f"a record of {len(line)} bytes, at most {limits.RECORD_BYTES_MAX} are kept",
                hint="keep large content beside the log (put_blob) and refer to it",
            )
        record = Record(seq, seq + len(members) - 1, prev, digest(line), line, fields)
        records.append(record)
        seq, prev = record.last + 1, record.hash
    return records


def _encode(fields: _Line, data: bytes) -> bytes:
    parts = [b'{"seq":%d,"prev":"%s","type":"%s","time":%d' % (
        fields.seq, fields.prev.encode(), fields.type.encode(), fields.time
    )]  # fmt: skip
    for name, value in ((b"agent", fields.agent), (b"turn", fields.turn), (b"key", fields.key)):
        if value is not None:
            parts.append(b',"%s":%s' % (name, values.encode(value)))
    if fields.ignorable:
        parts.append(b',"ignorable":true')
    if fields.path is not None:
        parts.append(b',"path":%s,"dt":%s,"more":%s' % (
            values.encode(fields.path), values.encode(fields.dt), values.encode(fields.more)
        ))  # fmt: skip
    parts.append(b',"data":%s' % data)
    body = b"".join(parts)
    return b'%s,"crc":"%08x"}\n' % (body, zlib.crc32(body))


def decode_line(line: bytes) -> Record:
    """Read one record line and check everything that can be checked without its neighbours.

    Raises:
        BadRecordError: with the reason, if it is not an intact record.

    """
    if len(line) > limits.RECORD_BYTES_MAX:
        raise BadRecordError(f"line of {len(line)} bytes, longer than any record")
    body, tail = line[:-_CRC_TAIL], line[-_CRC_TAIL:]
    if tail != b',"crc":"%08x"}\n' % zlib.crc32(body):
        raise BadRecordError("checksum does not match")
    try:
        fields = _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        fields = _decode_slowly(line, error)
    events = _check_run(fields)
    return Record(fields.seq, fields.seq + events - 1, fields.prev, digest(line), line, fields)


def _decode_slowly(line: bytes, error: Exception) -> _Line:
    """Lines with lone surrogates: msgspec does not read them, the standard library does."""
    try:
        members = values.decode(line)
        members["data"] = msgspec.Raw(values.encode(members["data"]))
        run = members.get("more")
        members["more"] = None
        fields = msgspec.convert(members, _Line)
        fields.more = _strings(run)
    except (ValueError, TypeError, LookupError, AttributeError, msgspec.MsgspecError):
        raise BadRecordError(f"not a record: {error}") from error
    return fields


def _strings(run: Any) -> list[str] | None:
    if run is not None and not (isinstance(run, list) and all(isinstance(s, str) for s in run)):
        raise TypeError("more is not a list of strings")
    return run


def _check_run(fields: _Line) -> int:
    """Number of events in the record."""
    if fields.more is None:
        if fields.dt is not None or fields.path is not None:
            raise BadRecordError("half of a packed run")
        return 1
    if fields.dt is None or fields.path is None or fields.key is not None or fields.ignorable:
        raise BadRecordError("half of a packed run")
    events = len(fields.more) + 1
    if len(fields.dt) != events - 1 or not (
        limits.RUN_EVENTS_MIN <= events <= limits.RUN_EVENTS_MAX
    ):
        raise BadRecordError("packed run of a wrong length")
    times = itertools.accumulate(fields.dt, initial=fields.time)
    if not all(-limits.TIME_MS_MAX <= time <= limits.TIME_MS_MAX for time in times):
        raise BadRecordError("packed run with a time out of range")
    try:
        target = packing.follow(values.decode(fields.data), fields.path)
    except (ValueError, LookupError, TypeError):
        target = None
    if not isinstance(target, str):
        raise BadRecordError("packed run whose path leads to no string")
    return events
