"""What several test modules need: how many cases to draw."""

import os
from typing import Any

import pytest

SOAK = os.environ.get("PERDURE_SOAK") == "1"


def scaled(full: int) -> int:
    """Return `full` when PERDURE_SOAK=1, otherwise a tenth of it and at least one."""
    return full if SOAK else max(1, full // 10)


def soaked(*values: Any) -> list[Any]:
    """Return these values as parameters that are tried in the soak alone."""
    return [pytest.param(value, marks=pytest.mark.soak) for value in values]
