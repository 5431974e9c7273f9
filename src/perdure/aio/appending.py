"""What appending for tasks returns: the events of one call, and how their commit is waited for."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from perdure.aio.outcomes import Awaiting, Outcome
from perdure.model.event import Draft, Event
from perdure.store.queue import Accepted

__all__ = ["Group", "One", "Several"]

T = TypeVar("T")


class Group:
    """The events of one call, on their way to the log."""

    def __init__(
        self,
        at: int | None = None,
        *,
        turn: str | None = None,
        check: Callable[[], object] | None = None,
    ) -> None:
        """Demand the number `at` for the first; `check` is called before they are queued."""
        self.at = at
        self.check = check
        self.drafts: Sequence[Draft] = ()
        self.own: list[Accepted] = []
        self.admitted = False
        self.outcome: Outcome[None] = Outcome(turn)

    @property
    def lost(self) -> bool:
        """Whether no later commit will store what is not stored."""
        return not self.own or any(
            not one.durable and (one.withdrawn or one.failure is not None) for one in self.own
        )


class _Appending(Awaiting[T]):
    """What `append` returns: waits for the commit."""

    def __init__(
        self,
        leave: Callable[[Group], bool],
        remember: Callable[[BaseException], None],
        group: Group,
    ) -> None:
        """Wait for `group`; `leave` and `remember` are the session's."""
        self._leave = leave
        self._remember = remember
        self._group = group
        self._waiters = 0
        self._begun = False

    @property
    def failed(self) -> bool:
        """Whether it is known already that it is not stored."""
        return self._group.outcome.error is not None

    def _events(self) -> list[Event]:
        return [one.event for one in self._group.own]

    async def _until_durable(self) -> None:
        outcome = self._group.outcome
        self._begun = outcome.told = True
        self._waiters += 1
        try:
            await outcome.wait()
        except GeneratorExit:
            outcome.told = False
            self._forget()
            raise
        except BaseException:
            if self._waiters == 1 and not self._leave(self._group):
                outcome.result()
            raise
        finally:
            self._waiters -= 1
        outcome.result()

    def _never_begun(self) -> None:
        self._begun = self._group.outcome.told = True
        if not self._leave(self._group):
            self._group.outcome.result()

    def _forget(self) -> None:
        """Nobody will wait: a failure is kept for the next call.

        The collector may call this at any place, so nothing may be locked here.
        """
        # In this order: the thread that decides looks the other way round.
        outcome = self._group.outcome
        outcome.abandoned = True
        if outcome.error is not None and not outcome.told:
            outcome.told = True
            self._remember(outcome.error)

    def __del__(self) -> None:
        """Its result is thrown away."""
        if not self._begun:
            self._forget()


class One(_Appending[Event]):
    """Of one event."""

    async def _wait(self) -> Event:
        await self._until_durable()
        return self._events()[0]


class Several(_Appending[list[Event]]):
    """Of several that stand together."""

    async def _wait(self) -> list[Event]:
        await self._until_durable()
        return self._events()
