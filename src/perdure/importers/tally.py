"""Counting what becomes of one source while it is imported."""

from perdure.errors import PerdureError
from perdure.importers.lines import Line
from perdure.importers.report import PROBLEMS_MAX, SourceProblem, SourceReport
from perdure.importers.seen import Seen

__all__ = ["Tally"]


class Tally:
    """Counts and problems of one file.

    Attributes:
        path: absolute path of the source.
        format: what it was recognised as, or None.
        session: id of the session that keeps it, or None.
        fresh: whether that session is new.
        rewritten: whether lines that are stored do not stand in the source any more.
        gone: whether the source is not there any more.
        found, new, unchanged, large: as in `SourceReport`.
        end: byte of the text up to which all lines were whole, and `lines` how many they are.
        torn: whether a line follows that is not whole.

    """

    def __init__(self, path: str) -> None:
        """Begin at the first line."""
        self.path = path
        self.format: str | None = None
        self.session: str | None = None
        self.fresh = False
        self.rewritten = False
        self.gone = False
        self.found = self.new = self.unchanged = self.large = 0
        self.end = self.lines = 0
        self.torn = False
        self._problems: list[SourceProblem] = []
        self._problem_count = 0

    def note(self, line: Line, reason: str, *, fragment: bool = False) -> None:
        """Report what is wrong at `line`; `fragment` says that its text is not kept."""
        if fragment and line.size:
            reason += f"; a fragment of {line.size} bytes of a line in front of it is left out"
        self._problem_count += 1
        if len(self._problems) < PROBLEMS_MAX:
            self._problems.append(SourceProblem(self.path, line.number, line.offset, reason))

    def line(self, line: Line, reason: str | None, *, new: bool) -> None:
        """Count a line; whether a new one is stored is told by the appender."""
        self.found += 1
        self.unchanged += not new
        if line.whole:
            self.end, self.lines = line.offset + line.size, line.number
        else:
            self.torn = True
        if reason is not None:
            self.note(line, reason)

    def untouched(self, known: Seen) -> None:
        """The source is as it was seen before."""
        self.follow(known)
        self.found += known.torn
        self.unchanged += known.torn
        self.torn, self.large = known.torn, known.large
        self._count(known.behind, len(known.behind))

    def follow(self, known: Seen) -> None:
        """The source begins with what was seen before; what follows is still to be counted."""
        self.found = self.unchanged = self.lines = known.lines
        self.end = known.end
        self._count(known.problems, known.problem_count)

    def _count(self, problems: list[SourceProblem], count: int) -> None:
        room = PROBLEMS_MAX - len(self._problems)
        self._problems += [problem._replace(path=self.path) for problem in problems[:room]]
        self._problem_count += count

    def problems(self) -> tuple[list[SourceProblem], int, list[SourceProblem]]:
        """Those of the lines up to `end` and how many they are, and those behind it."""
        before = [problem for problem in self._problems if problem.offset < self.end]
        behind = [problem for problem in self._problems if problem.offset >= self.end]
        return before, self._problem_count - len(behind), behind

    def report(self, skipped: str | None, error: PerdureError | None) -> SourceReport:
        """The finished report; a file that was skipped has no session."""
        return SourceReport(
            path=self.path,
            format=self.format,
            session=None if skipped is not None else self.session,
            state=self._state(skipped, error),
            found=self.found,
            new=self.new,
            unchanged=self.unchanged,
            large=self.large,
            problems=tuple(self._problems),
            problem_count=self._problem_count,
            skipped=skipped,
            error=error,
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
