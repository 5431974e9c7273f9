"""Storing lines of a source: in batches, in the session that keeps it, which is opened when needed.

In a dry run everything is counted and nothing is stored.
"""

import codecs
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Self

from perdure.errors import InvalidValue, PerdureError, StaleWriter
from perdure.importers.archive import Kept
from perdure.importers.lines import Line
from perdure.lenses.lines import REWRITTEN, key_of
from perdure.model.event import draft
from perdure.model.limits import DATA_BYTES_MAX, RECORD_BYTES_MAX
from perdure.model.record import Position
from perdure.store import Session, Store
from perdure.store.notes import know_new

__all__ = ["Appender", "held"]

_BATCH_LINES = 512
_BATCH_BYTES = 1024 * 1024
_WAIT_SECONDS = 10.0
"""So long another import of the same file is waited for."""

_SURELY_FITS = RECORD_BYTES_MAX // 8
"""Lines up to this many bytes fit in a record: in JSON a byte takes at most six."""

_TEXT_BYTES_MAX = 48 * 1024 * 1024
"""A text takes four times its room where one character of it is an emoji; a record needs more."""

_STEP_BYTES = 64 * 1024
_CONTROLS = [bytes((byte,)) for byte in range(32) if byte not in b"\b\t\n\f\r"]
"""Each takes six bytes."""

_ESCAPED = [bytes((byte,)) for byte in (*b'"\\', *range(32))]
"""Each takes two bytes at least."""

_Unread = codecs.getincrementaldecoder("utf-8")


def held(store: Store, session: str) -> Session:
    """The writer of a session, alone with it; another import of the same source is waited for.

    Raises:
        PerdureError: as `Store.writer`.

    """
    return store.writer(session, wait=_WAIT_SECONDS)


class Appender:
    """Appends to the session of one source.

    Attributes:
        generation: of the lines that follow.
        last: the last generation that was begun.
        time: of the last line, Unix milliseconds.
        stored: lines that were appended durably.
        dry: whether nothing is stored.

    """

    def __init__(
        self,
        store: Store,
        kept: Kept,
        header: dict[str, Any],
        *,
        dry: bool,
        writer: Session | None = None,
    ) -> None:
        """Begin behind what is kept; `header` is used if the session is new.

        Where the `writer` of the session is given, nobody appended since it was looked at.
        """
        self._store = store
        self._kept = kept
        self._header = header
        self.dry = dry
        self._writer = writer
        if writer is not None:
            # Places only ever come behind those that are stored, or with a later generation.
            know_new(writer)
        self._batch: list[dict[str, Any]] = []
        self._batch_bytes = 0
        self.generation = self.last = 0
        self.time = 0
        self.stored = 0

    def line(
        self,
        line: Line,
        type: str,  # noqa: A002
        time: int | None,
        again: Callable[[], Iterable[bytes]],
    ) -> bool:
        """Append a line, which has the time of the line before if it has none.

        `again` reads its bytes. Returns whether it is kept as content.
        """
        self.time = self.time if time is None else time
        data: Any = _text(line)
        large = data is None
        if large:
            data = {"blob": self.content(again()), "bytes": line.size}
        self._add(type, key_of(self.generation, line.offset), data, min(line.size, _BATCH_BYTES))
        return large

    def rewritten(self, offset: int) -> None:
        """Have the generation count, which begins at `offset`: what stood behind that is past."""
        data = {"generation": self.generation, "offset": offset}
        self._add(REWRITTEN, key_of(self.generation, offset), data, 0)
        self.stored -= 1
        self.flush()

    def event(self, type: str, data: Any, time: int) -> None:  # noqa: A002
        """Append an event that is no line."""
        self.flush()
        if not self.dry:
            self.writer().append(type, data, time=time)

    def content(self, parts: Iterable[bytes]) -> str:
        """Keep bytes beside the log for ever; returns their digest."""
        if self.dry:
            return ""
        self.flush()
        return self.writer().put_blob(parts, pinned=True)

    def _add(self, type: str, key: str, data: Any, size: int) -> None:  # noqa: A002
        self._batch.append({"type": type, "key": key, "time": self.time, "data": data})
        self._batch_bytes += size
        if len(self._batch) >= _BATCH_LINES or self._batch_bytes >= _BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Make what was added durable.

        Raises:
            PerdureError: as `Session.append_many` and `Store.writer`.

        """
        if self._batch:
            if not self.dry:
                self.writer().append_many(self._batch)
            self.stored += len(self._batch)
            self._batch, self._batch_bytes = [], 0

    def writer(self) -> Session:
        """The session, open.

        Raises:
            StaleWriter: somebody else appended while it was compared.
            PerdureError: as `Store.writer` and `Store.create`.

        """
        if self._writer is None:
            self._writer = self._open()
        return self._writer

    def _open(self) -> Session:
        kept = self._kept
        if kept.position is None:
            return self._store.create(kept.session, vocabulary=None, **self._header)
        writer = held(self._store, kept.session)
        if writer.position != kept.position:
            writer.close()
            raise StaleWriter(kept.session, "somebody else appended while it was compared")
        know_new(writer)
        return writer

    @property
    def position(self) -> Position | None:
        """Where the log ends as far as this is known; None: it is not there yet."""
        return self._kept.position if self._writer is None else self._writer.position

    def __enter__(self) -> Self:
        """The appender itself."""
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Give the session back."""
        if self._writer is None:
            return
        if error is None:
            self._writer.close()
        else:
            with suppress(PerdureError):
                self._writer.close()


def _text(line: Line) -> str | None:
    """The line as the data of an event; None: no record holds it, or memory hardly does."""
    if line.raw is None:
        return None
    if line.size > _SURELY_FITS and _json_bytes(line.raw) > DATA_BYTES_MAX:
        # Not even tried: as JSON it would take many times its room before that is refused.
        return None
    # Bytes that are no UTF-8 become lone surrogates, which the log keeps and which turn back.
    text = line.raw.decode("utf-8", "surrogateescape")
    if line.size > _SURELY_FITS:
        if sys.getsizeof(text) > _TEXT_BYTES_MAX:
            return None
        try:
            draft("x", text, time=0)
        except InvalidValue:
            return None
    return text


def _json_bytes(raw: bytes) -> int:
    """How many bytes a line takes as JSON, at least: six for each that is no UTF-8."""
    read = _Unread("ignore")
    steps = (raw[at : at + _STEP_BYTES] for at in range(0, len(raw), _STEP_BYTES))
    known = sum(len(read.decode(step).encode()) for step in steps)
    escaped = sum(map(raw.count, _ESCAPED)) + 4 * sum(map(raw.count, _CONTROLS))
    return len(raw) + escaped + 5 * (len(raw) - known)
