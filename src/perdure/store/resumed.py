"""What a resume found and made."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from perdure.store.state import Effect, Job, Subagent

__all__ = ["Resumed"]


class Resumed(NamedTuple):
    """What a resume found and made, beside what `Session.state` says.

    Attributes:
        cwd: the working directory to go on in, or None.
        interrupted: jobs that ended with a dead writer and of which nobody was told before. Tell
            the model: it is not told again.
        triggers: what was made of the triggers that wait, by their ids.
        unmade: ids of triggers whose kind nobody makes here; they stay set.
        subagents: sub-agents that have not ended, with their sessions.
        unknown_effects: effects that were begun and of which nobody knows whether they happened:
            find out, and say it with `Session.settle_effect`.

    """

    cwd: str | None
    interrupted: tuple[Job, ...]
    triggers: Mapping[str, Any]
    unmade: tuple[str, ...]
    subagents: tuple[Subagent, ...]
    unknown_effects: tuple[Effect, ...]
