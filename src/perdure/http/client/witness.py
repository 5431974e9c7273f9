"""What is remembered about logs is remembered by the server, and by nobody else."""

from collections.abc import Sequence

from perdure.evidence import About, Seen
from perdure.model.header import Header
from perdure.model.record import Position, Record
from perdure.recovery.walk import Problem
from perdure.store.witness import EvidenceState, Witness

__all__ = ["Unremembering"]


class Unremembering(Witness):
    """Remembers nothing: what somebody settles at the server is not brought up again from here."""

    def about(self, session: str) -> About:
        """Nothing."""
        del session
        return About()

    def about_to_write(self, session: str) -> About:
        """Nothing."""
        del session
        return About()

    def knows(self, header: Header, seen: Sequence[Seen]) -> bool:
        """Say no: no checkpoint is read from here."""
        del header, seen
        return False

    def state(self) -> EvidenceState:
        """Nothing is wrong with nothing."""
        return EvidenceState(None, ())

    def announce(self, header: Header) -> None:
        """Whether an id is free is asked of the server."""

    def begin(self, session: str, about: About) -> None:
        """Nothing was settled here."""

    def moved(self, header: Header, position: Position, records: Sequence[Record] = ()) -> None:
        """The server has noted it."""

    def changed(self, session: str, records: Sequence[Record] = ()) -> None:
        """The server follows its sessions itself."""

    def push(self) -> None:
        """There is nothing to be noted."""

    def noted(self, header: Header) -> set[Position]:
        """Nothing."""
        del header
        return set()

    def drop(self, session: str) -> None:
        """There is nothing to be dropped."""

    def report(self, session: str, problem: Problem | None) -> None:
        """The server remembers what it refused."""

    def sound(self, session: str, about: About) -> None:
        """Nothing was reported here."""
