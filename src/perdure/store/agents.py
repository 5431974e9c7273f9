"""Factories of agents: create one with a session, or bring one back from its session.

What cannot be stored (connections, windows, clients of providers) is built by the user's own
function, from what the header keeps of it: a preset's name and its configuration. An agent's loop
gets a session and does not know whether anything is stored.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from perdure.errors import PersistenceDisabled, PresetUnknown
from perdure.store.resuming import Last, Output, TriggerMaker
from perdure.store.session import Session
from perdure.store.store import Store, open_store

__all__ = ["Agents", "Build", "Presets"]

A = TypeVar("A")
B = TypeVar("B")

Build = Callable[[Session, Any], A]
"""Makes an agent for a session from the configuration that the session's header keeps.

`session.resumed` is None for a new one. What it raises closes the session.
"""


class Presets(Generic[B]):
    """What builds an agent, by the name of the preset; immutable."""

    def __init__(self, builders: Mapping[str, B], *, kept: bool) -> None:
        """`kept` says whether sessions are stored."""
        self._builders = MappingProxyType(dict(builders))
        self._kept = kept

    def __contains__(self, preset: object) -> bool:
        """Whether there is such a preset."""
        return preset in self._builders

    @property
    def names(self) -> list[str]:
        """The names, sorted."""
        return sorted(self._builders)

    def named(self, preset: str | None, session: str | None) -> B:
        """What builds agents of this preset.

        Raises:
            PresetUnknown: there is none.

        """
        build = self._builders.get(preset or "")
        if build is None:
            raise PresetUnknown(session, preset, self.names)
        return build

    def to_resume(self) -> list[str]:
        """The names that a session may have been made with.

        Raises:
            PersistenceDisabled: nothing is stored.

        """
        if not self._kept:
            raise PersistenceDisabled("resuming an agent")
        return self.names


class Agents(Generic[A]):
    """Makes agents of several presets, with persistence or without."""

    def __init__(
        self,
        presets: Mapping[str, Build[A]],
        store: Store | None = None,
        *,
        triggers: Mapping[str, TriggerMaker] | None = None,
    ) -> None:
        """Keep sessions in `store`; None: nothing is kept, and nothing can be resumed.

        `triggers` make triggers again at a resume, by their kind: see `Store.resume`.
        """
        self._presets = Presets(presets, kept=store is not None)
        self._store = open_store("none:") if store is None else store
        self._triggers = triggers

    def create(
        self,
        preset: str,
        *,
        config: Any = None,
        id: str | None = None,
        cwd: str | None = None,
    ) -> A:
        """A new agent with a session of its own, which the agent closes.

        Raises:
            PresetUnknown: there is no such preset; nothing was made.
            As `Store.create`; what the preset's function raises goes on, the session is closed.

        """
        build = self._presets.named(preset, None)
        session = self._store.create(id, cwd=cwd, preset=preset, config=config)
        return _built(build, session)

    def resume(
        self,
        id: str | Last,
        *,
        wait: float = 0.0,
        cwd: str | None = None,
        output: Output | None = None,
    ) -> A:
        """The agent of a session, built again of its preset and configuration.

        Raises:
            PersistenceDisabled: there is no store.
            PresetUnknown: it was made with a preset that is not here, or without any.
            As `Store.resume`; what the preset's function raises goes on, the session is closed.

        """
        session = self._store.resume(
            id,
            wait=wait,
            cwd=cwd,
            presets=self._presets.to_resume(),
            triggers=self._triggers,
            output=output,
        )
        return _built(self._presets.named(session.header.preset, session.id), session)


def _built(build: Build[A], session: Session) -> A:
    try:
        return build(session, session.header.config)
    except BaseException:
        session.close()
        raise
