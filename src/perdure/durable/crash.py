"""Named crash points, and the record of what reached the disk in which order.

`point(name)` stands beside every write, sync, rename and truncation. In production it does nothing:
no switch in the environment or in a file can arm it. The test harness installs hooks, kills the
process at a name, or records every operation to replay a loss of power.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

__all__ = ["Observer", "arm", "half", "observe", "observed", "point", "syncs_disabled"]

S = TypeVar("S", bytes, range)


class Observer(Protocol):
    """Sees every change to durable files: `kind`, the path or inode, and what belongs to it."""

    def __call__(self, kind: str, **facts: Any) -> None:
        """Take note of one operation."""


_hook: Callable[[str], None] | None = None
_observer: Observer | None = None
_half: frozenset[str] = frozenset()
_without_sync = False


def point(name: str) -> None:
    """The place called `name` has been reached."""
    if _hook is not None:
        _hook(name)


def half(name: str, data: S) -> S:
    """What a writer that dies at `name` gets written: all of `data`, or half when armed."""
    return data[: len(data) // 2] if name in _half else data


def observe(kind: str, **facts: Any) -> None:
    """Tell the observer about one operation."""
    if _observer is not None:
        _observer(kind, **facts)


def observed() -> bool:
    """Whether an observer listens; gathering facts for it may cost something."""
    return _observer is not None


def syncs_disabled() -> bool:
    """True only while a test shows that the power-loss replay notices missing syncs."""
    return _without_sync


def arm(
    *,
    hook: Callable[[str], None] | None = None,
    halves: frozenset[str] = frozenset(),
    observer: Observer | None = None,
    without_sync: bool = False,
) -> None:
    """Install hooks for tests; called without arguments it removes them all."""
    global _hook, _half, _observer, _without_sync
    _hook, _half, _observer, _without_sync = hook, halves, observer, without_sync
