"""What is asked of the server about one namespace, in the terms of the store."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from perdure.errors import PerdureError, SessionNotFound
from perdure.http.client.answers import shape_in
from perdure.http.client.connection import Body, Connection
from perdure.http.client.links import Stream
from perdure.http.wire.events import WriterShape
from perdure.http.wire.session import SessionShape
from perdure.model import values

__all__ = ["Asking"]

Pairs = Iterable[tuple[str, str]]

_WAIT_SECONDS_MAX = 20.0
"""What a server waits for a writer at one request."""

_BACK_SECONDS = 5.0
"""Giving a lease back is not worth more: it ends by itself."""


class Asking:
    """Asks about the sessions of one namespace.

    Attributes:
        connection: to the server.
        parts: the namespace, outermost part first.

    """

    def __init__(self, connection: Connection, parts: tuple[str, ...] = ()) -> None:
        """Nothing is sent."""
        self.connection = connection
        self.parts = parts
        self._namespace = [("namespace", part) for part in parts]

    @property
    def url(self) -> str:
        """Of the server, for people."""
        return self.connection.address.url

    def ask(
        self,
        name: str,
        shape: Any,
        session: str | None = None,
        query: Pairs = (),
        *,
        body: Body | None = None,
        again: bool = True,
        seconds: float | None = None,
    ) -> Any:
        """See `Connection.ask`; `session` is its id.

        Raises:
            SessionNotFound: it is not there; of that session, where its whole namespace is not.
            As `Connection.ask`.

        """
        path = {} if session is None else {"session": session}
        asked = [*self._namespace, *query]
        try:
            return self.connection.ask(
                name, shape, path, asked, body=body, again=again, seconds=seconds
            )
        except SessionNotFound as error:
            if session is None or error.session == session:
                raise
            raise SessionNotFound(session) from error

    def open(
        self, name: str, session: str, query: Pairs = (), path: Mapping[str, str] | None = None
    ) -> Stream:
        """See `Connection.open`; `path` has what is named besides the session.

        Raises:
            As `ask`.

        """
        names = {"session": session, **(path or {})}
        try:
            return self.connection.open(name, names, [*self._namespace, *query])
        except SessionNotFound as error:
            if error.session == session:
                raise
            raise SessionNotFound(session) from error

    def session(self, id: str, *, full: bool = False) -> SessionShape:
        """A session as found.

        Raises:
            As `ask`.

        """
        query = [("full", "true")] if full else []
        # Only what reads everything may take as long as the operation.
        seconds = None if full else self.connection.timeout
        found: SessionShape = self.ask("get_session", SessionShape, id, query, seconds=seconds)
        return found

    # --- the right to write -----------------------------------------------------------------------

    def take(self, session: str, wait: float, lease: str) -> WriterShape:
        """The right to write, alone; for so many seconds the server waits for it.

        `lease` is an id for it: asked for again with the same one, the same right is given.

        Raises:
            As `Store.writer`, and as `ask`.

        """
        wait = min(max(wait, 0.0), _WAIT_SECONDS_MAX)
        body = Body.json(values.encode({"wait": wait, "lease": lease}))
        seconds = self.connection.timeout + wait
        found: WriterShape = self.ask(
            "take_writer", WriterShape, session, body=body, seconds=seconds
        )
        return found

    def renew(self, session: str, writer: str, seconds: float) -> WriterShape:
        """Keep the right to write that is held; tried once, for so many seconds.

        Raises:
            StaleWriter: it has ended.
            As `ask`.

        """
        body = Body.json(values.encode({"writer": writer}))
        path = {"session": session}
        raw = self.connection.once("take_writer", path, self._namespace, body=body, seconds=seconds)
        found: WriterShape = shape_in(self.url, raw, WriterShape)
        return found

    def give_back(self, session: str, writer: str) -> None:
        """Give the right to write back; what goes wrong with that ends it a little later."""
        query = [*self._namespace, ("writer", writer)]
        with suppress(PerdureError):
            self.connection.once(
                "release_writer", {"session": session}, query, seconds=_BACK_SECONDS
            )
