"""What a store behind a URL does not do: it has to be done where the store is."""

import datetime as dt
from collections.abc import Callable, Collection
from typing import Any, NoReturn

from perdure.errors import NotOffered

__all__ = ["Refused"]

Progress = Callable[[int, int], None]
Names = str | Collection[str]


class Refused:
    """The methods of `Store` that end with `NotOffered`, whatever they are asked."""

    def accept(self, id: str, *, wait: float = 0.0) -> NoReturn:
        """Refuse: whether an older copy is the truth is decided where the files are."""
        del id, wait
        raise NotOffered("accept")

    def asides(self, id: str) -> NoReturn:
        """Refuse: nothing vouches for what was cut off or replaced."""
        del id
        raise NotOffered("asides")

    def open_aside(self, id: str, place: str) -> NoReturn:
        """Refuse, as `asides`."""
        del id, place
        raise NotOffered("open_aside")

    def compact(self, id: str, *, wait: float = 0.0) -> NoReturn:
        """Refuse: it is about files."""
        del id, wait
        raise NotOffered("compact")

    def copy(self, id: str, other: Any, *, wait: float = 0.0) -> NoReturn:
        """Refuse: stores are copied where both of them are."""
        del id, other, wait
        raise NotOffered("copy")

    def copy_all(self, other: Any, *, progress: Callable[[Any], object] | None = None) -> NoReturn:
        """Refuse, as `copy`."""
        del other, progress
        raise NotOffered("copy_all")

    def _side(self) -> NoReturn:
        """Refuse to be one side of a copy."""
        raise NotOffered("copy")

    def _check_conversing(self) -> NoReturn:
        """Refuse: the root here is what a token shows, and may be that of one principal."""
        raise NotOffered("Conversations(store)")

    def embed(
        self,
        id: Names | None = None,
        *,
        per_minute: float | None = None,
        progress: Progress | None = None,
    ) -> NoReturn:
        """Refuse: vectors are made where they are kept."""
        del id, per_minute, progress
        raise NotOffered("embed")

    def expire(
        self,
        id: str,
        *,
        older_than: float | dt.timedelta | None = None,
        kinds: Collection[str] | None = None,
        keep_last: int | None = None,
        dry_run: bool = False,
        wait: float = 0.0,
    ) -> NoReturn:
        """Refuse: content is removed where it is stored."""
        del id, older_than, kinds, keep_last, dry_run, wait
        raise NotOffered("expire")

    def trash(self) -> NoReturn:
        """Refuse; an id that was deleted is restored by its own name."""
        raise NotOffered("trash")

    def empty_trash(
        self, id: str | None = None, *, older_than: float | dt.timedelta | None = None
    ) -> NoReturn:
        """Refuse: nothing is removed for good over HTTP."""
        del id, older_than
        raise NotOffered("empty_trash")

    def forget(self, id: str) -> NoReturn:
        """Refuse: it is about what is remembered beside the logs."""
        del id
        raise NotOffered("forget")

    def missing(self) -> NoReturn:
        """Refuse, as `forget`."""
        raise NotOffered("missing")

    def evidence(self) -> NoReturn:
        """Refuse, as `forget`."""
        raise NotOffered("evidence")

    def reports(self) -> NoReturn:
        """Refuse, as `forget`."""
        raise NotOffered("reports")

    def repair(
        self, id: str, *, salvage: bool = False, dry_run: bool = False, wait: float = 0.0
    ) -> NoReturn:
        """Refuse: a damaged log is mended where it is."""
        del id, salvage, dry_run, wait
        raise NotOffered("repair")

    def sessions_by_id(self, ids: Names) -> NoReturn:
        """Refuse: a listing is filtered by what sessions are, and `inspect` has each by its id."""
        del ids
        raise NotOffered("sessions_by_id")
