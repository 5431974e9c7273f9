"""Checkpoints: the rows of all views at a position of a log, in lines that check themselves.

The first line holds every row (the base); each further one holds the rows that changed since, so
that a turn costs what is new in it. A checkpoint is derived: it counts only as far as it is whole,
and only for the log that has its hash at its position. `docs/format.md` describes the lines.
"""

import zlib
from collections import Counter
from typing import Any, NamedTuple

import msgspec

from perdure.backends.base import Backend, Hold
from perdure.errors import InvalidValue
from perdure.model import values
from perdure.model.header import Header
from perdure.model.record import Position, Record
from perdure.recovery.closers import OpenWork
from perdure.store.imported import lens_version
from perdure.views.fold import Fold

__all__ = ["FORMAT", "NAME", "NAMES", "OPEN", "Checkpoint", "Handy", "Keeper", "read_checkpoint"]

FORMAT = 1
"""Lines of another format are made by another version, and mean nothing to this one."""

NAME = "checkpoint"
"""The name of the derived data."""

OPEN = "open"
"""The name of what a writer has to know that nobody asks for views: a checkpoint without any."""

NAMES = (NAME, OPEN)

SLACK_BYTES = 64 * 1024
SLACK_BYTES_SHRUNK = 4 * 1024
"""So much may be stored beyond twice what is live, and so much after most of it was removed."""

_CRC_TAIL = len(b',"crc":"00000000"}\n')

_Rows = dict[str, dict[str, Any]]


class _Line(msgspec.Struct, gc=False):
    """A line but for its checksum; what the rows hold stays text."""

    seq: int
    hash: str
    put: dict[str, dict[str, msgspec.Raw]]
    gone: dict[str, list[str]] = {}
    skipped: dict[str, int] = {}
    open: msgspec.Raw = msgspec.Raw()
    # Only the first line has these.
    checkpoint: int | None = None
    header: str = ""
    views: dict[str, int] = {}
    lens: dict[str, int] = {}


class _Plain(_Line, gc=False):
    """A line with text that msgspec cannot read: half a character stops it, and nobody else."""

    put: dict[str, dict[str, Any]]


_decoder = msgspec.json.Decoder(_Line)


class Checkpoint:
    """A stored checkpoint, as far as it is whole.

    Attributes:
        position: the last event that it takes into account.
        views: version of each view that it has rows of.
        lens: version of the lens that the rows were read through, where there is one.
        size: how many of the bytes that were read count.
        base: how many of them are the first line.
        crc: checksum of those.
        torn: bytes that do not count stand behind them.
        skipped: how many events of other types were skipped, once `rows` was called.

    """

    def __init__(self, lines: list[memoryview], first: _Line, size: int, crc: int) -> None:
        """Made by `read_checkpoint`.

        Raises:
            ValueError: the last line is not as this version writes it.

        """
        self._lines: list[memoryview | _Line] = [first, *lines[1:]]
        last = self._line(len(lines) - 1)
        self.position = Position(last.seq, last.hash)
        self.views = first.views
        self.lens = first.lens
        self.size = size
        self.base = len(lines[0])
        self.crc = crc
        self.torn = False
        self.skipped: Counter[str] = Counter()

    def _line(self, number: int) -> _Line:
        found = self._lines[number]
        if not isinstance(found, _Line):
            found = self._lines[number] = _decoded(found)
        return found

    def work(self) -> OpenWork:
        """What was open at the position.

        Raises:
            ValueError: it is not as this version writes it.

        """
        for number in range(len(self._lines) - 1, -1, -1):
            told = self._line(number).open
            if bytes(told):
                return OpenWork.restored(values.decode(told))
        raise ValueError("nothing is said of what is open")

    def rows(self) -> _Rows:
        """The rows of each view; the values are `msgspec.Raw`, or decoded where it had to be.

        They are the caller's own, and this can be asked once.

        Raises:
            ValueError: as `work`.

        """
        with values.uncollected():
            return self._rows()

    def _rows(self) -> _Rows:
        rows: _Rows = {name: {} for name in self.views}
        skipped: Counter[str] = Counter()
        for number in range(len(self._lines)):
            found = self._line(number)
            if (found.checkpoint is None) != bool(number):
                raise ValueError("a line of another checkpoint")
            try:
                for name, keys in found.gone.items():
                    for key in keys:
                        rows[name].pop(key, None)
                for name, put in found.put.items():
                    if number:
                        rows[name].update(put)
                    else:
                        rows[name] = put
            except KeyError:
                raise ValueError("a line with rows of another view") from None
            if not number and rows.keys() != self.views.keys():
                raise ValueError("a base with rows of another view")
            if found.skipped:
                # They only grow.
                skipped |= Counter(found.skipped)
        self.skipped = skipped
        return rows


