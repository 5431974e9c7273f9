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


def scopes(rows: Rows) -> dict[str, dict[str | None, dict[str, Any]]]:
    """A copy of all that is kept: by scope, by agent, by key, each sorted."""
    found = sorted(
        ((*map(_text, parts_of(key)), parts_of(key)[1], value) for key, value in rows.all.items()),
        key=lambda row: row[:3],
    )
    out: dict[str, dict[str | None, dict[str, Any]]] = {}
    for scope, _, key, agent, value in found:
        out.setdefault(scope, {}).setdefault(agent, {})[key] = values.snapshot(value)
    return out


def _text(part: Any) -> str:
    return "" if part is None else str(part)
