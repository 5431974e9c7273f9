"""Walking a log: which records are proven, where the proof ends, and what stands behind it.

A backend cuts its medium into `Piece`s; the walk decodes their lines, checks checksum, sequence,
link and the acknowledged position, and gives out the verified prefix record by record. It holds one
record back: a link that does not fit may be the fault of either side, and what was given out as
verified cannot be taken back.
"""

import itertools
import re
from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple, Self

from perdure.model.header import Header
from perdure.model.limits import RECORD_BYTES_MAX
from perdure.model.record import BadRecordError, Position, Record, decode_line
from perdure.recovery.tail import TailFacts, Verdict, decide

__all__ = ["PROBLEMS_MAX", "Ending", "Known", "Piece", "Problem", "Walk"]

PROBLEMS_MAX = 100
"""Damaged places listed one by one, so that a report on mere noise stays readable."""

_RECORD_START = b'{"seq":'
_RECORD_END = re.compile(rb',"crc":"[0-9a-f]{8}"\}')
_ENDS_MAX = 8
_DOUBTED_MAX = 64
"""How many unreadable lines or frames in a row may turn out to be noise."""

_RESCUE_FACTOR = 16


class Piece(NamedTuple):
    """A stretch of a stored log, in its order on the medium.

    Attributes:
        start: where it begins, in the backend's own unit (bytes of the file).
        end: where it ends.
        lines: record lines, newline included; the very last of a log may lack it.
        flaw: why these bytes hold no lines, or None.
        framed: True if the lines share one range, as in a compressed frame; False if each line
            takes its own length.

    """

    start: int
    end: int
    lines: Sequence[bytes]
    flaw: str | None = None
    framed: bool = False


class Problem(NamedTuple):
    """One place where a log does not hold together.

    Attributes:
        kind: header, record, sequence, link, evidence, missing-tail, frame or unsupported.
        record: sequence number of the first event that is affected, if that is known.
        start: where it begins in the stored log, in bytes.
        end: where it ends.
        reason: what is wrong, for people.

    """

    kind: str
    record: int | None
    start: int
    end: int
    reason: str


class Known(NamedTuple):
    """What is known of a log without reading it: what was acknowledged must be in it.

    Attributes:
        acknowledged: the last acknowledged position, or None if nobody remembers one.
        earlier: another remembered position, not behind the first, or None.
        instead: why the log of this header is not the one that should stand here, or None.

    """

    acknowledged: Position | None
    earlier: Position | None = None
    instead: str | None = None


class Ending(NamedTuple):
    """Where a log ends: what is left of a pass when its records are forgotten.

    Attributes:
        position: where the verified prefix ends.
        end: byte behind its last record.
        piece_start: start of the piece (a line, or a frame) that holds the last verified record.
        acknowledged_end: byte behind the acknowledged position, or behind the header.
        problem: the first place that does not hold together, or None.
        verdict: what it amounts to.

    """

    position: Position
    end: int
    piece_start: int
    acknowledged_end: int
    problem: Problem | None
    verdict: Verdict

    @property
    def reason(self) -> str:
        """Why bytes that stand behind the end belong to no record, for people."""
        return self.problem.reason if self.problem is not None else "not part of any record"


class _Line(NamedTuple):
    raw: bytes | None
    start: int
    end: int
    flaw: str | None
    opens_piece: bool


