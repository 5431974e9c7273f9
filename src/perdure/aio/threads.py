"""The threads that do what blocks: pools, and lanes that keep what belongs together in order."""

import concurrent.futures
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import partial
from typing import Generic, TypeVar

from perdure.runtime import SYSTEM

__all__ = ["Lane", "Pool", "ProcessBound", "make_all"]

J = TypeVar("J")


class ProcessBound(ABC):
    """Has threads or locks, of which a forked child has no use: they are made anew in it."""

    def __init__(self) -> None:
        """Begin in this process."""
        _bound.add(self)
        self._begin()

    @abstractmethod
    def _begin(self) -> None:
        """Begin with new locks and no threads."""


_bound: "weakref.WeakSet[ProcessBound]" = weakref.WeakSet()


def _begin_in_child() -> None:
    for each in list(_bound):
        each._begin()  # noqa: SLF001


SYSTEM.at_fork(_begin_in_child)


class _Job:
    """A call that is made by one thread only: a worker's, or the one that gives up on workers."""

    def __init__(self, call: Callable[[], object], over: Callable[[], None]) -> None:
        self._calls = [call]
        self._over = over

    def claim(self) -> Callable[[], object] | None:
        try:
            return self._calls.pop()
        except IndexError:
            return None

    def __call__(self) -> None:
        call = self.claim()
        try:
            if call is not None:
                call()
        finally:
            self._over()


class Pool(ProcessBound):
    """Worker threads, started as they are needed and at most `size`.

    The interpreter waits at its exit for all that was submitted.
    """

    def __init__(self, name: str, size: int) -> None:
        """Start no thread yet."""
        self._name = name
        self._size = size
        super().__init__()

    def _begin(self) -> None:
        self._mutex = threading.Lock()
        self._executor: concurrent.futures.ThreadPoolExecutor | None = None
        self._unfinished = 0

    @property
    def crowded(self) -> bool:
        """Whether calls wait for a thread."""
        return self._unfinished > self._size

    def _over(self) -> None:
        with self._mutex:
            self._unfinished -= 1

    def submit(self, call: Callable[[], object]) -> bool:
        """Have a worker make the call; False if none can: then nobody makes it."""
        job = _Job(call, self._over)
        with self._mutex:
            if self._executor is None:
                self._executor = concurrent.futures.ThreadPoolExecutor(
                    self._size, thread_name_prefix=self._name
                )
            self._unfinished += 1
            try:
                self._executor.submit(job)
            except RuntimeError:
                # No further thread can be started, or the interpreter is about to end.
                # The executor may have queued the job all the same, to find it claimed.
                return job.claim() is None
        return True

    def run(self, call: Callable[[], object]) -> None:
        """Have a worker make the call; where there are no workers any more, make it here."""
        if not self.submit(call):
            call()

    def close(self) -> None:
        """Let the threads end after what was submitted; a later call starts new ones."""
        with self._mutex:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False)


class Lane(ProcessBound, Generic[J]):
    """Jobs of which one thread at a time works off all that are there, in order."""

    def __init__(self, pool: Pool) -> None:
        """Use the threads of `pool`, never more than one."""
        self._pool = pool
        super().__init__()

    def _begin(self) -> None:
        self._mutex = threading.Lock()
        self._waiting: list[J] = []
        self._busy = False

    def put(self, job: J, work: Callable[[list[J]], None]) -> None:
        """Add a job; `work` gets it together with those that were added meanwhile."""
        with self._mutex:
            self._waiting.append(job)
            if self._busy:
                return
            self._busy = True
        if not self._pool.submit(partial(self._run, work)):
            self._run(work)

    def _run(self, work: Callable[[list[J]], None]) -> None:
        while True:
            with self._mutex:
                batch, self._waiting = self._waiting, []
            work(batch)
            del batch
            with self._mutex:
                if not self._waiting:
                    self._busy = False
                    return
            # A busy lane does not keep a thread for itself while others wait for one.
            if self._pool.crowded and self._pool.submit(partial(self._run, work)):
                return


def make_all(calls: Iterable[Callable[[], object]]) -> None:
    """Make one call after the other: the work of a lane of calls."""
    for call in calls:
        call()
