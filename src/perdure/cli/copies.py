"""What commands that copy sessions have in common: one line for each, as soon as it is known."""

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from perdure.backends import Backend, open_backend
from perdure.cli import output
from perdure.cli.exits import Exit, exit_code, worst
from perdure.cli.options import opened_at, shown_location
from perdure.cli.progress import Progress
from perdure.errors import InvalidValue, PerdureError
from perdure.store import Copied, NotCopied, Store
from perdure.store.moving import takes_nothing

__all__ = ["BUNDLE", "Told", "bundle_at", "copy_each", "source_at"]

BUNDLE = "bundle"
"""What the format is called."""


class Told:
    """Tells of each outcome; afterwards, what the command ends with and what its JSON holds.

    Attributes:
        copied: what was copied, or was there already.
        failed: what could not be copied.
        not_tried: how many of these were not tried, after the destination had refused one.
        rows: for JSON, one for each of `copied`.

    """

    def __init__(self, *, as_json: bool) -> None:
        """Nothing was told yet."""
        self.copied: list[Copied] = []
        self.failed: list[NotCopied] = []
        self.not_tried = 0
        self.rows: list[dict[str, Any]] = []
        self._codes = [Exit.OK]
        self._as_json = as_json
        self._progress = Progress(as_json=as_json)

    @property
    def code(self) -> Exit:
        """What the command ends with: damage before all else."""
        return worst(self._codes)

    @property
    def count(self) -> int:
        """How many sessions there were."""
        return len(self.copied) + sum(each.session is not None for each in self.failed)

    def __call__(self, outcome: Copied | NotCopied) -> None:
        """One session is done with, or one namespace could not be."""
        self._progress.clear()
        if isinstance(outcome, NotCopied):
            self.failed.append(outcome)
            if outcome.tried:
                self._failure(outcome.error)
            else:
                self.not_tried += 1
        else:
            self.copied.append(outcome)
            self._tell(outcome)
            for problem in outcome.problems:
                self._failure(problem)
        self._progress.show(f"{output.counted(self.count, 'session')} so far")

    def _failure(self, error: PerdureError) -> None:
        self._codes.append(exit_code(error))
        output.failure(error, self._codes[-1], as_json=self._as_json)

    def _tell(self, done: Copied) -> None:
        self.rows.append(
            {
                "session": done.session,
                "namespace": [*done.namespace],
                "status": done.status,
                "position": done.position._asdict(),
                "events": done.events,
                "blobs": done.blobs,
                "problems": [
                    {"code": each.code, "message": each.message} for each in done.problems
                ],
            }
        )
        if self._as_json:
            return
        text = f"{done.status:<10} {done.session}"
        if done.namespace:
            text += f" in namespace {' / '.join(done.namespace)}"
        if done.events or done.blobs:
            text += f"  {output.counted(done.events, 'event')}"
            text += f", {output.counted(done.blobs, 'blob')}" if done.blobs else ""
        output.line(text)

    def end(self) -> Exit:
        """Leave a clean line, say what was not tried; what the command ends with."""
        self._progress.clear()
        if self.not_tried and not self._as_json:
            output.line(f"not tried: {output.counted(self.not_tried, 'session')}")
        return self.code


def copy_each(
    source: Store,
    target: Store,
    sessions: list[str],
    told: Callable[[Copied | NotCopied], None],
    parts: tuple[str, ...] = (),
) -> None:
    """Copy these sessions, each once; who fails keeps no other from its turn.

    But where the destination is full, or takes nothing any more, the others are not tried. `parts`
    is the namespace of both.
    """
    refusal: PerdureError | None = None
    for session in dict.fromkeys(sessions):
        if refusal is not None:
            told(NotCopied(session, refusal, parts, tried=False))
            continue
        try:
            told(source.copy(session, target)._replace(namespace=parts))
        except PerdureError as error:
            refusal = error if takes_nothing(source, target, session, error) else None
            told(NotCopied(session, error, parts))


def source_at(ctx: click.Context, location: str) -> Store:
    """The store that is copied from; as `opened_at`, but it has to be there.

    Raises:
        PerdureError: it is not. A backup of a name that was mistyped would succeed every night.

    """
    with closing(open_backend(location)) as backend:
        place, database = backend.place, backend.database
        # Another kind of address is for its backend to look up.
        missing = place is not None and Path(place).is_absolute() and not os.path.lexists(place)
        if database is not None:
            from perdure.databases.postgres import Server
            from perdure.databases.postgres.administration import has_tables

            missing = isinstance(database, Server) and not has_tables(database)
    if missing:
        shown = shown_location(location)
        raise PerdureError(f"there is no store at {shown}", hint="nothing was copied")
    return opened_at(ctx, location)


def bundle_at(path: str, *, untrusted: bool = False) -> Backend:
    """The bundle that an argument FILE names: a path as it stands, no location.

    Raises:
        InvalidValue: no bundle can have that name.

    """
    if path.startswith(f"{BUNDLE}:"):
        # Every command would take a file of this name for another one.
        reason = f"{path!r:.200} begins like a location"
        raise InvalidValue("FILE", reason, hint=f"write the path alone, without {BUNDLE}:")
    if path.endswith("/"):
        reason = f"{path!r:.200} names a folder"
        raise InvalidValue("FILE", reason, hint="name a file; its name ends in .perdure")
    try:
        # Behind a scheme, two slashes would begin a host, and a tilde would be somebody's home.
        absolute = f"/{os.fspath(Path(path).absolute()).lstrip('/')}"
    except FileNotFoundError as error:
        raise InvalidValue("FILE", f"{path!r:.200}: {error.strerror}") from error
    return open_backend(f"{BUNDLE}:{absolute}", untrusted=untrusted)
