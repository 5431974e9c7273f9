"""perdure keeps agent sessions: one append-only, hash-chained log per session is the truth."""

import importlib.metadata

from perdure import errors
from perdure.backends.base import Aside, Blob, Entry, Trashed
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
    EvidenceState,
    Expiry,
    Extracted,
    Inspection,
    Missing,
    NotCopied,
    OutputRecorder,
    Prepared,
    Relative,
    Repair,
    Report,
    Resumed,
    Session,
    Skipped,
    State,
    Step,
    Store,
    Turn,
)
from perdure.store import open_store as open  # noqa: A004
from perdure.views.conversation import Branch
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
    "Damage",
    "Entry",
    "Event",
    "EvidenceState",
    "Expiry",
    "Extracted",
    "Header",
    "History",
    "Holder",
    "Inspection",
    "Missing",
    "NotCopied",
    "OutputRecorder",
    "Parent",
    "Position",
    "Prepared",
    "Problem",
    "Relative",
    "Repair",
    "Report",
    "Resumed",
    "Rows",
    "Session",
    "Skipped",
    "Source",
    "State",
    "Step",
    "Store",
    "Trashed",
    "Turn",
    "View",
    "Vocabulary",
    "errors",
    "open",
]
