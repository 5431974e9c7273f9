"""A medium in the lockstep, and one process on it: clock, stores, writers, and its death.

A process here is a clock with a process id. When it dies, nothing that it would have done happens
any more: no crash point lets it pass, what it buffered is lost, and its locks go as a system would
take them, because its writers are closed as copies in another process would be.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from perdure.backends.base import Backend
from perdure.backends.directory import DirectoryBackend
from perdure.backends.memory import MemoryBackend
from perdure.backends.sqlite import BundleBackend, SqliteBackend
from perdure.durable import crash
from perdure.errors import InvalidValue, PerdureError, SessionNotFound
from perdure.model.event import Event
from perdure.runtime import Runtime
from perdure.store import Session, Store
from perdure.store.flusher import Flusher
from perdure.testing.contract.place import Clockwork
from perdure.testing.mutations import unframed

__all__ = ["BUILT_IN", "MEMORY", "Dead", "Death", "Medium", "Name", "Site", "Space"]

T = TypeVar("T")

TICK_MS = 20
"""How much time passes with each step of the lockstep."""

Space = tuple[str, ...]
"""A namespace, outermost part first."""

Name = tuple[Space, str]
"""A session: its namespace and its id."""


class Medium(NamedTuple):
    """A kind of backend that takes part.

    Attributes:
        name: what it is called in reports.
        make: opens the backend in a folder that may not exist yet; as another process would, if
            called again.
        survives_reopen: sessions outlive the backend object.
        torn: what a commit begins with that a dying writer left unfinished behind the log file that
            `locate` names, for media that append to one; else None.
        lines: the whole lines of a log that is kept aside as these bytes, header first.

    """

    name: str
    make: Callable[[Path, Runtime], Backend]
    survives_reopen: bool = True
    torn: bytes | None = None
    lines: Callable[[bytes], bytes] = lambda data: data[: data.rfind(b"\n") + 1]


MEMORY = Medium("memory", lambda _, runtime: MemoryBackend(runtime=runtime), survives_reopen=False)
"""The model: the others are held against it."""

BUILT_IN = (
    Medium(
        "raw",
        lambda folder, runtime: DirectoryBackend(str(folder), runtime=runtime, encoding="raw"),
        torn=b'{"seq":',
    ),
    Medium(
        "zst",
        lambda folder, runtime: DirectoryBackend(str(folder), runtime=runtime, encoding="zst"),
        torn=b"\x28\xb5\x2f\xfd\x04",
        lines=unframed,
    ),
    Medium(
        "sqlite",
        lambda folder, runtime: SqliteBackend(str(folder / "s.db"), runtime=runtime),
    ),
    Medium(
        "bundle",
        lambda folder, runtime: BundleBackend(str(folder / "s.perdure"), runtime=runtime),
    ),
)
"""What perdure comes with."""


class Dead(BaseException):
    """The process that got this far does nothing any more."""


class Death(NamedTuple):
    """When a process dies.

    Attributes:
        tenths: how much of what it does is done, counted in crash points; above 10: right after it.
        half: in the middle of the next write from there on instead.

    """

    tenths: int
    half: bool = False


class StepClock(Clockwork):
    """Time stands still within a step, however often a medium reads it, and so does the process."""

    def __init__(self) -> None:
        """Begin with process 1."""
        super().__init__()
        self.now = super().now_ms()
        self.process = 1

    def now_ms(self) -> int:
        """The time of the step."""
        return self.now

    def pid(self) -> int:
        """The process that runs now."""
        return self.process


class Later(Flusher):
    """What a background thread would do, done when the lockstep says that it comes by."""

    def __init__(self, runtime: Runtime) -> None:
        """Nothing is due."""
        super().__init__(runtime)
        self._scheduled: dict[Callable[[], None], None] = {}

    def schedule(self, flush: Callable[[], None], delay: float = 0.0) -> bool:
        """Keep it until `run`."""
        del delay  # the lockstep has no use for seconds
        self._scheduled[flush] = None
        return True

    @property
    def due(self) -> bool:
        """Whether there is anything to do."""
        return bool(self._scheduled)

    def run(self) -> None:
        """Do what is due by now."""
        due, self._scheduled = self._scheduled, {}
        for flush in due:
            flush()


class Site:
    """One medium with a process on it that writes, and another one that only reads.

    Attributes:
        medium: which one.
        clock: what the process reads.
        store: of the process.
        sessions: the writers that it has open.
        torn: sessions with a torn tail that no writer has set aside yet.

    """

    def __init__(self, medium: Medium, folder: Path) -> None:
        """Open it in `folder`; nothing is stored."""
        self.medium = medium
        self.clock = StepClock()
        self.sessions: dict[Name, Session] = {}
        self.torn: set[Name] = set()
        self._folder = folder
        self._backends: list[Backend] = []
        self._points: dict[str, int] = {}
        self._begin(pack=True)

    def _begin(self, *, pack: bool) -> None:
        if self.medium.survives_reopen or not self._backends:
            self._backends = [self.medium.make(self._folder, self.clock)]
        self._later = Later(self.clock)
        self._pack = pack
        self.store = self._open(self._backends[0])
        self._reader: Store | None = None

    def _open(self, backend: Backend) -> Store:
        return Store(backend, runtime=self.clock, pack=self._pack, flusher=self._later)

    # --- looking about ---------------------------------------------------------------------------

    def backend(self, space: Space = ()) -> Backend:
        """The medium itself, of a namespace."""
        backend = self._backends[0]
        for part in space:
            backend = backend.namespace(part)
        return backend

    def space(self, space: Space, *, elsewhere: bool = False) -> Store:
        """The store of a namespace; `elsewhere`: of a process that shares only what is stored."""
        if not elsewhere:
            return self.store.namespace(*space)
        if self._reader is None:
            if self.medium.survives_reopen:
                self._backends.append(self.medium.make(self._folder, self.clock))
            self._reader = self._open(self._backends[-1])
        return self._reader.namespace(*space)

    def writer(self, name: Name) -> Session:
        """The writer of a session; it is opened, or created, if the process has none."""
        if name not in self.sessions:
            store = self.space(name[0])
            try:
                self.sessions[name] = store.writer(name[1])
                self.torn.discard(name)
            except SessionNotFound:
                self.sessions[name] = store.create(name[1])
        return self.sessions[name]

    def append(self, name: Name, batch: Sequence[Mapping[str, Any]]) -> list[Event]:
        """Append by id. Whether the batch is refused or not, its writer sets aside what is torn."""
        try:
            events = self.space(name[0]).append(name[1], batch)
        except InvalidValue:
            self.torn.discard(name)
            raise
        if batch:
            self.torn.discard(name)
        return events

    def log(self, name: Name) -> Path | None:
        """The file behind which a torn commit may stand."""
        located = self.backend(name[0]).locate(name[1])
        return Path(located) if located is not None and self.medium.torn is not None else None

    # --- time ------------------------------------------------------------------------------------

    def tick(self) -> None:
        """The next step."""
        self.clock.now += TICK_MS

    @property
    def busy(self) -> bool:
        """Whether the background thread has anything to do."""
        return self._later.due

    def run_later(self) -> None:
        """Let the background thread come by."""
        self._later.run()

    def reopen(self, *, pack: bool) -> None:
        """Begin another process; the one before was closed."""
        self.clock.process += 1
        self._begin(pack=pack)

    def close(self) -> None:
        """End the process in good order.

        Raises:
            PerdureError: something buffered could not be stored; the process ends all the same.

        """
        try:
            self.store.close()
        finally:
            self.sessions.clear()
            if self._reader is not None:
                self._reader.close()

    # --- death -----------------------------------------------------------------------------------

    def counted(self, step: str, call: Callable[[], T]) -> T:
        """What a call returns; how many crash points it comes to is remembered for `dies_in`."""
        visited: list[str] = []
        crash.arm(hook=visited.append)
        try:
            return call()
        finally:
            crash.arm()
            self._points[step] = len(visited)

    def dies_in(self, step: str, call: Callable[[], object], death: Death) -> None:
        """Let the process do something, in which or right after which it dies.

        `step` is what it was called when it was done last.
        """
        visit = 1 + self._points.get(step, 10) * death.tenths // 10
        with suppress(Dead, PerdureError), _mortal(visit, half=death.half):
            call()
        self.die()

    def die(self) -> None:
        """The process is gone, with all that it had in memory; another one begins."""
        old = self.clock.process
        stores = {self.store.namespace(*space) for space, _ in self.sessions} | {self.store}
        self.clock.process += 1
        for session in self.sessions.values():
            # A copy in another process: it is let go of, and stores nothing.
            session.close()
        self.sessions.clear()
        for store in (*stores, self._reader or self.store):
            store.begin_in_child()
        # What a system would close. A copy in another process keeps its hands off.
        self.clock.process = old
        for backend in self._backends if self.medium.survives_reopen else ():
            backend.close()
        self.reopen(pack=self._pack)


@contextmanager
def _mortal(visit: int, *, half: bool) -> Iterator[None]:
    """Raise `Dead` at the how-manieth crash point, and at every later one."""
    visits, dead = 0, False

    def hook(name: str) -> None:
        nonlocal visits, dead
        visits += 1
        due = visits >= visit
        dead = dead or (due if not half else name == "write.half")
        if dead:
            raise Dead(name)
        if due:
            crash.arm(hook=hook, halves=frozenset({"write.half"}))

    crash.arm(hook=hook)
    try:
        yield
    finally:
        crash.arm()
