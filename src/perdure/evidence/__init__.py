"""What must survive a lost index: positions seen, damage reports, tombstones, acceptances."""

from perdure.evidence.evidence import Evidence
from perdure.evidence.facts import Acceptance, Damage, Deleted, Seen

__all__ = ["Acceptance", "Damage", "Deleted", "Evidence", "Seen"]
