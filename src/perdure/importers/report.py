"""What an import found, kept and left out: values for people and programs."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from perdure.errors import PerdureError

__all__ = ["PROBLEMS_MAX", "ImportReport", "SourceProblem", "SourceReport"]

PROBLEMS_MAX = 100
"""Problems of one file that are listed one by one; all of them are counted."""


class SourceProblem(NamedTuple):
    """One place of a source that is not as its format wants it.

    Attributes:
        path: absolute path of the source file.
        line: number of the line, from 1; of the next line where text is missing.
        offset: byte in the text (decompressed, where the file is compressed) at which it begins.
        reason: what is wrong, and what became of the line if it was not kept.

    """

    path: str
    line: int
    offset: int
    reason: str


class SourceReport(NamedTuple):
    """What became of one source file; `found` is `new + unchanged` unless it failed.

    A path that held several sessions, one after the other, has a report for each: for the one that
    it holds now, and for those whose file is gone.

    Attributes:
        path: absolute path.
        format: the format that it was recognised as, or None.
        session: id of the session that keeps its lines, or None if it has none.
        state: "new", "grown", "rewritten" (what was stored does not stand there any more, and is
            kept), "unchanged", "gone" (the file is not there any more, its session is; nothing may
            be at the path, or something else), "skipped" or "failed".
        found: lines in the source.
        new: lines that this import stored.
        unchanged: lines that were stored before.
        large: lines too long for a record, which are kept as content beside the log.
        problems: the first 100 problems; those of lines stored before are told again.
        problem_count: how many there are.
        skipped: why the file was not imported, or None.
        error: what made the import of this file fail, or None.
        reason: of a file that is gone, what is at its path now; None: nothing is.

    """

    path: str
    format: str | None = None
    session: str | None = None
    state: str = "unchanged"
    found: int = 0
    new: int = 0
    unchanged: int = 0
    large: int = 0
    problems: tuple[SourceProblem, ...] = ()
    problem_count: int = 0
    skipped: str | None = None
    error: PerdureError | None = None
    reason: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        error = self.error
        return {
            **self._asdict(),
            "problems": [problem._asdict() for problem in self.problems],
            "error": error and {"code": error.code, "message": error.message, "hint": error.hint},
        }


class ImportReport(NamedTuple):
    """What became of every source file, in the order in which they were read; then what is gone.

    Attributes:
        format: the format that was asked for, or None: each file was to be recognised.
        sources: a report for each file, and for each session whose file is gone.

    """

    format: str | None
    sources: tuple[SourceReport, ...]

    @property
    def found(self) -> int:
        """Lines in all sources."""
        return sum(source.found for source in self.sources)

    @property
    def new(self) -> int:
        """Lines that this import stored."""
        return sum(source.new for source in self.sources)

    @property
    def unchanged(self) -> int:
        """Lines that were stored before."""
        return sum(source.unchanged for source in self.sources)

    @property
    def large(self) -> int:
        """Lines that are kept as content."""
        return sum(source.large for source in self.sources)

    @property
    def states(self) -> dict[str, int]:
        """How many source files are in each state; see `SourceReport`."""
        return dict(Counter(source.state for source in self.sources))

    @property
    def problem_count(self) -> int:
        """Problems in all sources, listed or not."""
        return sum(source.problem_count for source in self.sources)

    @property
    def problems(self) -> Iterator[SourceProblem]:
        """The listed problems of all sources."""
        return (problem for source in self.sources for problem in source.problems)

    @property
    def failed(self) -> tuple[SourceReport, ...]:
        """The sources whose import failed; what was stored of them before is kept."""
        return tuple(source for source in self.sources if source.error is not None)

    @property
    def doubtful(self) -> tuple[SourceReport, ...]:
        """The sources of which no line was sound: kept as they are, and surely no such log."""
        return tuple(source for source in self.sources if 0 < source.found <= source.problem_count)

    @property
    def skipped(self) -> tuple[SourceReport, ...]:
        """The files that were not imported, each with the reason."""
        return tuple(source for source in self.sources if source.skipped is not None)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "format": self.format,
            "states": self.states,
            "found": self.found,
            "new": self.new,
            "unchanged": self.unchanged,
            "large": self.large,
            "problem_count": self.problem_count,
            "sources": [source.as_dict() for source in self.sources],
        }
