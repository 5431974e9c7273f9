"""The writer of one session behind a URL."""

import datetime as dt
from collections.abc import Collection
from typing import NoReturn

from perdure.errors import NotOffered, PerdureError, StaleWriter, StorageUnavailable
from perdure.store import Session

__all__ = ["RemoteSession"]


class RemoteSession(Session):
    """The exclusive writer of one session behind a URL; everything as for `Session`.

    What is accepted is numbered, linked and committed here, one request for each commit. The right
    to write is a lease, renewed by a thread while the session is open. Where the server loses it,
    by a restart say, another one is taken with the next commit, if nobody wrote meanwhile; if
    somebody did, or a turn that was open was closed for it, the writer ends with StaleWriter.
    """

    def _outcome_unknown(self, error: BaseException) -> bool:
        """The medium says of each failure whether something may be stored all the same."""
        if self._hold is not None:
            return self._hold.dead
        if not isinstance(error, PerdureError):
            # An interrupt in the middle of a first commit.
            return True
        return isinstance(error, StorageUnavailable) and error.uncertain

    def _die(self, error: StaleWriter | StorageUnavailable) -> PerdureError:
        with self._mutex:
            # Of the last commit some may be stored: those are not lost.
            self._queue.settle(self.position.seq)
        return super()._die(error)

    def _tidy_up(self) -> None:
        """The server does that when the right to write is given back."""

    def expire(
        self,
        *,
        older_than: float | dt.timedelta | None = None,
        kinds: Collection[str] | None = None,
        keep_last: int | None = None,
        dry_run: bool = False,
    ) -> NoReturn:
        """Refuse: content expires where it is stored.

        Raises:
            NotOffered: always.

        """
        del older_than, kinds, keep_last, dry_run
        raise NotOffered("expire")

    def compact(self) -> NoReturn:
        """Refuse: it is about files.

        Raises:
            NotOffered: always.

        """
        raise NotOffered("compact")
