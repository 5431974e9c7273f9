"""What a medium over HTTP does not do: it belongs to the machine where the store is."""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, NoReturn

from perdure.backends.base import Aside, Backend, Hold, Trashed
from perdure.errors import NotOffered
from perdure.model.header import Header
from perdure.model.record import Record

__all__ = ["Refusing"]


class Refusing(Backend):
    """The part of a medium that refuses, and the part that keeps nothing."""

    # --- nothing derived is kept here -------------------------------------------------------------

    def derived(self, session: str, name: str) -> None:
        """None: views are folded from the log."""
        del session, name

    def put_derived(self, hold: Hold, name: str, data: bytes, *, at: int | None = None) -> None:
        """Keep nothing."""

    def drop_derived(self, hold: Hold, name: str) -> None:
        """Nothing was kept."""

    # --- what is not offered ----------------------------------------------------------------------

    def drop_blobs(self, hold: Hold, digests: Collection[str]) -> NoReturn:
        """Refuse: `expire`."""
        del hold, digests
        raise NotOffered("expire")

    def plan(self, session: str) -> NoReturn:
        """Refuse: `repair`."""
        del session
        raise NotOffered("repair")

    def set_plan(self, hold: Hold, plan: bytes | None) -> NoReturn:
        """Refuse: `repair`."""
        del hold, plan
        raise NotOffered("repair")

    def replace(self, hold: Hold, header: Header, records: Iterable[Record], **_: Any) -> NoReturn:
        """Refuse: `repair`."""
        del hold, header, records
        raise NotOffered("repair")

    def put_aside(self, hold: Hold, parts: Iterable[bytes], **_: Any) -> NoReturn:
        """Refuse: `repair`."""
        del hold, parts
        raise NotOffered("repair")

    def asides(self, session: str) -> Iterator[Aside]:
        """Refuse."""
        del session
        raise NotOffered("asides")

    def aside(self, session: str, place: str) -> NoReturn:
        """Refuse."""
        del session, place
        raise NotOffered("open_aside")

    def discard(self, session: str, then: Callable[[Trashed], None]) -> NoReturn:
        """Refuse: the server does it, see `delete`."""
        del session, then
        raise NotOffered("delete")

    def trash(self) -> Iterator[Trashed]:
        """Refuse."""
        raise NotOffered("trash")

    def restore(self, session: str, then: Callable[[], None]) -> NoReturn:
        """Refuse: the server does it, see `bring_back`."""
        del session, then
        raise NotOffered("restore")

    def purge(self, trashed: Trashed, first: Callable[[Trashed], None]) -> NoReturn:
        """Refuse."""
        del trashed, first
        raise NotOffered("empty_trash")

    def compact(self, hold: Hold, *, only_if_worth: bool = False) -> NoReturn:
        """Refuse."""
        del hold, only_if_worth
        raise NotOffered("compact")