class Walk:
    """One pass over a log. Iterate `records()` to its end, then read the attributes.

    Attributes:
        position: where the verified prefix ends.
        end: byte behind its last record.
        piece_start: start of the piece (a line, or a frame) that holds the last verified record.
        acknowledged_end: byte behind the acknowledged position, or behind the header.
        problem: the first place that does not hold together, or None. A torn tail has one as well.
        unterminated: the last record is whole but for its newline.
        facts: what `decide` needs; valid after the pass.

    """

    def __init__(
        self,
        header: Header,
        pieces: Iterator[Piece],
        *,
        known: Known,
        begin: int = 0,
        local: bool = False,
    ) -> None:
        """Prepare a pass over `pieces`, which start at byte `begin`.

        With `local` they start somewhere in the log, and the first record is taken as it comes.
        """
        self._header = header
        self._pieces = _split(pieces)
        self._lines: Iterator[_Line] = self._pieces
        self._behind: Iterator[Record] | None = None
        self._acknowledged = known.acknowledged
        self._known = known
        self.position = Position(-1, header.genesis)
        self._start = None if local else self.position
        self.end = begin
        self.acknowledged_end = begin
        self.problem: Problem | None = None
        self.unterminated = False
        self.further: list[Problem] = []
        self.piece_start = begin
        self._piece_opened = True
        self._doubted: list[_Line] = []

    def records(self) -> Iterator[Record]:
        """The verified prefix, in order."""
        held: tuple[Record, _Line] | None = None
        expected = self._start
        for line in self._lines:
            found = self._read(line)
            if isinstance(found, Problem):
                if self._doubt(found, line):
                    continue
                break
            if expected is None:
                expected = Position(found.first - 1, found.prev)
            misfit = self._fits(found, expected, line)
            if misfit is not None:
                suspect = misfit.kind == "link" and self.problem is None
                self._doubt(misfit, line)
                if suspect and held is not None:
                    held = self._blame(held, found)
                break
            self._accept_noise(found)
            if held is not None:
                yield self._prove(*held)
            held = (found, line)
            expected = found.position
        if held is not None:
            yield self._prove(*held)
        self._conclude()

    def _doubt(self, problem: Problem, line: _Line) -> bool:
        """The proof stops here, unless the next intact record continues the chain.

        True while it is still worth looking for that record.
        """
        if self.problem is None:
            self.problem = problem
            self._piece_opened = line.opens_piece
        self._doubted.append(line)
        return len(self._doubted) < _DOUBTED_MAX

    def _accept_noise(self, found: Record) -> None:
        """Nothing is missing where the chain goes on: what stood in between is noise."""
        if self.problem is not None:
            for line in self._doubted:
                reason = "bytes between the records that belong to none"
                self._note(Problem("noise", found.first, line.start, line.end, reason))
            self._doubted.clear()
            self.problem = None

    def _read(self, line: _Line) -> Record | Problem:
        if line.raw is None:
            return Problem("frame", None, line.start, line.end, line.flaw or "unreadable")
        try:
            if not line.raw.endswith(b"\n"):
                record = decode_line(line.raw + b"\n")
                self.unterminated = True
                return record
            return decode_line(line.raw)
        except BadRecordError as error:
            return Problem("record", None, line.start, line.end, str(error))

    def _fits(self, record: Record, expected: Position, line: _Line) -> Problem | None:
        """Why `record` cannot follow `expected`, or None if it does."""
        where = (line.start, line.end)
        if record.first != expected.seq + 1:
            reason = f"event {record.first} stands where {expected.seq + 1} should follow"
            return Problem("sequence", expected.seq + 1, *where, reason)
        if record.prev != expected.hash:
            if record.first == 0:
                reason = "the records do not belong to this header"
                return Problem("header", 0, *where, reason)
            reason = f"event {record.first} does not link to the record before it"
            return Problem("link", record.first, *where, reason)
        for known in self._known[:2]:
            covers = known is not None and record.first <= known.seq <= record.last
            if known is not None and covers and record.position != known:
                reason = f"event {known.seq} is not the one that was acknowledged"
                return Problem("evidence", record.first, *where, reason)
        header = self._header
        if header.inherited_genesis is not None and record.first <= header.seed <= record.last:
            event = record.events(header.seed)[0]
            named = event.data.get("header") if isinstance(event.data, dict) else None
            if event.type != "session/forked" or named != header.digest:
                reason = "the fork's first own event names another header"
                return Problem("header", header.seed, *where, reason)
        return None

    def _blame(self, held: tuple[Record, _Line], found: Record) -> tuple[Record, _Line] | None:
        """Two intact records do not link: drop the held one if the later is the original.

        The later one is the original if what follows links to it; then the earlier was replaced.
        """
        upcoming = next(self._lines, None)
        genuine = self._acknowledged is not None and self._acknowledged.hash == found.hash
        if upcoming is not None:
            after = self._read(upcoming)
            genuine = genuine or (isinstance(after, Record) and after.prev == found.hash)
            self._lines = itertools.chain((upcoming,), self._lines)
        if not genuine:
            return held
        record, line = held
        reason = f"event {record.first} is not the one that the next record links to"
        self.problem = Problem("link", record.first, line.start, line.end, reason)
        # Which of the two was replaced is a guess: what is not verified is still there to be seen.
        self._doubted.insert(0, line)
        return None

    def _prove(self, record: Record, line: _Line) -> Record:
        self.position = record.position
        self.end = line.end
        self.piece_start = line.start
        known = self._acknowledged
        if known is not None and record.last <= known.seq:
            self.acknowledged_end = line.end
        return record

    def _conclude(self) -> None:
        known = self._acknowledged
        if known is None:
            self.acknowledged_end = self.end
        kept = known is None or known.seq <= self.position.seq
        if known is not None and known.seq == -1 and known.hash != self._header.genesis:
            kept = False
        if self._known.instead is not None:
            kept = False
            self.problem = self.problem or Problem("evidence", 0, 0, 0, self._known.instead)
        if self.problem is not None and self.problem.record is None:
            self.problem = self.problem._replace(record=self.position.seq + 1)
        if self.problem is None and not kept and known is not None:
            missing = (
                f"events {self.position.seq + 1} to {known.seq} were acknowledged and are missing"
            )
            self.problem = Problem(
                "missing-tail", self.position.seq + 1, self.end, self.end, missing
            )
        torn = self.problem is not None and kept and self._piece_opened
        if torn and known is None:
            # Nobody knows what was acknowledged: intact records behind the flaw say that it is one.
            first = next(self.later(), None)
            torn = first is None
            if first is not None:
                self._behind = itertools.chain((first,), self._behind or ())
        self.facts = TailFacts(
            format_known=True,
            header_intact=self.problem is None or self.problem.kind != "header",
            all_intact=self.problem is None or self.problem.kind == "missing-tail",
            acknowledged_kept=kept,
            later_acknowledged=not torn,
            unterminated=self.unterminated and self.problem is None,
            beyond=self.end > self.acknowledged_end,
        )

    @property
    def ending(self) -> Ending:
        """Where the log ends; valid after the pass."""
        return Ending(
            self.position,
            self.end,
            self.piece_start,
            self.acknowledged_end,
            self.problem,
            self.verdict,
        )

    @property
    def verdict(self) -> Verdict:
        """What the end of this log amounts to; valid after the pass."""
        return decide(self.facts)

    def later(self) -> Iterator[Record]:
        """Intact records behind the first problem, unverified: nothing links them to the prefix.

        Further damaged places are added to `further` on the way, at most 100 of them.
        """
        if self._behind is None:
            self._behind = self._find_later()
        return self._behind

    def close(self) -> None:
        """Let go of the log; nothing more can be read."""
        self._pieces.close()

    def __enter__(self) -> Self:
        """The walk itself."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Let go of the log: an error that somebody keeps shall not keep it open."""
        self.close()

    def _find_later(self) -> Iterator[Record]:
        doubted, self._doubted = self._doubted, []
        for line in itertools.chain(doubted, self._lines):
            if line.raw is None:
                self._note_once("frame", line, line.flaw or "unreadable")
                continue
            rescued = list(_rescue(line.raw))
            if sum(len(record.line) for record in rescued) < len(line.raw):
                self._note_once("record", line, "not an intact record")
            yield from rescued

    def _note_once(self, kind: str, line: _Line, reason: str) -> None:
        if self.problem is None or self.problem.start != line.start:
            self._note(Problem(kind, None, line.start, line.end, reason))

    def _note(self, problem: Problem) -> None:
        if len(self.further) < PROBLEMS_MAX:
            self.further.append(problem)


