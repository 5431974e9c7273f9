"""View "state": what agents keep under keys, by scope."""

from typing import Any

from perdure.model import values
from perdure.model.event import Event
from perdure.model.vocabulary import StateSet, fitting
from perdure.views.view import History, Rows, View
from perdure.views.windows import key_of, parts_of

__all__ = ["Scratch", "kept", "scopes"]


class Scratch(View):
    """One row per value: `[scope, agent, key]`."""

    name = "state"
    version = 1
    types = frozenset({"state/set", "state/deleted"})

    def apply(self, rows: Rows, event: Event, history: History) -> None:  # noqa: ARG002
        """Set or remove a value, or all of a scope."""
        found = fitting(event)
        if found is None:
            return
        if isinstance(found, StateSet):
            rows.put(key_of(found.scope, event.agent, found.key), found.value)
        elif found.key is not None:
            rows.remove(key_of(found.scope, event.agent, found.key))
        else:
            whole = [found.scope, event.agent]
            for key in [key for key in rows.all if parts_of(key)[:2] == whole]:
                rows.remove(key)


def kept(rows: Rows, scope: str, agent: str | None) -> dict[str, Any]:
    """A copy of what an agent keeps in a scope, sorted by key."""
    whole = [scope, agent]
    found = ((parts_of(key), value) for key, value in rows.all.items())
    mine = {str(parts[2]): value for parts, value in found if parts[:2] == whole}
    return {key: values.snapshot(mine[key]) for key in sorted(mine)}


def scopes(rows: Rows) -> dict[str, list[str | None]]:
    """The scopes in which something is kept, and the agents that keep something there."""
    pairs = {(str(scope), agent) for scope, agent, _ in map(parts_of, rows.all)}
    out: dict[str, list[str | None]] = {}
    for scope, agent in sorted(pairs, key=lambda pair: (pair[0], pair[1] or "")):
        out.setdefault(scope, []).append(agent)
    return out
