"""What a session is told besides turns, each a typed event: state, triggers, jobs, channels.

What blocks and what is awaited say the same; they differ in what a call returns.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any, Generic, Literal, TypeVar

from perdure.runtime import Runtime
from perdure.store.members import Content, Failure, failure_of

__all__ = ["Statements"]

R = TypeVar("R")


class Statements(ABC, Generic[R]):
    """Each method is one event of the vocabulary; durable unless it says that it is buffered.

    Members that are of the wrong kind are refused with `InvalidValue`; nothing was accepted then.
    """

    _runtime: Runtime

    @property
    @abstractmethod
    def run(self) -> str:
        """Id of this run: what a process does with the session from opening to closing it."""

    @abstractmethod
    def _say(
        self,
        kind: str,
        members: dict[str, Any],
        *,
        agent: str | None = None,
        turn: str | None = None,
        durable: bool = True,
    ) -> R:
        """Append an event of the vocabulary."""

    # --- the session -----------------------------------------------------------------------------

    def record_run(
        self,
        type: Literal["session/started", "session/resumed"] = "session/started",  # noqa: A002
        *,
        cwd: str | None = None,
        told: Collection[str] = (),
    ) -> R:
        """Say that this process begins to write: buffered. Run id, host and pid stand in it.

        The first turn of a new session says so by itself, and so does a resume. `type` is
        "session/started" or "session/resumed"; `cwd` where the run goes on if not where it began;
        `told` the jobs of which the agent was told that they were interrupted.

        Raises:
            As `Session.buffer`.

        """
        members = {
            "run": self.run,
            "host": self._runtime.host(),
            "pid": self._runtime.pid(),
            "told": [*told],
            "cwd": cwd,
        }
        if not told:
            del members["told"]
        return self._say(type, members, durable=False)

    def set_title(self, title: str) -> R:
        """Give the session a name for people.

        Raises:
            As `Session.append`.

        """
        return self._say("session/titled", {"title": title})

    # --- the context -----------------------------------------------------------------------------

    def rewind(self, to: str | None, *, agent: str | None = None, reason: str | None = None) -> R:
        """Have the agent stand behind the turn `to` again, or before its first one (None).

        What was said since stays in the log, as a branch: a rewind can be taken back by another.

        Raises:
            As `Session.append`.

        """
        return self._say("context/rewound", {"to": to, "reason": reason}, agent=agent)

    def compact_context(
        self,
        summary: Content,
        *,
        first_kept: int | None = None,
        before: int | None = None,
        after: int | None = None,
        reason: str | None = None,
        agent: str | None = None,
        turn: str | None = None,
    ) -> R:
        """From here on `summary` stands for what the agent's model was told before.

        `first_kept` is the number of the first event whose message is kept as it is; `before` and
        `after` are sizes of the context in tokens. The log keeps everything; to store it in less
        room is `Session.compact`.

        Raises:
            As `Session.append`.

        """
        members = {
            "summary": summary,
            "first_kept": first_kept,
            "before": before,
            "after": after,
            "reason": reason,
        }
        return self._say("context/compacted", members, agent=agent, turn=turn)

    # --- state -----------------------------------------------------------------------------------

    def set_state(
        self,
        key: str,
        value: Any,
        *,
        scope: str = "scratchpad",
        agent: str | None = None,
        turn: str | None = None,
    ) -> R:
        """Keep `value` (JSON) under `key`. `scope` is "scratchpad", "settings" or "counters".

        Or it is a name of your own: `State.scope` reads any of them.

        Raises:
            As `Session.append`.

        """
        members = {"key": key, "value": value, "scope": scope}
        return self._say("state/set", members, agent=agent, turn=turn)

    def delete_state(
        self,
        key: str | None = None,
        *,
        scope: str = "scratchpad",
        agent: str | None = None,
        turn: str | None = None,
    ) -> R:
        """Keep nothing under `key` any more; without a key, nothing in the whole scope.

        Raises:
            As `Session.append`.

        """
        return self._say("state/deleted", {"key": key, "scope": scope}, agent=agent, turn=turn)

    # --- triggers --------------------------------------------------------------------------------

    def set_trigger(
        self,
        id: str,
        kind: str,
        state: Any = None,
        *,
        agent: str | None = None,
        turn: str | None = None,
    ) -> R:
        """A trigger waits from now on; `state` (JSON) is what makes it again after a restart.

        Raises:
            As `Session.append`.

        """
        return self._say(
            "trigger/set", {"id": id, "kind": kind, "state": state}, agent=agent, turn=turn
        )

    def clear_trigger(
        self,
        id: str,
        *,
        reason: str | None = None,
        agent: str | None = None,
        turn: str | None = None,
    ) -> R:
        """The trigger waits no more.

        Raises:
            As `Session.append`.

        """
        return self._say("trigger/cleared", {"id": id, "reason": reason}, agent=agent, turn=turn)

    def fire_trigger(
        self,
        id: str,
        content: Any = None,
        *,
        state: Any = None,
        agent: str | None = None,
        turn: str | None = None,
    ) -> R:
        """The trigger went off, with `content`; `state` takes the place of what was set.

        Without `state` (None) what was set stays.

        Raises:
            As `Session.append`.

        """
        members = {"id": id, "content": content, "state": state}
        return self._say("trigger/fired", members, agent=agent, turn=turn)

    # --- channels --------------------------------------------------------------------------------

    def send(
        self,
        channel: str,
        content: Any,
        *,
        sender: str,
        id: str | None = None,
        agent: str | None = None,
        turn: str | None = None,
    ) -> R:
        """`sender` says `content` (JSON) in `channel`.

        Raises:
            As `Session.append`.

        """
        members = {"channel": channel, "sender": sender, "content": content, "id": id}
        return self._say("channel/message", members, agent=agent, turn=turn)

    # --- jobs and what they cost -----------------------------------------------------------------

    def start_job(
        self,
        id: str,
        *,
        kind: str | None = None,
        name: str | None = None,
        arguments: Any = None,
        agent: str | None = None,
        turn: str | None = None,
    ) -> R:
        """Work begins that may outlive its turn; if the process dies first, it was interrupted.

        Raises:
            As `Session.append`; then the job must not begin.

        """
        members = {"id": id, "kind": kind, "name": name, "arguments": arguments}
        return self._say("job/start", members, agent=agent, turn=turn)

    def update_job(
        self,
        id: str,
        output: Any = None,
        *,
        agent: str | None = None,
        turn: str | None = None,
    ) -> R:
        """Progress or output (JSON) of a job: buffered.

        Raises:
            As `Session.buffer`.

        """
        return self._say(
            "job/update", {"id": id, "output": output}, agent=agent, turn=turn, durable=False
        )

    def end_job(
        self,
        id: str,
        status: str = "completed",
        *,
        result: Any = None,
        error: Failure | None = None,
        agent: str | None = None,
        turn: str | None = None,
    ) -> R:
        """The job is over: "completed", "failed" or "cancelled".

        Raises:
            As `Session.append`.

        """
        members = {"id": id, "status": status, "result": result, "error": failure_of(error)}
        return self._say("job/end", members, agent=agent, turn=turn)

    def report_usage(
        self,
        *,
        response: str | None = None,
        model: str | None = None,
        input: int | None = None,  # noqa: A002
        output: int | None = None,
        cached: int | None = None,
        reasoning: int | None = None,
        cost: float | None = None,
        currency: str | None = None,
        agent: str | None = None,
        turn: str | None = None,
    ) -> R:
        """What a response of a model cost, in tokens, and `cost` in `currency`: buffered.

        `response` is the provider's id: what is said of it again takes the place of this, a 0 too;
        what is left out does not. What `step.message(usage=…)` says needs no further event.

        Raises:
            As `Session.buffer`.

        """
        members = {
            "response": response,
            "model": model,
            "input": input,
            "output": output,
            "cached": cached,
            "reasoning": reasoning,
            "cost": cost,
            "currency": currency,
        }
        return self._say("usage", members, agent=agent, turn=turn, durable=False)
