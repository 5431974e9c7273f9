"""`perdure sync`: what the agents of this machine keep, brought into the store."""

from collections.abc import Callable, Sequence

import click

from perdure.cli import output
from perdure.cli.exits import Exit
from perdure.cli.imported import source_lines, total_lines
from perdure.cli.options import json_option, opened
from perdure.cli.progress import Progress
from perdure.importers import ImportReport, SourceReport, format_names, places, sync
from perdure.importers import Progress as HowFar
from perdure.importers.following import Follower, gone_before, whereabouts
from perdure.importers.formats import broken_formats
from perdure.lenses.registry import broken_lenses
from perdure.runtime import SYSTEM

__all__ = ["Telling", "command", "follow"]

_NEWS = frozenset({"new", "grown", "rewritten", "gone"})
_FINE = (None, None, 0)


@click.command("sync")
@click.option(
    "--from",
    "paths",
    metavar="PATH",
    multiple=True,
    # One that cannot be read has a report of its own, and stops no other.
    type=click.Path(readable=False),
    help="A file or folder, in place of the agents' own; repeatable.",
)
@click.option(
    "--format",
    "formats",
    multiple=True,
    type=click.Choice(format_names()),
    help="Only sessions of this format; repeatable.",
)
@click.option(
    "--verbose", "-v", is_flag=True, help="Name the files skipped, and those with old problems."
)
@click.option("--dry-run", is_flag=True, help="Say what would be done, and store nothing.")
@click.option("--watch", is_flag=True, help="Go on until it is interrupted.")
@click.option(
    "--interval",
    metavar="SECONDS",
    type=click.FloatRange(min=0.1, max=86_400),
    default=2,
    show_default=True,
    help="How long --watch waits between two looks.",
)
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    *,
    paths: tuple[str, ...],
    formats: tuple[str, ...],
    dry_run: bool,
    watch: bool,
    interval: float,
    verbose: bool,
    as_json: bool,
) -> int:
    """Bring the store up to date with the sessions of the agents on this machine.

    Finds the folders of Claude Code, Codex and deepseek-harness, recognises each file, and keeps
    every line as it is. Again: only what is new is read and stored. What is not there any more
    stays here, and is marked as gone, also where its file is empty or holds another session.
    Sources are only read, and never locked. A line is printed for each file that is not as it was
    before, and sums at the end; files that are skipped, and unchanged ones with problems, are only
    counted without --verbose. Whatever ends it, the next one goes on from there.

    With --watch the files are looked at again and again, and only those that changed are read;
    Ctrl-C ends it.

    JSON: {dry_run: bool, format: null, states: {state: number}, found, new, unchanged, large,
    problem_count, sources: [{path, format, session, state, found, new, unchanged, large, problems:
    [{path, line, offset, reason}], problem_count, skipped, error: {code, message, hint}, reason}]}.
    States count files, and of those that are gone sessions: new, grown, rewritten, unchanged, gone,
    skipped, failed; `reason` is what is at the path of one that is gone; found, new, unchanged and
    large count lines. With --watch that is, without dry_run, one line for each look that found
    something, with what changed alone. Exit code 1 if a file could not be imported; damage in a
    source is kept as it is, and told.
    """
    if watch and dry_run:
        raise click.UsageError("--watch and --dry-run do not go together", ctx=ctx)
    # An import reads what it keeps in bounded memory; who lists or searches next reads it again.
    store, chosen = opened(ctx, index=False, here="sync"), formats or None
    told = Telling(gone_before(store), as_json=as_json, verbose=verbose)
    if not (paths or places(chosen) or as_json):
        _say_where(chosen)
        if not watch:
            return Exit.OK
    if watch:
        _say_broken()
        _watch(Follower(store, paths or None, formats=chosen), told, interval)
        return Exit.OK
    report = sync(store, paths or None, formats=chosen, dry_run=dry_run, progress=told.progress)
    told.rest(report)
    _say_broken()
    if as_json:
        output.document({"dry_run": dry_run, **report.as_dict()})
        return Exit.FAILED if report.failed else Exit.OK
    for line in (*told.passed_over(), *total_lines(report)):
        output.line(line)
    if dry_run:
        output.line("nothing was stored")
    return Exit.FAILED if report.failed else Exit.OK


def _watch(follower: Follower, told: "Telling", interval: float) -> None:
    """Follow until somebody ends it; people hear what is looked at, and what became of it."""
    try:
        if not told.as_json:
            files = output.counted(follower.count(), "file")
            output.line(f"watching {files}; Ctrl-C ends it")
            output.flush()
        follow(follower, told, lambda: SYSTEM.sleep(interval))
    except KeyboardInterrupt:
        told.end()
    if not told.as_json:
        new = output.counted(told.lines, "new line")
        files = output.counted(len(told.stored), "file")
        output.line(f"ended after {output.counted(told.looks, 'look')}: {new} in {files}")