def _split(pieces: Iterator[Piece]) -> Generator[_Line, None, None]:
    for piece in pieces:
        if piece.flaw is not None:
            yield _Line(None, piece.start, piece.end, piece.flaw, opens_piece=True)
            continue
        start = piece.start
        for index, raw in enumerate(piece.lines):
            if piece.framed:
                yield _Line(raw, piece.start, piece.end, None, opens_piece=index == 0)
            else:
                yield _Line(raw, start, start + len(raw), None, opens_piece=True)
                start += len(raw)


def _rescue(raw: bytes) -> Iterator[Record]:
    """Every intact record in a line; lost newlines and fragments fuse several into one.

    What it may check is bounded by a multiple of the line's length, whatever the line holds.
    """
    budget = _RESCUE_FACTOR * len(raw) + RECORD_BYTES_MAX
    at = 0
    while at >= 0 and budget > 0:
        found = None
        for end in _ends(raw, at):
            budget -= end - at
            try:
                found = decode_line(raw[at:end].removesuffix(b"\n") + b"\n")
            except BadRecordError:
                if budget <= 0:
                    break
                continue
            yield found
            break
        at = raw.find(_RECORD_START, at + (1 if found is None else len(found.line) - 1))


def _ends(raw: bytes, start: int) -> Iterator[int]:
    """Where a record that begins at `start` may end: the end of the line, or behind a checksum."""
    yield len(raw)
    for match in itertools.islice(_RECORD_END.finditer(raw, start), _ENDS_MAX):
        yield match.end()
