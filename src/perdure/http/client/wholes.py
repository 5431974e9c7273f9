"""What is done with whole sessions by a server, and done once, whatever becomes of an answer."""

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from perdure.backends.base import Trashed
from perdure.errors import PerdureError, RequestTimedOut, ServerUnavailable, SessionNotFound
from perdure.http.client.asking import Asking
from perdure.http.client.connection import Body
from perdure.http.client.headers import stored_of
from perdure.http.wire.session import Deleted, SessionShape
from perdure.runtime import Runtime

__all__ = ["Wholes"]

_POLL_SECONDS = 0.1

T = TypeVar("T")


class Wholes:
    """Deletes, restores and forks the sessions of one namespace."""

    def __init__(self, asking: Asking, runtime: Runtime) -> None:
        """Nothing is asked."""
        self._asking = asking
        self._runtime = runtime

    def delete(self, session: str, *, subagents: bool) -> Trashed:
        """Move a session to the trash.

        Raises:
            As `Store.delete`.

        """
        query = [("subagents", "true")] if subagents else []

        def ask() -> int:
            found: Deleted = self._asking.ask(
                "delete_session", Deleted, session, query, again=False
            )
            return found.deleted_at

        def done() -> int | None:
            try:
                self._asking.session(session)
            except SessionNotFound as gone:
                return gone.deleted_at
            return None

        return Trashed("", session, None, self._until_done(ask, done))

    def bring_back(self, session: str) -> None:
        """Restore a session from the trash.

        Raises:
            As `Store.restore`.

        """

        def ask() -> SessionShape:
            found: SessionShape = self._asking.ask(
                "restore_session", SessionShape, session, again=False
            )
            return found

        def done() -> SessionShape | None:
            with suppress(SessionNotFound):
                return self._asking.session(session)
            return None

        self._until_done(ask, done)

    def fork(self, session: str, child: str, body: Body) -> None:
        """Have the server make a fork; its id is free.

        Raises:
            As `Store.fork`.

        """

        def ask() -> SessionShape:
            found: SessionShape = self._asking.ask(
                "fork_session", SessionShape, session, body=body, again=False
            )
            return found

        def done() -> SessionShape | None:
            with suppress(SessionNotFound):
                shape = self._asking.session(child)
                header = stored_of(self._asking, child, shape).header
                parent = None if header is None else header.parent
                return shape if parent is not None and parent.session == session else None
            return None

        self._until_done(ask, done)

    def _until_done(self, ask: Callable[[], T], done: Callable[[], T | None]) -> T:
        """What cannot simply be sent again, because the second answer is another one.

        Where nobody knows whether it was done, that is looked up; what was not is asked again.
        """
        until = self._runtime.monotonic() + self._asking.connection.timeout
        unsure = False
        while True:
            try:
                return ask()
            except PerdureError as error:
                passing = isinstance(error, ServerUnavailable | RequestTimedOut)
                unsure = unsure or getattr(error, "uncertain", False)
                found = done() if unsure else None
                if found is not None:
                    return found
                if not (unsure and passing) or self._runtime.monotonic() > until:
                    raise
            self._runtime.sleep(_POLL_SECONDS)
