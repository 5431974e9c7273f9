"""The facade and the one write path: sessions, their writers, and what readers see."""

from perdure.store.content import Expiry
from perdure.store.copying import Copied
from perdure.store.inspection import Inspection
from perdure.store.moving import NotCopied
from perdure.store.prepared import Prepared
from perdure.store.repair import Repair
from perdure.store.retention import Missing
from perdure.store.session import Compacted, Session
from perdure.store.store import Store, open_store
from perdure.store.verification import ContentReport, Report
from perdure.store.witness import EvidenceState

__all__ = [
    "Compacted",
    "ContentReport",
    "Copied",
    "EvidenceState",
    "Expiry",
    "Inspection",
    "Missing",
    "NotCopied",
    "Prepared",
    "Repair",
    "Report",
    "Session",
    "Store",
    "open_store",
]
