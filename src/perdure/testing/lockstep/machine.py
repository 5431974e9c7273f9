"""The lockstep: every medium is told the same, and all have to do the same.

Hypothesis chooses the steps. After each one, what it returned or refused, and all that the media
hold of the session that it was about, is compared with the model, which is `memory:`.
"""

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from hypothesis.stateful import RuleBasedStateMachine

from perdure.errors import SessionNotFound
from perdure.testing.ledger import Finding
from perdure.testing.lockstep.media import MEMORY, Medium, Name, Site, Space
from perdure.testing.lockstep.outcomes import Outcome, outcome, seen, spaces

__all__ = ["Row"]

Act = Callable[[Site], Any]
"""What one step does on one medium."""


class Row(RuleBasedStateMachine):
    """The media side by side.

    Attributes:
        media: who takes part beside the model.
        counts: how often each step was taken, over all runs; "steps" are all of them, "refused"
            those that ended in an error.
        folder: where the media keep their files; None: where the system keeps such.

    """

    media: ClassVar[Sequence[Medium]] = ()
    counts: ClassVar[Counter[str]] = Counter()
    folder: ClassVar[str | None] = None

    def __init__(self) -> None:
        """Open every medium, empty."""
        super().__init__()
        self._broken = False
        self._steps = 0
        self._place = tempfile.mkdtemp(prefix="lockstep-", dir=self.folder)
        self.sites = [Site(each, Path(self._place) / each.name) for each in (MEMORY, *self.media)]
        self.model, *self.others = self.sites
        self.names: dict[Name, None] = {}
        self._last: dict[tuple[str, Name], tuple[Any, str]] = {}

    def teardown(self) -> None:
        """Compare everything once more, in other processes, and remove it."""
        try:
            if not self._broken:
                self._close_all()
        finally:
            # What is still open has nothing to store any more.
            for site in self.sites if self._broken else ():
                with suppress(Exception):
                    site.die()
            shutil.rmtree(self._place, ignore_errors=True)

    def _close_all(self) -> None:
        self.together("close", Site.close)
        for site in self.sites:
            site.reopen(pack=True)
        for name in self.names:
            self.same(name)
        for space in dict.fromkeys([(), *(space for space, _ in self.names)]):
            self.together("look", partial(_spaces, space))
        for site in self.sites:
            site.close()

    # --- in step ---------------------------------------------------------------------------------

    def together(self, step: str, act: Act, *names: Name, **facts: Any) -> Outcome:
        """Let every medium do the same; all have to return or to refuse the same.

        `names` are the sessions that it is about: what is stored of them is compared as well.
        `facts` are for the report. What it came to on the model is returned.

        Raises:
            Finding: one of them came to something else.

        """
        self.step(step)
        first, *rest = [self._outcome(step, act, site) for site in self.sites]
        if first.error is not None:
            self.counts["refused"] += 1
        for site, came_to in zip(self.others, rest, strict=True):
            self.demand(site, f"{step} {names or ''} {facts or ''}", came_to, first)
        for name in names:
            self.names[name] = None
            self.same(name)
        return first

    def step(self, name: str) -> None:
        """Count one step, and let time pass."""
        self._steps += 1
        self.counts["steps"] += 1
        self.counts[name] += 1
        for site in self.sites:
            site.tick()

    def _outcome(self, step: str, act: Act, site: Site) -> Outcome:
        with self.watching(step, site):
            return site.counted(step, partial(outcome, partial(act, site)))

    @contextmanager
    def watching(self, step: str, site: Site) -> Iterator[None]:
        """An error that is not ours is a finding.

        Raises:
            Finding: one was raised.

        """
        try:
            yield
        except Exception as error:
            self._broken = True
            raise Finding(f"{site.medium.name}: {step}: {error!r}") from error

    def demand(self, site: Site, what: str, found: object, expected: object) -> None:
        """Hold what one medium says against the model.

        Raises:
            Finding: it is not the same.

        """
        if found == expected:
            return
        self._broken = True
        raise Finding(f"{site.medium.name}: {what}: {_difference(found, expected)}")

    def same(self, name: Name) -> None:
        """Compare what is stored of one session, and who has it open.

        Raises:
            Finding: it is not the same everywhere.

        """
        space, id = name
        # Anywhere in the log, and another place each time.
        seq = self._steps % (self.length(name) + 1)
        first = None
        for site in self.sites:
            session = site.sessions.get(name)
            if session is not None and session.closed:
                site.sessions.pop(name)
            holds = seen(site.backend(space), id, seq)
            holds["open"] = name in site.sessions
            if first is None:
                first = holds
            self.demand(site, f"what is stored of {name}", holds, first)
            self._revised(site, name, holds)

    def _revised(self, site: Site, name: Name, holds: dict[str, Any]) -> None:
        """A revision is another one as soon as the log is."""
        if "lines" not in holds:
            return
        log = (holds["header"].digest, holds["lines"])
        revision = site.backend(name[0]).revision(name[1])
        before = self._last.get((site.medium.name, name))
        if before is not None and before[0] != log and before[1] == revision:
            self.demand(site, f"the revision of {name}", "as it was", "another one")
        self._last[site.medium.name, name] = (log, revision)

    def length(self, name: Name) -> int:
        """How many events the model holds of a session; 0 if there is none."""
        try:
            acknowledged = self.model.backend(name[0]).tail(name[1]).acknowledged
        except SessionNotFound:
            return 0
        return 0 if acknowledged is None else acknowledged.seq + 1

    def open(self, name: Name) -> bool:
        """Whether the process has a writer of this session."""
        return name in self.model.sessions


def _spaces(space: Space, site: Site) -> dict[str, Any]:
    return spaces(site.space(space))


def _difference(found: object, expected: object) -> str:
    """Where two plain values begin to differ."""
    if isinstance(found, Outcome) and isinstance(expected, Outcome):
        if found.error == expected.error:
            return _difference(found.value, expected.value)
    elif isinstance(found, dict) and isinstance(expected, dict) and found.keys() == expected.keys():
        for key, value in expected.items():
            if found[key] != value:
                return f"{key}: {_difference(found[key], value)}"
    elif isinstance(found, list) and isinstance(expected, list):
        for at, (one, other) in enumerate(zip(found, expected, strict=False)):
            if one != other:
                return f"[{at}]: {one!r:.300}, not {other!r:.300}"
        return f"{len(found)} of them, not {len(expected)}"
    return f"{found!r:.600}, not {expected!r:.600}"
