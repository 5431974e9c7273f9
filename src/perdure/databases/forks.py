"""No process forks in the middle of an operation on an SQLite file.

SQLite keeps per process which locks it holds, and a child that is forked beside a running
transaction inherits that book without the locks: it would believe them and read or write without.
So a fork waits until no operation runs, what is open between operations is closed, and operations
wait until the fork is done.
"""

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from typing import Generic, Protocol, TypeVar

from perdure.runtime import SYSTEM

__all__ = ["Closing", "undivided"]

_SECONDS_MAX = 30.0
"""Longer than any operation waits; after that a fork goes on rather than hang the program."""


class _Gate:
    """Lets operations pass side by side, and a fork alone."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        # Reentrant: a signal handler that forks may interrupt the thread that holds it. Entered by
        # itself: a condition is entered in Python code, in which an interrupt can leave it locked.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._inside: dict[int, int] = {}
        self._forks = 0

    def enter(self, thread: int) -> None:
        with self._lock:
            inside = self._inside
            while self._forks and thread not in inside:
                self._changed.wait()
            inside[thread] = inside.get(thread, 0) + 1

    def leave(self, thread: int) -> None:
        with self._lock:
            left = self._inside.get(thread, 0) - 1
            if left > 0:
                self._inside[thread] = left
            else:
                self._inside.pop(thread, None)
            if self._forks:
                # Nobody else waits for somebody who leaves.
                self._changed.notify_all()

    def before_fork(self) -> None:
        # Held until after the fork. Who forks within its own operation cannot wait for it.
        self._lock.acquire()
        self._forks += 1
        deadline = SYSTEM.monotonic() + _SECONDS_MAX
        try:
            while self._inside.keys() - {threading.get_ident()}:
                if not self._changed.wait(deadline - SYSTEM.monotonic()):
                    break
            self._close_all()
        finally:
            self._forks -= 1

    def _close_all(self) -> None:
        # They may use what they close: this thread passes its own gate.
        thread = threading.get_ident()
        self._inside[thread] = self._inside.get(thread, 0) + 1
        try:
            for close in reversed(_closing):
                close()
        finally:
            self.leave(thread)

    def after_fork(self) -> None:
        self._changed.notify_all()
        self._lock.release()


_gate = _Gate()
_closing: list[Callable[[], None]] = []


class Closable(Protocol):
    """What has something open between operations."""

    def close(self) -> None:
        """Close what is idle."""


C = TypeVar("C", bound=Closable)


class Closing(Generic[C]):
    """Those of one kind that are there now, which a fork closes when no operation runs.

    Kinds that were made last are closed first: they may rest on those before them.

    Whoever keeps a connection open between operations is named here: in WAL mode even an idle one
    has locks, which a child would believe to have.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._those: weakref.WeakSet[C] = weakref.WeakSet()
        _closing.append(self._close)

    def add(self, one: C) -> None:
        """Name one, for as long as somebody else uses it."""
        # Not while a fork goes through them: a set that grows meanwhile ends the loop.
        with undivided():
            self._those.add(one)

    def __iter__(self) -> Iterator[C]:
        """Those that are there."""
        return iter(list(self._those))

    def _close(self) -> None:
        for one in self:
            # Whatever is wrong with one of them, a child must not have the others.
            with suppress(Exception):
                one.close()


class _Undivided:
    """As a class: it is entered for every commit, and a generator costs several times as much."""

    __slots__ = ("_thread",)

    def __init__(self) -> None:
        self._thread = 0

    def __enter__(self) -> None:
        thread = threading.get_ident()
        try:
            _gate.enter(thread)
            self._thread = thread
        except BaseException:
            # An interrupt may come at any place, and nobody may wait for ever for one that did not
            # enter.
            _gate.leave(thread)
            raise

    def __exit__(self, *_: object) -> None:
        _gate.leave(self._thread)
        self._thread = 0

    def __del__(self) -> None:
        # An interrupt came before the end could be noted.
        thread = getattr(self, "_thread", 0)
        if thread:
            _gate.leave(thread)


def undivided() -> AbstractContextManager[None]:
    """An operation that no fork of this process may divide."""
    return _Undivided()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_gate.before_fork,
        after_in_parent=_gate.after_fork,
        after_in_child=_gate.reset,
    )
