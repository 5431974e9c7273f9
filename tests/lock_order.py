"""Sees every lock of a session that conversations take, and in which order each thread does."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from perdure.backends.base import Backend, Hold
from perdure.conversations.gates import Gates
from perdure.conversations.places import NAMESPACE
from perdure.errors import SessionClosed
from perdure.model.header import Header


class Asked(NamedTuple):
    """A lock of a session: of which kind, of whom, of which conversation."""

    kind: str
    principal: str
    session: str


class LockOrder:
    """What threads hold, and what they did that is not in order.

    A reservation is given back before anything else is asked for; then comes main, then control,
    and nothing is asked for behind that.

    Attributes:
        wrong: what was held and what was asked for, each time that was not in order.
        asked: each lock that was asked for, with the thread.

    """

    def __init__(self, *, apart: bool = False) -> None:
        """With `apart` a thread may be in several turns, whose locks are held apart."""
        self.wrong: list[tuple[list[str], str]] = []
        self.asked: list[tuple[int, Asked]] = []
        self._apart = apart
        self._held: dict[int, list[tuple[Asked, Hold]]] = {}

    def observe(self, patch: pytest.MonkeyPatch, backend: Backend) -> None:
        """Look at all backends of this class from now on, those of namespaces included."""
        kind: Any = type(backend)
        for name in ("lock", "publish", "discard"):
            self._around(patch, kind, name)
        writing = Gates.writing

        @contextmanager
        def through(gates: Gates, *args: Any) -> Iterator[Any]:
            with writing(gates, *args) as session:
                yield session
            # Others may go on with what this thread has opened: it is theirs then.
            self._left("control")

        patch.setattr(Gates, "writing", through)

    def _left(self, kind: str) -> None:
        thread = threading.get_ident()
        own = self._held.get(thread, [])
        self._held[thread] = [(what, hold) for what, hold in own if what.kind != kind]

    def _around(self, patch: pytest.MonkeyPatch, kind: Any, name: str) -> None:
        call: Callable[..., Any] = getattr(kind, name)

        def around(backend: Backend, of: Any, *args: Any, **more: Any) -> Any:
            if backend.parts[:1] != (NAMESPACE,):
                return call(backend, of, *args, **more)
            session = of.id if isinstance(of, Header) else of
            what = Asked(backend.parts[-1], backend.parts[1], session)
            self._ask(what)
            done = call(backend, of, *args, **more)
            if isinstance(done, Hold):
                self._held.setdefault(threading.get_ident(), []).append((what, done))
            return done

        patch.setattr(kind, name, around)

    def _ask(self, what: Asked) -> None:
        thread = threading.get_ident()
        self.asked.append((thread, what))
        own = [(each, hold) for each, hold in self._held.get(thread, []) if _is_held(hold)]
        self._held[thread] = own
        held = [each for each, _ in own]
        if any(self._is_wrong(each, what) for each in held):
            self.wrong.append(([each.kind for each in held], what.kind))

    def _is_wrong(self, held: Asked, what: Asked) -> bool:
        if held.kind == "main":
            others = self._apart and held[1:] != what[1:]
            return what.kind != "control" and not others
        return True

    def kinds(self) -> set[str]:
        """Which kinds of locks were asked for."""
        return {what.kind for _, what in self.asked}

    def kinds_here(self, since: int = 0) -> set[str]:
        """Which kinds this thread has asked for since a length of `asked`."""
        own = threading.get_ident()
        return {what.kind for thread, what in self.asked[since:] if thread == own}


def _is_held(hold: Hold) -> bool:
    try:
        hold.check()
    except SessionClosed:
        return False
    return True
