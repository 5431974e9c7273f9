"""Forks wait for operations on databases, and for nobody who is not in one any more."""

import sys
from types import FrameType
from typing import Any

import pytest

from perdure.databases import forks


class Interrupt(BaseException):
    """Comes at any place."""


@pytest.mark.parametrize("place", range(1, 7))
def test_an_interrupt_leaves_nobody_inside(place: int) -> None:
    """Wherever an interrupt meets an operation, a fork has nobody to wait for afterwards."""
    calls = 0

    def trace(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        if event == "call" and frame.f_code.co_filename == forks.__file__:
            calls += 1
            if calls == place:
                sys.settrace(None)
                raise Interrupt

    def operation() -> None:
        with forks.undivided():
            pass

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        operation()
    except Interrupt:
        pass
    finally:
        sys.settrace(before)
    assert not forks._gate._inside
