"""Which sessions this process moves into the trash or out of it: others see that somebody does.

A row names the process and not the thread, and a claim that could not be given back is given back
later. So what the threads of one process do to one session is told apart here.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from perdure.errors import SessionBusy

__all__ = ["Moves"]

_Mine = tuple[str, int]
"""The beginning of the keys of a session."""


class _Moving:
    """One thread is at a session: it moves it, or gives a claim of before back."""

    def __init__(self, *, ends: bool) -> None:
        self.ends = ends


class Moves:
    """The sessions that threads of this process are moving, or are giving back."""

    def __init__(self) -> None:
        """Nothing is moved."""
        self._changed = threading.Condition()
        self._moved: dict[_Mine, _Moving] = {}

    @contextmanager
    def moving(self, mine: _Mine, session: str) -> Iterator[None]:
        """While this lasts no other thread of this process moves it, or gives its claim back.

        Raises:
            SessionBusy: another one does.

        """
        me = _Moving(ends=False)
        try:
            with self._changed:
                # To give back is one statement, which is sent once.
                self._changed.wait_for(lambda: mine not in self._moved or not self._ends(mine))
                if mine in self._moved:
                    raise SessionBusy(session)
                self._moved[mine] = me
            yield
        finally:
            self._end(mine, me)

    def give_back(self, mine: _Mine, do: Callable[[], None]) -> None:
        """Let go of the claim, unless somebody moves it again, who will."""
        me = _Moving(ends=True)
        try:
            with self._changed:
                if mine in self._moved:
                    return
                self._moved[mine] = me
            do()
        finally:
            self._end(mine, me)

    def _ends(self, mine: _Mine) -> bool:
        return self._moved[mine].ends

    def _end(self, mine: _Mine, me: _Moving) -> None:
        # By what it is: an interrupt may come at any place above.
        with self._changed:
            if self._moved.get(mine) is me:
                del self._moved[mine]
                self._changed.notify_all()
