"""What commands that import say of each source, and at the end."""

from perdure.cli import output
from perdure.importers import ImportReport, SourceReport

__all__ = ["source_lines", "total_lines"]

_PROBLEMS_SHOWN = 5
_STATES = ("new", "grown", "rewritten", "unchanged", "gone", "skipped", "failed")


def source_lines(source: SourceReport, *, back: bool = False) -> list[str]:
    """What became of one file: a line, and further ones for what is wrong with it.

    `back`: it was gone, and is there again.
    """
    lines = [f"{source.state:<10} {source.path}"]
    if back:
        lines.append("    the file is there again")
    if source.error is not None:
        lines.append(f"    error: {source.error.message}")
        lines += [f"    hint: {source.error.hint}"] if source.error.hint else []
    elif source.skipped is not None:
        lines.append(f"    {source.skipped}")
    elif source.session is not None:
        lines.append(f"    {_counts(source)} {source.session}")
    for problem in source.problems[:_PROBLEMS_SHOWN]:
        place = f"{problem.path}:{problem.line}, byte {problem.offset}"
        lines.append(f"    {place}: {problem.reason}")
    more = source.problem_count - len(source.problems[:_PROBLEMS_SHOWN])
    if more:
        lines.append(f"    and {output.counted(more, 'more problem')}")
    return lines


def _counts(source: SourceReport) -> str:
    if source.state == "gone":
        why = source.reason or "the file is not there any more"
        return f"{why}; {output.counted(source.found, 'line')} kept in"
    said = output.counted(source.found, "line")
    if source.new and source.unchanged:
        said += f", {source.new} new"
    if source.large:
        said += f", {source.large} large"
    return f"{said} in"


def total_lines(report: ImportReport) -> list[str]:
    """The sums: files by their state, and lines."""
    states = report.states
    known = [f"{states[state]} {state}" for state in _STATES if state in states]
    known += [f"{number} {state}" for state, number in states.items() if state not in _STATES]
    lines = f"{output.counted(report.found, 'line')}, {report.new} new"
    if report.large:
        lines += f", {report.large} large"
    if report.problem_count:
        lines += f", {output.counted(report.problem_count, 'problem')}"
    files = output.counted(len(report.sources), "file")
    return [f"{files}: {', '.join(known)}" if known else files, lines]
