"""What must survive a lost index: positions seen, damage reports, tombstones, acceptances."""

from perdure.evidence.evidence import Evidence
from perdure.evidence.facts import About, Acceptance, Damage, Deleted, Seen

__all__ = ["About", "Acceptance", "Damage", "Deleted", "Evidence", "Seen"]
