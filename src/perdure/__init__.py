"""perdure keeps agent sessions: one append-only, hash-chained log per session is the truth."""

import importlib.metadata

from perdure import errors
from perdure.backends.base import Aside, Blob, Entry, Trashed
from perdure.catalog.contract import Listed
from perdure.durable.locks import Holder
from perdure.evidence import Damage
from perdure.model import Event, Header, Parent, Position, Source
from perdure.model.vocabulary import Vocabulary
from perdure.recovery.walk import Problem
from perdure.store import (
    LAST,
    Agents,
    Artifact,
    Compacted,
    ContentReport,
    Copied,
    Coverage,
    Embedded,
    EvidenceState,
    Expiry,
    Extracted,
    Found,
    Hit,
    Inspection,
    Listing,
    Missing,
    NotCopied,
    OutputRecorder,
    Prepared,
    Refreshed,
    Relative,
    Repair,
    Report,
    Resumed,
    Session,
    Skipped,
    State,
    Stats,
    Step,
    Store,
    Turn,
    memory_tool,
)
from perdure.store import open_store as open  # noqa: A004
from perdure.views.conversation import Branch
from perdure.views.projection import Projection
from perdure.views.view import History, Rows, View


def __getattr__(name: str) -> str:
    """`perdure.__version__`, looked up when it is asked for."""
    if name == "__version__":
        return importlib.metadata.version("perdure")
    raise AttributeError(name)


__all__ = [
    "LAST",
    "Agents",
    "Artifact",
    "Aside",
    "Blob",
    "Branch",
    "Compacted",
    "ContentReport",
    "Copied",
    "Coverage",
    "Damage",
    "Embedded",
    "Entry",
    "Event",
    "EvidenceState",
    "Expiry",
    "Extracted",
    "Found",
    "Header",
    "History",
    "Hit",
    "Holder",
    "Inspection",
    "Listed",
    "Listing",
    "Missing",
    "NotCopied",
    "OutputRecorder",
    "Parent",
    "Position",
    "Prepared",
    "Problem",
    "Projection",
    "Refreshed",
    "Relative",
    "Repair",
    "Report",
    "Resumed",
    "Rows",
    "Session",
    "Skipped",
    "Source",
    "State",
    "Stats",
    "Step",
    "Store",
    "Trashed",
    "Turn",
    "View",
    "Vocabulary",
    "errors",
    "memory_tool",
    "open",
]
