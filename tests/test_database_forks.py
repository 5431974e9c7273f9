"""Forks wait for operations on databases, and for nobody who is not in one any more."""

import gc
import os
import sys
import threading
import weakref
from collections import deque
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


def test_a_fork_waits_for_operations() -> None:
    """A fork waits until the operations of other threads are done, and holds up new ones."""
    gate = forks._Gate()
    order: list[str] = []
    entered, released = threading.Event(), threading.Event()

    def operate() -> None:
        gate.enter(1)
        entered.set()
        released.wait()
        order.append("operation")
        gate.leave(1)

    def fork() -> None:
        gate.before_fork()
        order.append("fork")
        gate.after_fork()

    threads = [threading.Thread(target=operate), threading.Thread(target=fork)]
    threads[0].start()
    entered.wait()
    threads[1].start()
    released.set()
    for thread in threads:
        thread.join()
    assert order == ["operation", "fork"]
    gate.enter(2)
    gate.leave(2)


def test_a_fork_within_an_operation_does_not_hang() -> None:
    """A signal handler may fork in the thread that it interrupts."""
    gate = forks._Gate()
    gate.enter(threading.get_ident())
    gate.before_fork()
    gate.reset()
    gate.leave(threading.get_ident())
    gate.before_fork()
    gate.after_fork()


class Held:
    """Something that is open; what it does when it is closed is the test's."""

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


class Broken(Held):
    """Raises when it is closed."""

    def close(self) -> None:
        super().close()
        raise ValueError


def test_all_that_is_open_is_closed_before_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one that cannot be closed nor those that come meanwhile keep any open."""
    monkeypatch.setattr(forks, "_closing", [*forks._closing])
    those: forks.Closing[Held] = forks.Closing()
    there = [Broken(), *(Held() for _ in range(100))]
    for one in there:
        those.add(one)
    more = [Held() for _ in range(100)]
    crowd = threading.Thread(target=lambda: deque(map(those.add, more)))

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != weakref.WeakSet.__iter__.__code__.co_filename:
            return None
        # In the middle of the fork's way through them.
        if event == "line" and "item" in frame.f_locals and crowd.ident is None:
            crowd.start()
            # It waits for the fork, and so this is waited for to its end.
            crowd.join(0.1)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        child = os.fork()
    finally:
        sys.settrace(before)
    if child == 0:
        os._exit(any(one.closed != 1 for one in there))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    if crowd.ident is None:
        # Where nothing can come between.
        crowd.start()
    crowd.join()
    assert {one.closed for one in there} == {1}
    assert {one.closed for one in more} == {0}
    assert set(those) == {*there, *more}


def test_who_is_gone_is_not_kept() -> None:
    """What is named there is there for as long as somebody else uses it."""
    those: forks.Closing[Held] = forks.Closing()
    one = Held()
    those.add(one)
    assert [*those] == [one]
    del one
    gc.collect()
    assert [*those] == []