class Telling:
    """Tells of each source that is not as it was, as soon as it is known.

    Attributes:
        as_json: whether programs are told, at the end, and people nothing.
        changed: the sources that were told of since this was emptied.
        looks: how many reports were told to their ends.
        lines: how many new lines all of them had.
        stored: the files that those are of.

    """

    def __init__(self, gone: set[str], *, as_json: bool, verbose: bool = False) -> None:
        """`gone` are the sessions of which it was told before that their files are gone.

        Unless `verbose`, people are told the number of those that the first report passes over.
        """
        self._gone = gone
        self.as_json = as_json
        self._verbose = verbose
        self._skipped = self._old = 0
        self.looks = self.lines = 0
        self.stored: set[str] = set()
        self._progress = Progress(as_json=as_json, few=True)
        self._wrong: dict[tuple[str, str | None], tuple[object, ...]] = {}
        self._passed = 0
        self._new = 0
        self.changed: list[SourceReport] = []

    def progress(self, far: HowFar) -> None:
        """Between two files."""
        # Behind the last file comes what is gone: then the last report is not that of the file.
        if far.done == self._passed + 1 and far.done < far.total and far.last is not None:
            self._passed = far.done
            self._tell(far.last)
        self._progress.bar(far.done, far.total, f"files, {output.counted(self._new, 'new line')}")

    def rest(self, report: ImportReport) -> None:
        """What was not told yet of a report that is complete."""
        self.end()
        for source in report.sources[self._passed :]:
            self._tell(source)
        self._passed = self._new = 0
        self.looks += 1

    def passed_over(self) -> list[str]:
        """How many files were only counted, as a line; each is said once."""
        skipped, old, self._skipped, self._old = self._skipped, self._old, 0, 0
        said = [f"{output.counted(skipped, 'file')} skipped"] if skipped else []
        if old:
            verb = "has" if old == 1 else "have"
            said.append(f"{output.counted(old, 'unchanged file')} {verb} problems")
        if not said:
            return []
        them = "it" if skipped + old == 1 else "them"
        return [f"{', '.join(said)}: perdure sync --verbose names {them}"]

    def end(self) -> None:
        """Leave a clean line."""
        self._progress.clear()

    def _tell(self, source: SourceReport) -> None:
        self._new += source.new
        if source.new:
            self.lines += source.new
            self.stored.add(source.path)
        gone, known = source.state == "gone", source.session in self._gone
        if source.session is not None and source.error is None:
            (self._gone.add if gone else self._gone.discard)(source.session)
        if gone and known:
            return
        error = None if source.error is None else source.error.message
        wrong = (source.skipped, error, source.problem_count)
        # What stays wrong is told once.
        of = (source.path, source.session if gone else None)
        before, self._wrong[of] = self._wrong.get(of, _FINE), wrong
        back = known and not gone and source.session is not None and error is None
        if source.state not in _NEWS and wrong == before and not back:
            return
        if self._only_counted(source) and not back:
            return
        self.changed.append(source)
        if not self.as_json:
            self._progress.clear()
            for line in source_lines(source, back=back):
                output.line(line)
            output.flush()

    def _only_counted(self, source: SourceReport) -> bool:
        """Whether people need no line of a file: nothing came of it, and most likely never did."""
        quiet = not (self._verbose or self.as_json or self.looks)
        if not quiet or source.state in _NEWS or source.error is not None:
            return False
        self._skipped += source.skipped is not None
        self._old += source.skipped is None
        return True


def follow(follower: Follower, told: Telling, wait: Callable[[], None]) -> None:
    """Look again and again, and wait in between; ends only by what `wait` or a look raises."""
    while True:
        report = follower.follow(told.progress)
        told.rest(report)
        if not told.as_json:
            for line in told.passed_over():
                output.line(line)
            output.flush()
        if told.changed and told.as_json:
            output.json_line(ImportReport(None, tuple(told.changed)).as_dict())
            output.flush()
        told.changed.clear()
        wait()


def _say_broken() -> None:
    """What other packages bring and cannot be used, or failed: their files may be left out."""
    for broken in (*broken_formats(), *broken_lenses()):
        output.warning(f"{broken.message}; {broken.hint}")


def _say_where(formats: Sequence[str] | None) -> None:
    """Nothing is there: which places were looked at, and what changes them."""
    output.line("no folder of an agent is here; these places were looked at:")
    for agent, folders, variables in whereabouts(formats):
        for folder in folders:
            output.line(f"    {agent}: {folder}")
        if variables:
            output.line(f"        elsewhere if {' or '.join(variables)} says so")
    output.line("name files or folders with --from PATH")
