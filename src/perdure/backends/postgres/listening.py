"""Whoever follows sessions is told of changes by the server, on one connection of the process."""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg

from perdure.backends.postgres.presence import channel_of
from perdure.databases.postgres import Server

__all__ = ["Listener"]

_LOOK_SECONDS = 1.0
"""So soon the thread notices that nobody follows any more."""

_log = logging.getLogger("perdure.postgres")

_AGAIN_SECONDS = 1.0
"""After a connection that broke, or was not to be had."""


class Listener:
    """Calls those who follow a session; its thread lives as long as there are any."""

    def __init__(self, server: Server) -> None:
        """Nothing is connected before somebody follows."""
        self._server = server
        self._pid = server.runtime.pid()
        self._mutex = threading.RLock()
        self._told: dict[str, list[Callable[[], None]]] = {}
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        server.closers.append(self.close)

    def subscribe(self, name: str, told: Callable[[], None]) -> Callable[[], None] | None:
        """Call `told` when the session that is told of as `name` changed; see `Backend`."""
        if self._server.address.pooled:
            # A pooler gives the connection to others, who do not listen.
            return None
        if self._pid != self._server.runtime.pid():
            self._mutex, self._told, self._thread = threading.RLock(), {}, None
            self._pid = self._server.runtime.pid()
        with self._mutex:
            self._told.setdefault(name, []).append(told)
            if self._thread is None or self._ended.is_set():
                self._ended = threading.Event()
                self._thread = threading.Thread(
                    target=self._listen, args=(self._ended,), name="perdure-listen", daemon=True
                )
                self._thread.start()

        def end() -> None:
            with self._mutex:
                those = self._told.get(name, [])
                with suppress(ValueError):
                    those.remove(told)
                if not those:
                    self._told.pop(name, None)

        return end

    def _listen(self, ended: threading.Event) -> None:
        try:
            while not self._unneeded(ended):
                try:
                    self._connected(ended)
                except Exception:  # noqa: BLE001 - it is said, and goes on
                    # Those who follow would wait for nothing: nobody sees the end of this thread.
                    _log.exception("following sessions was broken off, and goes on")
                if self._unneeded(ended):
                    return
                ended.wait(_AGAIN_SECONDS)
        finally:
            with self._mutex:
                if self._thread is threading.current_thread():
                    self._thread = None

    def _unneeded(self, ended: threading.Event) -> bool:
        """Whether nobody follows any more; then another thread may begin at once."""
        with self._mutex:
            if self._told and not ended.is_set():
                return False
            if self._thread is threading.current_thread():
                self._thread = None
            return True

    def _connected(self, ended: threading.Event) -> None:
        with suppress(psycopg.Error):
            connection = self._server.connect()
            try:
                self._hear(connection, ended)
            finally:
                connection.close()

    def _hear(self, connection: psycopg.Connection[Any], ended: threading.Event) -> None:
        channel = channel_of(self._server.address.schema)
        connection.execute(f'LISTEN "{channel}"')
        # What changed before is seen by looking; nobody knows what was missed meanwhile.
        self._call(None)
        while not ended.is_set():
            for notice in connection.notifies(timeout=_LOOK_SECONDS, stop_after=1):
                self._call(notice.payload.split())
            with self._mutex:
                if not self._told:
                    return

    def _call(self, names: list[str] | None) -> None:
        with self._mutex:
            wanted = self._told if names is None else [each for each in names if each in self._told]
            called = [told for name in wanted for told in self._told[name]]
        for told in called:
            try:
                told()
            except Exception:  # noqa: BLE001 - it is said, and goes on
                # Others are told as well, and so is this one the next time.
                _log.exception("whoever was told of a changed session raised")

    def close(self) -> None:
        """End the thread, soon; whoever follows after that begins another one."""
        self._ended.set()
