"""Which calls were told of, by whom, and whether of their results: none is told of twice."""

from collections import OrderedDict, deque
from typing import NamedTuple

from perdure.lenses.codex.calls import Search, Shown
from perdure.model.vocabulary.payloads import Block

__all__ = ["Ledger", "Outcome"]

_CALLS_MAX = 1024
"""So many calls are remembered, the latest: the records of one stand close to each other."""

_OUTCOMES_MAX = 32
"""So many results wait for the item that tells them."""

_SEARCHES_MAX = 16


class Outcome(NamedTuple):
    """What an event says a call came to, of which an item told; the item of its result is missing.

    Attributes:
        id: of the call.
        turn: that the event stands in.
        content: what it came to.
        failed: whether it failed.

    """

    id: str
    turn: str | None
    content: list[Block]
    failed: bool


class _Call(NamedTuple):
    by_item: bool
    answered: bool


class Ledger:
    """Remembers calls by their ids, and searches by what they were for. Its memory is bounded."""

    def __init__(self) -> None:
        """Remember nothing."""
        self._calls: OrderedDict[str, _Call] = OrderedDict()
        self._outcomes: OrderedDict[str, Outcome] = OrderedDict()
        self._searches: deque[Search] = deque(maxlen=_SEARCHES_MAX)

    def asked(self, id: str, search: Search | None) -> bool:
        """Note an item that asks for a call; whether events told of it already."""
        known = self._calls.get(id)
        self._note(id, _Call(by_item=True, answered=False))
        self._outcomes.pop(id, None)
        if search is not None:
            self._searches.append(search)
        return known is not None and not known.by_item

    def answered(self, id: str) -> tuple[bool, bool]:
        """Note an item with a result: whether it is news, and whether events saw the call fail.

        It is no news if events alone told of the call and of its result.
        """
        known = self._calls.get(id)
        if known is not None and known.answered and not known.by_item:
            return False, False
        self._note(id, _Call(by_item=True, answered=True))
        outcome = self._outcomes.pop(id, None)
        return True, outcome is not None and outcome.failed

    def shown(self, shown: Shown, turn: str | None) -> tuple[bool, bool]:
        """Note what an event says of a call: whether the call is news, and whether its result."""
        id, ended = shown.id, shown.content is not None
        known = self._calls.get(id)
        if shown.search is not None and shown.search in self._searches:
            self._searches.remove(shown.search)
            if known is None:
                self.told_by_item(id)
                return False, False
        if known is None:
            self._note(id, _Call(by_item=False, answered=ended))
            return True, ended
        if known.by_item:
            if not known.answered:
                self.hold(id, shown, turn)
            return False, False
        self._note(id, _Call(by_item=False, answered=known.answered or ended))
        return False, ended and not known.answered

    def told_by_item(self, id: str) -> None:
        """Note that events of this id say again what an item with another one says."""
        self._note(id, _Call(by_item=True, answered=True))

    def hold(self, id: str, shown: Shown, turn: str | None) -> None:
        """Keep what an event says that a call of an item came to, until an item tells it."""
        if shown.content is not None:
            self._outcomes[id] = Outcome(id, turn, shown.content, shown.failed)
            while len(self._outcomes) > _OUTCOMES_MAX:
                self._outcomes.popitem(last=False)

    def unanswered(self) -> list[Outcome]:
        """What events alone know of calls of items, in their order; it is forgotten."""
        outcomes, self._outcomes = list(self._outcomes.values()), OrderedDict()
        for each in outcomes:
            self._note(each.id, _Call(by_item=True, answered=True))
        return outcomes

    def _note(self, id: str, call: _Call) -> None:
        self._calls[id] = call
        self._calls.move_to_end(id)
        while len(self._calls) > _CALLS_MAX:
            self._calls.popitem(last=False)
