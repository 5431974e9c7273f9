"""A failing operating system below SQLite: the calls of its file layer, counted and refused.

As `perdure.testing.faults` for what SQLite does by itself; both fail in one run, so that "any call"
is one of the durable layer's or one of SQLite's.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import ClassVar, Self

from perdure.backends.sqlite import file, medium
from perdure.evidence import database
from perdure.testing.faults import Fault, FaultySystem
from perdure.testing.vfs import SQLITE_CALLS, standing_between

__all__ = ["SQLITE_KINDS", "FaultyFiles"]

SQLITE_KINDS = (*SQLITE_CALLS, "any change", "any call")
"""What can fail: a call of SQLite's; all changes; everything."""

_CHANGING = frozenset({"sqlite write", "sqlite sync", "sqlite truncate", "sqlite delete"})


_WAITS = ((database, "_WRITER_WAIT_MS"), (file, "WAIT_MS"), (medium, "WAIT_MS"))


@contextmanager
def _impatient() -> Iterator[None]:
    """Nobody else has a file: whoever finds it locked need not wait for seconds."""
    saved = [getattr(module, name) for module, name in _WAITS]
    for module, name in _WAITS:
        setattr(module, name, 1)
    try:
        yield
    finally:
        for (module, name), usual in zip(_WAITS, saved, strict=True):
            setattr(module, name, usual)


class FaultyFiles(FaultySystem):
    """A `FaultySystem` that stands below SQLite as well."""

    kinds: ClassVar[Sequence[str]] = SQLITE_KINDS
    halves: ClassVar[Sequence[str]] = ("sqlite write",)

    def __init__(self, fault: Fault | None = None, *, trace: bool = False) -> None:
        """Let `fault` happen; without one, only count."""
        super().__init__(fault, trace=trace)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """From here on it may fail."""
        super().__enter__()
        self._stack.enter_context(_impatient())
        self._stack.enter_context(standing_between(judge=self._judge, to_disk=False, waits=False))
        return self

    def __exit__(self, *exc: object) -> None:
        """It fails no more."""
        self._stack.close()
        super().__exit__(*exc)

    def _judge(self, kind: str) -> str | None:
        if self.lifted:
            return None
        kinds = [kind, *(["any change"] if kind in _CHANGING else []), "any call"]
        fault = self.falls_on(kinds)
        if fault is not None:
            self.fired += 1
        return None if fault is None else fault.code
