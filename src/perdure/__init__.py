"""perdure keeps agent sessions: one append-only, hash-chained log per session is the truth."""

import importlib.metadata

from perdure import errors
from perdure.backends.base import Aside, Blob, Entry, Trashed
from perdure.durable.locks import Holder
from perdure.evidence import Damage
from perdure.model import Event, Header, Parent, Position, Source
from perdure.recovery.walk import Problem
from perdure.store import (
    Compacted,
    ContentReport,
    Copied,
    EvidenceState,
    Expiry,
    Inspection,
    Missing,
    NotCopied,
    Prepared,
    Repair,
    Report,
    Session,
    Store,
)
from perdure.store import open_store as open  # noqa: A004


def __getattr__(name: str) -> str:
    """`perdure.__version__`, looked up when it is asked for."""
    if name == "__version__":
        return importlib.metadata.version("perdure")
    raise AttributeError(name)


__all__ = [
    "Aside",
    "Blob",
    "Compacted",
    "ContentReport",
    "Copied",
    "Damage",
    "Entry",
    "Event",
    "EvidenceState",
    "Expiry",
    "Header",
    "Holder",
    "Inspection",
    "Missing",
    "NotCopied",
    "Parent",
    "Position",
    "Prepared",
    "Problem",
    "Repair",
    "Report",
    "Session",
    "Source",
    "Store",
    "Trashed",
    "errors",
    "open",
]
