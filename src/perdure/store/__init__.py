"""The facade and the one write path: sessions, their writers, and what readers see."""

from perdure.store.agents import Agents
from perdure.store.artifacts import Artifact, Extracted, Skipped
from perdure.store.content import Expiry
from perdure.store.copying import Copied
from perdure.store.embedding import Embedded
from perdure.store.families import Relative
from perdure.store.found import Coverage, Found, Hit, Listing, Stats
from perdure.store.indexer import Refreshed
from perdure.store.inspection import Inspection
from perdure.store.moving import NotCopied
from perdure.store.output import OutputRecorder
from perdure.store.prepared import Prepared
from perdure.store.remembering import memory_tool
from perdure.store.repair import Repair
from perdure.store.resumed import Resumed
from perdure.store.resuming import LAST, Last, Output
from perdure.store.retention import Missing
from perdure.store.session import Compacted, Session
from perdure.store.state import State
from perdure.store.store import Store, open_store
from perdure.store.turns import Step, Turn
from perdure.store.verification import ContentReport, Report
from perdure.store.witness import EvidenceState

__all__ = [
    "LAST",
    "Agents",
    "Artifact",
    "Compacted",
    "ContentReport",
    "Copied",
    "Coverage",
    "Embedded",
    "EvidenceState",
    "Expiry",
    "Extracted",
    "Found",
    "Hit",
    "Inspection",
    "Last",
    "Listing",
    "Missing",
    "NotCopied",
    "Output",
    "OutputRecorder",
    "Prepared",
    "Refreshed",
    "Relative",
    "Repair",
    "Report",
    "Resumed",
    "Session",
    "Skipped",
    "State",
    "Stats",
    "Step",
    "Store",
    "Turn",
    "memory_tool",
    "open_store",
]