class Handy(NamedTuple):
    """A checkpoint that was just read, and the records that follow it up to the end of the log."""

    checkpoint: Checkpoint
    records: tuple[Record, ...]


def _decoded(line: memoryview) -> _Line:
    try:
        return _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        members = values.decode(bytes(line))
        if isinstance(members, dict) and "open" in members:
            members["open"] = msgspec.Raw(values.encode(members["open"]))
        return msgspec.convert(members, _Plain)
    except (TypeError, msgspec.MsgspecError) as error:
        raise ValueError(f"no line of a checkpoint: {error}") from error


def read_checkpoint(data: bytes | None, header: Header) -> Checkpoint | None:
    """The checkpoint that stands in `data`, if it is one of the log with this header.

    What stands behind the last line that is whole does not count. None if nothing counts.
    """
    lines, size, crc = _whole_lines(data or b"")
    if not lines or not _is_text(data or b""):
        return None
    try:
        first = _decoded(lines[0])
        if first.checkpoint != FORMAT or first.header != header.digest:
            return None
        found = Checkpoint(lines, first, size, crc)
    except ValueError:
        return None
    found.torn = size < len(data or b"")
    return None if found.position.seq < 0 else found


def _is_text(data: bytes) -> bool:
    """Whether it is UTF-8: what stays text is not looked at before somebody asks for it."""
    try:
        return data.isascii() or bool(data.decode())
    except UnicodeDecodeError:
        return False


def _whole_lines(data: bytes) -> tuple[list[memoryview], int, int]:
    """The lines from the start on whose checksums are right, their bytes, the last checksum."""
    lines: list[memoryview] = []
    at, crc, whole = 0, 0, memoryview(data)
    while (end := data.find(b"\n", at) + 1) > 0:
        # Each goes on from the one before: none can be missing, moved, or of another checkpoint.
        body = max(at, end - _CRC_TAIL)
        sum_ = zlib.crc32(whole[at:body], crc)
        if data[body:end] != b',"crc":"%08x"}\n' % sum_:
            break
        lines.append(whole[at:end])
        at, crc = end, sum_
    return lines, at, crc


# --- writing --------------------------------------------------------------------------------------


