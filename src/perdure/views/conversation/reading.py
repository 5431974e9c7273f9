"""What the rows of the conversation say."""

from collections.abc import Callable, Iterator
from typing import Any

from perdure.model.event import Event
from perdure.model.header import Header
from perdure.recovery.closers import unanswered
from perdure.views.conversation.folding import replayed
from perdure.views.conversation.lineage import Message, agent_key
from perdure.views.conversation.tree import Tree
from perdure.views.view import Rows

__all__ = ["agents", "head", "knows", "messages", "messages_at", "parent_of", "turns"]


def agents(rows: Rows) -> list[str | None]:
    """The agents of which there is something, in order of appearance."""
    return [rows[f"i{number}"] for number in range(rows.get("agents", 0))]


def messages(rows: Rows, agent: str | None) -> list[Message]:
    """What the model of `agent` has to be told next, as neutral messages; none of an agent: [].

    Each is `{"role": "user" | "assistant" | "tool", "content": [blocks], "seq", "turn"?, "source"?,
    "model"?, "interrupted"?}`. Every answer with calls is followed at once by one message with the
    results in the order of the calls; a call without a result has an error that says whether it
    can have run. `seq` is the number of the event that says it, of the last of several results.

    The list is the caller's own, and so is each dict in it. What these hold may be the rows' and
    must not be changed: copy what you want to change.
    """
    numbers = rows.get(agent_key(agent))
    if numbers is None:
        return []
    prefix = f"m{numbers['n']}:"
    keys = map(prefix.__add__, map(str, range(numbers["first"], numbers["next"])))
    found = rows.own(keys)
    for at, message in enumerate(found):
        if "open" in message:
            found[at] = _answered(message)
    return found


def _answered(results: Message) -> Message:
    """The results of a message whose calls are not all answered, with errors in the gaps."""
    content = [*results["content"]]
    for at, call, name, started, _ in results["open"]:
        error = unanswered(started=started)
        block: dict[str, Any] = {"type": "tool-result", "id": call}
        if name is not None:
            block["name"] = name
        block["content"] = [{"type": "text", "text": error.message}]
        block["error"] = {"code": error.code, "message": error.message}
        content[at] = block
    new = {**results, "content": content}
    del new["open"]
    return new


def turns(rows: Rows, agent: str | None) -> list[str]:
    """The turns of which something can be live: since the last compaction, the oldest first."""
    return [mark["turn"] for mark in _marks(rows, agent) if mark["turn"] is not None]


def knows(rows: Rows, agent: str | None, turn: str) -> bool:
    """Whether the rows tell that the agent has such a turn; False: perhaps the log does."""
    numbers = rows.get(agent_key(agent))
    keys = () if numbers is None else (f"t{numbers['n']}:{turn}", f"s{numbers['n']}:{turn}")
    return any(key in rows for key in keys)


def head(rows: Rows, agent: str | None) -> str | None:
    """The turn behind which the agent goes on: its last, or where it rewound to; None: no turn."""
    numbers = rows.get(agent_key(agent))
    return None if numbers is None else _turn_of(rows[f"n{numbers['n']}:{numbers['top']}"])


def parent_of(rows: Rows, agent: str | None, turn: str) -> str | None:
    """The turn that a live turn follows, or None: it begins the conversation.

    Raises:
        KeyError: the turn is not one of `turns`.

    """
    for mark in reversed(_marks(rows, agent)):
        if mark["turn"] == turn:
            parent: str | None = mark["behind"]
            return parent
    raise KeyError(turn)


def _marks(rows: Rows, agent: str | None) -> list[dict[str, Any]]:
    numbers = rows.get(agent_key(agent))
    if numbers is None:
        return []
    span = range(numbers["base"], numbers["top"] + 1)
    return [rows[f"n{numbers['n']}:{depth}"] for depth in span]


def _turn_of(mark: dict[str, Any]) -> str | None:
    turn: str | None = mark["behind"] if mark["turn"] is None else mark["turn"]
    return turn


def messages_at(
    events: Callable[[], Iterator[Event]],
    header: Header,  # noqa: ARG001 - what a session begins with may depend on it one day
    agent: str | None,
    turn: str,
) -> list[Message]:
    """What `messages` gave when `turn` was over: before the agent's next turn, or rewind, began.

    `events` are those of the whole log, read twice. A turn id that was started again means the
    newest. Memory goes with the messages and the number of turns.

    Raises:
        KeyError: the agent has no such turn.

    """
    tree = Tree.of(events(), agent)
    node = tree.newest[turn]
    return messages(replayed(events(), agent, tree, node).rows, agent)
