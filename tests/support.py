"""What several test modules need: how many cases to draw."""

import os

SOAK = os.environ.get("PERDURE_SOAK") == "1"


def scaled(full: int) -> int:
    """Return `full` when PERDURE_SOAK=1, otherwise a tenth of it and at least one."""
    return full if SOAK else max(1, full // 10)
