"""Waiting for the end of a writer, whose connection holds an advisory lock while it lives."""

import threading
from contextlib import suppress

from perdure.databases.postgres import NotMade, Server, Unsure, Work
from perdure.errors import PerdureError

__all__ = ["LOCK", "wait_for"]

LOCK = "hashtext('perdure ' || %s), %s"
"""Advisory locks have two numbers: one for the schema, one for the writer."""

_PROBE_SECONDS = (0.01, 0.02)
"""Pauses of whoever begins to wait for the end of a writer."""

_PROBE_SECONDS_MAX = 0.5
"""The longest pause of those who have waited for a while."""

_PROBE_GROWTH = 1.6


class _Pace(threading.local):
    """For whose end a thread waits, since when it did so last, and how long the last pause was."""

    def __init__(self) -> None:
        self.writer = 0
        self.last = 0.0
        self.seconds = 0.0


_pace = _Pace()


def wait_for(server: Server, writer: int) -> None:
    """Give a connection that was broken off the moment that the server takes to notice it.

    Whoever calls it over and over, for a writer that lives, waits longer each time, half a second
    at last. It is asked whether the lock is free, and not waited for it: the server would log an
    error for each time that it was not.
    """
    if server.address.pooled:
        return
    runtime = server.runtime

    def free(work: Work) -> bool:
        query = f"SELECT pg_try_advisory_xact_lock_shared({LOCK})"
        return work.row(query, server.address.schema, writer) == (True,)

    def seen() -> bool:
        with suppress(PerdureError, NotMade, Unsure):
            return server.change(free, synced=False, repeatable=True)
        return True

    now = runtime.monotonic()
    if _pace.writer == writer and now - _pace.last < 2 * _PROBE_SECONDS_MAX:
        pauses: tuple[float, ...] = (min(_pace.seconds * _PROBE_GROWTH, _PROBE_SECONDS_MAX),)
    else:
        pauses = _PROBE_SECONDS
    _pace.writer = writer
    for seconds in pauses:
        if seen():
            _pace.writer = 0
            return
        runtime.sleep(seconds)
        _pace.seconds = seconds
    _pace.last = runtime.monotonic()
