"""perdure keeps agent sessions: one append-only, hash-chained log per session is the truth."""

import importlib.metadata

from perdure import errors
from perdure.backends.base import Entry
from perdure.durable.locks import Holder
from perdure.model import Event, Header, Parent, Position, Source
from perdure.recovery.walk import Problem
from perdure.store import Inspection, Prepared, Report, Session, Store
from perdure.store import open_store as open  # noqa: A004


def __getattr__(name: str) -> str:
    """`perdure.__version__`, looked up when it is asked for."""
    if name == "__version__":
        return importlib.metadata.version("perdure")
    raise AttributeError(name)


__all__ = [
    "Entry",
    "Event",
    "Header",
    "Holder",
    "Inspection",
    "Parent",
    "Position",
    "Prepared",
    "Problem",
    "Report",
    "Session",
    "Source",
    "Store",
    "errors",
    "open",
]
