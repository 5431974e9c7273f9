"""The stores that are open: what a forked child must not touch, and what an exit must not lose."""

import atexit
import weakref
from typing import Protocol

from perdure.runtime import SYSTEM

__all__ = ["begun", "ended"]


class Lasting(Protocol):
    """What lives until it is closed."""

    def close(self) -> None:
        """Store what is buffered."""

    def begin_in_child(self) -> None:
        """Let go of what belongs to the parent process."""


_open: "weakref.WeakSet[Lasting]" = weakref.WeakSet()


def begun(store: Lasting) -> None:
    """It is open from now on."""
    _open.add(store)


def ended(store: Lasting) -> None:
    """It needs nothing any more."""
    _open.discard(store)


def _forget_in_child() -> None:
    """A forked child neither waits for a lock of its parent's threads, nor closes for it."""
    for store in list(_open):
        store.begin_in_child()


SYSTEM.at_fork(_forget_in_child)


def _close_at_exit() -> None:
    """What is still buffered when the interpreter ends is stored."""
    failures = []
    for store in list(_open):
        try:
            store.close()
        except Exception as error:  # noqa: BLE001 - the others are closed all the same
            failures.append(error)
    if failures:
        raise failures[0]


atexit.register(_close_at_exit)