class Keeper:
    """Keeps the checkpoint of one session that is being written.

    Attributes:
        seq: the last event that the stored checkpoint takes into account, as far as is known.

    """

    def __init__(self, backend: Backend, header: Header, seq: int = -1) -> None:
        """Nothing is known of what is stored, so the first line is a base."""
        self._backend = backend
        self._header = header
        self.seq = seq
        # Bytes that are stored; None if that is not known for sure.
        self._size: int | None = None
        # How many of them are the first line.
        self._base = 0
        self._crc = 0
        self._sizes: dict[tuple[str, str], int] | None = None
        self._live = 0
        self._most = 0
        self._open = b""
        self._skipped: Counter[str] = Counter()

    def continues(self, found: Checkpoint | None) -> None:
        """Go on behind a checkpoint that the rows were read from, or from nothing."""
        self._size, self._sizes = None, None
        self.seq = -1
        self._skipped = Counter()
        if found is not None:
            self.seq = found.position.seq
            self._skipped = found.skipped.copy()
            if not found.torn:
                self._size, self._base, self._crc = found.size, found.base, found.crc
        self._open = b""

    def keep(self, hold: Hold, fold: Fold, work: OpenWork, *, last: bool = False) -> None:
        """Store what changed in the rows since the last time, or all of them anew.

        `last` says that this writer stores nothing after it.

        Raises:
            InvalidValue: a row is no JSON value.
            PerdureError: it could not be stored; the next call stores everything.

        """
        if self.holds(fold, last=last):
            return
        open_ = values.encode(work.dump())
        # Once for each writer all rows are looked at, and once more it has nothing else to do.
        leisure = last or self._sizes is None
        # Whatever goes wrong from here on, nobody knows what is stored.
        size, self._size = self._size, None
        if size is not None:
            line, crc = self._changed_rows(fold, open_)
            anew = self._spread(size + len(line)) or (leisure and self._scattered(size + len(line)))
            if not anew and self._append(hold, line, size):
                self._kept(fold, open_, size + len(line), crc)
                self._keep_open(hold, fold.position, open_)
                return
        line, crc = self._all_rows(fold, open_)
        self._backend.put_derived(hold, NAME, line)
        self._most, self._base = self._live, len(line)
        self._kept(fold, open_, len(line), crc)
        self._keep_open(hold, fold.position, open_)

    def _keep_open(self, hold: Hold, position: Position, open_: bytes) -> None:
        members = {"checkpoint": FORMAT, "header": self._header.digest, "views": {}}
        line, _ = self._line(members, position, {}, open_, 0)
        self._backend.put_derived(hold, OPEN, line)

    def keep_place(self, hold: Hold) -> None:
        """Store where a log stands in which nothing is ever open: its owner knows all kinds.

        So the next writer does not read it from its first event.

        Raises:
            PerdureError: it could not be stored.

        """
        self._keep_open(hold, hold.position, values.encode(OpenWork().dump()))
        self.seq = hold.position.seq

    def holds(self, fold: Fold, *, last: bool = False) -> bool:
        """Whether all that `keep` would store is stored."""
        if fold.position.seq != self.seq or self._size is None:
            return False
        return not (last and self._scattered(self._size))

    def _append(self, hold: Hold, line: bytes, size: int) -> bool:
        try:
            self._backend.put_derived(hold, NAME, line, at=size)
        except InvalidValue:
            # Somebody removed it, or something else is in its place.
            return False
        return True

    def _kept(self, fold: Fold, open_: bytes, size: int, crc: int) -> None:
        for rows in fold.rows.values():
            rows.stored()
        self._open = open_
        self._skipped = fold.skipped.copy()
        self.seq = fold.position.seq
        self._size, self._crc = size, crc

    def _spread(self, size: int) -> bool:
        """Whether so much would be stored that it is worth storing all rows anew."""
        self._most = max(self._most, self._live)
        shrunk = self._live < self._most // 2
        return size > 2 * self._live + (SLACK_BYTES_SHRUNK if shrunk else SLACK_BYTES)

    def _scattered(self, size: int) -> bool:
        """Whether most of it is in lines of what changed: one line with all is read much faster.

        What is stored for this at least doubles each time, so all of it is less than twice the
        last.
        """
        return size - self._base > self._base + SLACK_BYTES

    def _all_rows(self, fold: Fold, open_: bytes) -> tuple[bytes, int]:
        self._sizes = {}
        self._live = 0
        put = {name: self._encoded(name, rows.held) for name, rows in fold.rows.items()}
        views = {view.name: view.version for view in fold.views.values()}
        lens = lens_version(self._header)
        first = {"checkpoint": FORMAT, "header": self._header.digest, "views": views}
        first |= {"lens": lens} if lens else {}
        skipped = {"skipped": dict(fold.skipped)} if fold.skipped else {}
        return self._line(first, fold.position, {**skipped, "put": put}, open_, 0)

    def _changed_rows(self, fold: Fold, open_: bytes) -> tuple[bytes, int]:
        weighed = self._sizes is not None
        if not weighed:
            # The rows came from a checkpoint: once for each writer they are weighed.
            self._all_rows(fold, open_)
        sizes = self._sizes or {}
        put, gone = {}, {}
        for name, rows in fold.rows.items():
            set_, removed = rows.changes()
            # Rows that came and went since are not stored; what is not there was not weighed now.
            stored = [key for key in removed if not weighed or (name, key) in sizes]
            for key in stored:
                self._live -= sizes.pop((name, key), 0)
            if stored:
                gone[name] = stored
            if set_:
                put[name] = self._encoded(name, set_)
        told = b"" if open_ == self._open else open_
        counts = {kind: n for kind, n in fold.skipped.items() if self._skipped[kind] != n}
        changes = {k: v for k, v in (("skipped", counts), ("gone", gone)) if v}
        return self._line({}, fold.position, {**changes, "put": put}, told, self._crc)

    def _encoded(self, name: str, rows: Any) -> bytes:
        sizes = {} if self._sizes is None else self._sizes
        parts = []
        for key, value in rows.items():
            part = b"%s:%s" % (values.encode(key), values.encode(value))
            self._live += len(part) - sizes.get((name, key), 0)
            sizes[name, key] = len(part)
            parts.append(part)
        return b"{%s}" % b",".join(parts)

    def _line(
        self,
        first: dict[str, Any],
        position: Position,
        changes: dict[str, Any],
        open_: bytes,
        crc: int,
    ) -> tuple[bytes, int]:
        """A line and its checksum; `first` are the members that only a first line has.

        `changes` has `skipped` and `gone`, each if there are any, and the rows to `put` as text.
        """
        put = changes.pop("put", {})
        members = {**first, "seq": position.seq, "hash": position.hash, **changes}
        rows = b",".join(b"%s:%s" % (values.encode(name), each) for name, each in put.items())
        body = b'%s,"put":{%s}' % (values.encode(members)[:-1], rows)
        if open_:
            body += b',"open":%s' % open_
        sum_ = zlib.crc32(body, crc)
        return b'%s,"crc":"%08x"}\n' % (body, sum_), sum_
