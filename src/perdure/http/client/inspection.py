"""A session behind a URL, as found."""

import re
from collections.abc import Callable
from functools import cached_property
from types import EllipsisType
from typing import Any

import msgspec

from perdure.http.client.answers import shape_in
from perdure.http.client.asking import Asking
from perdure.http.client.headers import holder_of, position_of, problem_of, stored_of
from perdure.http.client.medium import Medium
from perdure.http.wire.session import BranchesShape, MessagesShape, SessionShape
from perdure.model import values
from perdure.model.event import Event
from perdure.model.record import Position
from perdure.recovery.walk import Problem
from perdure.store import Inspection
from perdure.store.folding import Folds
from perdure.store.survey import Survey
from perdure.store.witness import Witness
from perdure.views.conversation import Branch
from perdure.views.providers import FORMATS

__all__ = ["RemoteInspection"]

_NOT_EXACT = re.compile(b"\xef\xbf\xbd|\\\\ufffd", re.IGNORECASE)
"""U+FFFD may stand for what JSON does not carry between programs: a lone surrogate."""


class RemoteInspection(Inspection):
    """A session as found; see `Inspection`. What it was when it was looked at is not asked again.

    `events` and what is folded are of the log as it is when they are read, verified here.
    """

    def __init__(
        self,
        medium: Medium,
        session: str,
        survey: Survey,
        witness: Witness,
        folds: Folds,
        *,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Ask for header, holder and end. Made by `Store.inspect`."""
        self._asking: Asking = medium.asking
        self._shape = medium.asking.session(session)
        stored = stored_of(medium.asking, session, self._shape)
        self._backend = medium
        self._survey = survey
        self._witness = witness
        self._folds = folds
        self._progress = progress
        self._stored = stored
        self.id = session
        self.header = stored.header
        self.holder = holder_of(self._shape)
        self._whole = None
        self._closers = None
        self._loaded = None

    @property
    def position(self) -> Position | None:
        """Where the log ended; None without a header."""
        return position_of(self._shape)

    @property
    def status(self) -> str:
        """As the server found it; see `Inspection.status`."""
        return self._shape.status

    @cached_property
    def _full(self) -> SessionShape:
        """All that is wrong, as the server finds it, asked once."""
        return self._asking.session(self.id, full=True)

    @property
    def problems(self) -> list[Problem]:
        """Everything that does not hold together, as the server finds it, which reads everything.

        Places are bytes of the server's files.
        """
        return [problem_of(each) for each in self._full.problems]

    @property
    def damaged(self) -> bool:
        """Whether appends are refused. The server reads everything."""
        return self._full.state is None

    @property
    def closers(self) -> list[Event]:
        """The events that would close what a dead writer left open. The server reads everything."""
        return [
            Event(
                each.seq,
                each.type,
                each.time,
                each.agent,
                each.turn,
                each.key,
                each.ignorable,
                values.encode(each.data),
            )
            for each in self._full.closers
        ]

    def messages(
        self,
        agent: str | None = None,
        *,
        at: str | None = None,
        format: str = "neutral",  # noqa: A002
    ) -> list[dict[str, Any]]:
        """See `Session.messages`; made by the server, or here where only that is exact.

        Raises:
            As `Session.messages`.

        """
        told = {"agent": agent, "at": at, "format": format}
        query = [(name, each) for name, each in told.items() if each is not None]
        if format in FORMATS and all(_plain(each) for _, each in query):
            found = self._asked("messages", MessagesShape, query)
            if found is not None:
                return [*found.messages]
        return super().messages(agent, at=at, format=format)

    def branches(self, agent: str | EllipsisType | None = ...) -> list[Branch]:
        """See `Session.branches`; made by the server, or here where only that is exact.

        Raises:
            As `Session.branches`.

        """
        found = self._asked("branches", BranchesShape, [])
        if found is None:
            return super().branches(agent)
        made = [Branch(**msgspec.structs.asdict(each)) for each in found.branches]
        return [each for each in made if agent is ... or each.agent == agent]

    def _asked(self, name: str, shape: Any, query: list[tuple[str, str]]) -> Any:
        """An answer, or None where it does not say exactly what the log says."""
        raw: bytes = self._asking.ask(name, bytes, self.id, query)
        if _NOT_EXACT.search(raw):
            return None
        return shape_in(self._asking.url, raw, shape)


def _plain(text: object) -> bool:
    return isinstance(text, str) and values.text(text) == text
