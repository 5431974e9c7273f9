"""Counting what becomes of one source while it is imported."""

from perdure.errors import PerdureError
from perdure.importers.lines import Line
from perdure.importers.report import PROBLEMS_MAX, SourceProblem, SourceReport
from perdure.importers.seen import Seen

__all__ = ["Problems", "Tally"]


class Problems:
    """Problems of a part of a source.

    Attributes:
        listed: the first 100.
        count: how many there are.

    """

    def __init__(self) -> None:
        """None so far."""
        self.listed: list[SourceProblem] = []
        self.count = 0

    def add(self, listed: list[SourceProblem], count: int) -> None:
        """Add `count` problems, of which some are listed."""
        self.listed += listed[: PROBLEMS_MAX - len(self.listed)]
        self.count += count


class Tally:
    """Counts and problems of one file.

    Attributes:
        path: absolute path of the source.
        format: what it was recognised as, or None.
        session: id of the session that keeps it, or None.
        fresh: whether that session is new.
        rewritten: whether lines that are stored do not stand in the source any more.
        gone: whether the source is not there any more.
        reason: what is at its path instead, if anything.
        found, new, unchanged, large: as in `SourceReport`.
        end: byte of the text up to which all lines were whole, and `lines` how many they are.
        time: of the last of them, Unix milliseconds.
        large_before: how many of them are kept as content.
        torn: whether a line follows that is not whole.
        doubt: what is wrong with the source as a whole, or None.
        before: the problems up to `end`.
        behind: those behind it.

    """

    def __init__(self, path: str) -> None:
        """Begin at the first line."""
        self.path = path
        self.format: str | None = None
        self.session: str | None = None
        self.fresh = False
        self.rewritten = False
        self.gone = False
        self.reason: str | None = None
        self.found = self.new = self.unchanged = self.large = 0
        self.end = self.lines = self.time = self.large_before = 0
        self.torn = False
        self.doubt: SourceProblem | None = None
        self.before, self.behind = Problems(), Problems()

    def note(self, line: Line, reason: str, *, fragment: bool = False) -> None:
        """Report what is wrong at `line`; `fragment` says that its text is not kept."""
        if fragment and line.size:
            reason += f"; a fragment of {line.size} bytes of a line in front of it is left out"
        self.behind.add([self._problem(line, reason)], 1)

    def doubted(self, line: Line, reason: str) -> None:
        """Report what is wrong with the source as a whole, at its first line."""
        self.doubt = self._problem(line, reason)

    def _problem(self, line: Line, reason: str) -> SourceProblem:
        return SourceProblem(self.path, line.number, line.offset, reason)

    def line(self, line: Line, reason: str | None, *, new: bool, large: bool, time: int) -> None:
        """Count a line; whether a new one is stored is told by the appender."""
        self.found += 1
        self.unchanged += not new
        self.large += large
        if reason is not None:
            self.note(line, reason)
        if not line.whole:
            self.torn = True
            return
        self.end, self.lines, self.time = line.offset + line.size, line.number, time
        self.large_before = self.large
        self.before.add(self.behind.listed, self.behind.count)
        self.behind = Problems()

    def untouched(self, known: Seen) -> None:
        """The source is as it was seen before."""
        self.follow(known)
        self.found += known.torn
        self.unchanged += known.torn
        self.torn = known.torn
        self.large += known.large_behind
        if known.doubt is not None:
            self.doubt = known.doubt._replace(path=self.path)
        self.behind.add(self._here(known.behind), known.behind_count)

    def follow(self, known: Seen) -> None:
        """The source begins with what was seen before; what follows is still to be counted."""
        self.found = self.unchanged = self.lines = known.lines
        self.end, self.time = known.end, known.time
        self.large = self.large_before = known.large
        self.before.add(self._here(known.problems), known.problem_count)

    def _here(self, problems: list[SourceProblem]) -> list[SourceProblem]:
        return [problem._replace(path=self.path) for problem in problems]

    def report(self, skipped: str | None, error: PerdureError | None) -> SourceReport:
        """The finished report; a file that was skipped has no session."""
        problems = Problems()
        if self.doubt is not None:
            problems.add([self.doubt], 1)
        for part in (self.before, self.behind):
            problems.add(part.listed, part.count)
        return SourceReport(
            path=self.path,
            format=self.format,
            session=None if skipped is not None else self.session,
            state=self._state(skipped, error),
            found=self.found,
            new=self.new,
            unchanged=self.unchanged,
            large=self.large,
            problems=tuple(problems.listed),
            problem_count=problems.count,
            skipped=skipped,
            error=error,
            reason=self.reason,
        )

    def _state(self, skipped: str | None, error: PerdureError | None) -> str:
        if error is not None:
            return "failed"
        if skipped is not None:
            return "skipped"
        if self.gone:
            return "gone"
        if self.fresh:
            return "new"
        if self.rewritten:
            return "rewritten"
        return "grown" if self.new else "unchanged"
