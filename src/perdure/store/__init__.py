"""The facade and the one write path: sessions, their writers, and what readers see."""

from perdure.store.inspection import Inspection
from perdure.store.session import Session
from perdure.store.store import Prepared, Store, open_store
from perdure.store.verification import Report

__all__ = ["Inspection", "Prepared", "Report", "Session", "Store", "open_store"]
