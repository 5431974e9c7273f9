"""What a reader sees of a session, without writing a byte and without waiting for anybody."""

from collections.abc import Iterator

from perdure.backends.base import Backend, Stored
from perdure.durable.locks import Holder
from perdure.errors import SessionDamaged
from perdure.model.event import Event
from perdure.model.header import VOCABULARY, Header, encode_header
from perdure.model.record import BadRecordError, Position, decode_line
from perdure.recovery.closers import OpenWork
from perdure.recovery.tail import Verdict
from perdure.recovery.walk import Problem, Walk

__all__ = ["Inspection", "damage", "raw_lines"]


class Inspection:
    """A session as found. Cheap to make; what reads the log says so.

    Attributes:
        id: the id that was asked for.
        header: the header, or None if it is damaged or of an unsupported format.
        holder: who was writing when the inspection was made, or None.

    """

    def __init__(self, backend: Backend, session: str) -> None:
        """Look at header, lock and tail. Made by `Store.inspect`."""
        self._backend = backend
        self._stored: Stored = backend.stored(session)
        self.id = session
        self.header: Header | None = self._stored.header
        self.holder: Holder | None = backend.holder(session)
        self._whole: Walk | None = None
        self._closers: list[Event] | None = None
        self._later = 0

    def __repr__(self) -> str:
        """Which session; its state is not looked up for this."""
        return f"<Inspection of {self.id!r}>"

    def _walk(self) -> Walk | None:
        """A new pass; the tail is read first, so that the log is never behind it."""
        if self.header is None:
            return None
        tail = self._backend.tail(self.id)
        begin = self._stored.begin
        return Walk(
            self.header,
            self._backend.scan(self.id, begin),
            acknowledged=tail.acknowledged,
            begin=begin,
        )

    @property
    def events(self) -> Iterator[Event]:
        """The verified events, then the closers of an interrupted turn; read as it is iterated.

        It ends where the verified prefix ends: `problems` says whether that is the end of the log.
        """
        walk = self._walk()
        if walk is None:
            return
        work = OpenWork()
        for record in walk.records():
            work.record(record)
            yield from record.events()
        yield from self._close(walk, work)

    def _close(self, walk: Walk, work: OpenWork) -> list[Event]:
        """Closers as events behind the log; none while somebody writes or where damage begins."""
        closing = (
            self.header is not None
            and self.header.vocabulary == VOCABULARY
            and self.holder is None
            # A writer that came meanwhile may be at work in the turn that looks abandoned.
            and self._backend.holder(self.id) is None
            and walk.verdict is not Verdict.DAMAGED
        )
        drafts = work.closers() if closing else []
        return [one.at(seq) for seq, one in enumerate(drafts, walk.position.seq + 1)]

    def _read_whole(self) -> Walk | None:
        """One pass over everything, remembered."""
        if self._whole is None:
            walk = self._walk()
            if walk is None:
                return None
            work = OpenWork()
            for record in walk.records():
                work.record(record)
            self._closers = self._close(walk, work)
            if walk.verdict is Verdict.DAMAGED:
                self._later = sum(record.last - record.first + 1 for record in walk.later())
            walk.close()
            self._whole = walk
        return self._whole

    @property
    def closers(self) -> list[Event]:
        """The events that would close what a dead writer left open. Reads everything."""
        self._read_whole()
        return self._closers or []

    @property
    def position(self) -> Position | None:
        """Where the log ends; None without a header. Reads everything only after a crash."""
        if self.header is None:
            return None
        tail = self._backend.tail(self.id)
        if tail.settled and tail.acknowledged is not None:
            return tail.acknowledged
        walk = self._read_whole()
        return walk.position if walk is not None else None

    @property
    def verified(self) -> Position | None:
        """Where the verified prefix ends; None without a header. Reads everything."""
        walk = self._read_whole()
        return walk.position if walk is not None else None

    @property
    def status(self) -> str:
        """A fact of the tail, read without the log where the tail file allows it.

        running (somebody writes), complete, torn, unterminated or ahead (a writer died in a
        commit), damaged, unsupported. Whether a turn is open is told by `closers`, damage before
        the tail by `problems`.
        """
        if self._stored.unsupported is not None:
            return Verdict.UNSUPPORTED.value
        if self.header is None:
            return Verdict.DAMAGED.value
        if self.holder is not None:
            return "running"
        if self._whole is None and self._backend.tail(self.id).settled:
            return Verdict.COMPLETE.value
        walk = self._read_whole()
        return walk.verdict.value if walk is not None else Verdict.DAMAGED.value

    @property
    def problems(self) -> list[Problem]:
        """Everything that does not hold together, first things first. Reads everything.

        A tail that is torn is not a problem while somebody writes: it is the commit under way.
        """
        if self._stored.problem is not None:
            return [self._stored.problem]
        walk = self._read_whole()
        if walk is None:
            return []
        first = [walk.problem] if walk.problem is not None else []
        if self.holder is not None and walk.verdict is Verdict.TORN:
            first = []
        return first + walk.further

    @property
    def damaged(self) -> bool:
        """Whether appends are refused. Reads everything."""
        walk = self._read_whole()
        return walk is None or walk.verdict is Verdict.DAMAGED

    @property
    def later_count(self) -> int:
        """How many intact events stand behind the damage. Reads everything."""
        self._read_whole()
        return self._later

    def later(self) -> Iterator[Event]:
        """Intact events behind the first problem, UNVERIFIED: nothing links them to the prefix."""
        walk = self._walk()
        if walk is None:
            header = self._stored.header or _nobody()
            pieces = self._backend.scan(self.id, self._stored.begin)
            walk = Walk(header, pieces, acknowledged=None, begin=self._stored.begin)
        else:
            for _ in walk.records():
                pass
            if walk.verdict is not Verdict.DAMAGED:
                return
        for record in walk.later():
            yield from record.events()


def raw_lines(backend: Backend, session: str, seq: int) -> Iterator[bytes | Problem]:
    """What `Store.raw` gives."""
    stored = backend.stored(session)
    return _raw_lines(backend, session, seq, stored)


def _raw_lines(
    backend: Backend, session: str, seq: int, stored: Stored
) -> Iterator[bytes | Problem]:
    if not stored.begin and stored.header is not None and not seq:
        # This medium keeps the header apart from the records.
        yield encode_header(stored.header)
    for piece in backend.scan(session, 0 if not seq else stored.begin):
        if piece.flaw is not None:
            yield Problem("frame", None, piece.start, piece.end, piece.flaw)
        for line in piece.lines:
            if not seq or _reaches(line, seq):
                yield line


def _reaches(line: bytes, seq: int) -> bool:
    """Whether a record holds `seq` or a later event; what is no record is not left out."""
    try:
        return decode_line(line).last >= seq
    except BadRecordError:
        return True


def _nobody() -> Header:
    """Stands in for a header that cannot be read: no record links to it."""
    return Header(format=0, id="?", created_at=0)


def damage(session: str, stored: Stored, walk: Walk | None = None) -> Exception:
    """The error that refuses a session, from what was found."""
    if stored.unsupported is not None:
        return stored.unsupported
    problem = stored.problem or (walk.problem if walk is not None else None)
    if problem is None:
        return SessionDamaged(session, "it does not hold together")
    return SessionDamaged(
        session,
        problem.reason,
        kind=problem.kind,
        record=problem.record,
        start=problem.start,
        end=problem.end,
    )
