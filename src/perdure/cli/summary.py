"""What a session has come to, in lines for people: one for each thing that it holds."""

from collections.abc import Iterator
from typing import Any

from perdure.cli import output
from perdure.store.state import Agent, Channel, Effect, Job, State, Subagent, Totals, Trigger

__all__ = ["in_words", "state_lines"]

_CHARS = 120
"""What is shown of a value at most."""

_DEPTH = 2
"""How deep a value is shown; what lies deeper is counted."""


def state_lines(state: State, messages: dict[str | None, int]) -> Iterator[str]:
    """A line for each fact of a state; `messages`: how many each agent goes on with."""
    facts = [("title", state.title), ("cwd", state.cwd)]
    yield from (_line(name, value) for name, value in facts if value is not None)
    if state.ended or state.archived:
        said = [("ended", state.ended), ("archived", state.archived)]
        yield _line("status", ", ".join(word for word, holds in said if holds))
    run = state.run
    if run is not None:
        where = "" if run.pid is None else f", pid {run.pid} on {run.host or 'an unknown host'}"
        how = "resumed" if run.resumed else "began"
        yield _line("run", f"{how} {output.timestamp(run.time)} UTC{where}")
    for agent in state.agents.values():
        yield _line("agent", _agent(agent, messages.get(agent.name, 0)))
    yield from _kept(state.as_dict())
    yield from (_line("trigger", _trigger(each)) for each in state.triggers.values())
    yield from (_line("job", _job(each)) for each in state.jobs.values())
    yield from (_line("subagent", _subagent(each)) for each in state.subagents.values())
    yield from (_line("effect", _effect(each)) for each in state.effects.values())
    yield from (_line("channel", _channel(each)) for each in state.channels.values())
    for artifact in state.artifacts.values():
        kind = "" if artifact.media_type is None else f", {artifact.media_type}"
        yield _line("artifact", f"{artifact.name}: {output.counted(artifact.size, 'byte')}{kind}")
    for name, totals in (("usage", state.usage.own), ("inherited", state.usage.inherited)):
        if totals.responses:
            yield _line(name, _usage(totals))
    for kind, number in state.skipped.items():
        told = output.counted(number, "event")
        yield _line("other", f"{told} of type {kind}, which no view looks at")


def _line(name: str, text: str) -> str:
    return f"{name:<10} {text}"


def _agent(agent: Agent, messages: int) -> str:
    name = "(unnamed)" if agent.name is None else agent.name
    said = f"{name}: {output.counted(agent.turns, 'turn')}"
    said += f", {output.counted(messages, 'message')} to go on with"
    if agent.turn is not None and agent.ended != "completed":
        said += f", turn {agent.turn} {agent.ended or 'is open'}"
    return said


def _kept(facts: dict[str, Any]) -> Iterator[str]:
    """What agents keep under keys, scope by scope."""
    scopes = {name: facts[name] for name in ("scratchpad", "settings", "counters")}
    for scope, by_agent in {**scopes, **facts["scopes"]}.items():
        for agent, values in by_agent.items():
            whose = f"{agent}: " if agent else ""
            for key, value in values.items():
                yield _line(scope, f"{whose}{key} = {in_words(value)}")


def _trigger(trigger: Trigger) -> str:
    said = f"{trigger.id}: {trigger.kind}"
    if trigger.state is not None:
        said += f" ({in_words(trigger.state)})"
    if trigger.fired:
        said += f", went off {output.counted(trigger.fired, 'time')}"
    if trigger.last_fired is not None:
        said += f", last {output.timestamp(trigger.last_fired)} UTC"
    return said


def _job(job: Job) -> str:
    what = " ".join(part for part in (job.kind, job.name) if part)
    said = f"{job.id}: {what}{', ' if what else ''}{job.status or 'open'}"
    if job.status is None and job.updates:
        said += f", said {in_words(job.output)}"
    if job.untold:
        said += ", which the model was not told yet"
    return said + _outcome(job)


def _subagent(worker: Subagent) -> str:
    name = "" if worker.name is None else f"{worker.name}, "
    where = "" if worker.session is None else f" in session {worker.session}"
    return f"{worker.id}: {name}{worker.status or 'at work'}{where}{_outcome(worker)}"


def _outcome(ended: Job | Subagent) -> str:
    if ended.error is not None:
        return f": {ended.error.code}: {in_words(ended.error.message)}"
    return "" if ended.result is None else f": {in_words(ended.result)}"


def _channel(channel: Channel) -> str:
    said = f"{channel.name}: {output.counted(channel.count, 'message')}"
    if not channel.messages:
        return said
    last = channel.messages[-1]
    return f"{said}, last from {last.sender}: {in_words(last.content)}"


def _usage(totals: Totals) -> str:
    said = f"{output.counted(totals.responses, 'response')}, {totals.input} in, {totals.output} out"
    if totals.cached:
        said += f", {totals.cached} from a cache"
    if totals.reasoning:
        said += f", {totals.reasoning} of thinking"
    money = [f"{cost:g} {currency}".rstrip() for currency, cost in totals.cost.items()]
    return ", ".join([said, *money])


def _effect(effect: Effect) -> str:
    about = "" if effect.about is None else f" ({in_words(effect.about)})"
    begun = f"begun {output.timestamp(effect.time)} UTC"
    return f"{effect.key}{about}: {begun}, and nothing says how it ended"


def in_words(value: Any) -> str:
    """A JSON value on one line, shortened: texts bare, lists and objects without brackets."""
    return output.cut(" ".join(_words(value, _DEPTH).split()), _CHARS)


def _words(value: Any, depth: int) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and value:
        if isinstance(value.get("text"), str) and value.get("type") == "text":
            return str(value["text"])
        if depth == 0:
            return f"({output.counted(len(value), 'member')})"
        return ", ".join(f"{name}: {_words(each, depth - 1)}" for name, each in value.items())
    if isinstance(value, list) and value:
        if depth == 0:
            return f"({output.counted(len(value), 'item')})"
        return ", ".join(_words(each, depth - 1) for each in value)
    return output.compact(value)
