"""The fold: what each event does to the lineage of its agent."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from perdure.model.event import Event
from perdure.model.vocabulary import (
    AssistantDelta,
    AssistantMessage,
    ContextCompacted,
    ContextRewound,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnStart,
    UserMessage,
    fitting,
)
from perdure.views.conversation.lineage import Lineage, Message, agent_key
from perdure.views.conversation.tree import BEGINNINGS, Node, Tree
from perdure.views.view import History, Rows, View

__all__ = ["Conversation", "replayed"]

_delta = msgspec.json.Decoder(AssistantDelta)
_OWN = "dgmnopqst"
"""First letters of the keys of rows that hold an agent's number."""


Step = Callable[[Rows, Event, History], None]


# --- what is said -------------------------------------------------------------------------------


def _assistant_delta(rows: Rows, event: Event, history: History) -> None:  # noqa: ARG001
    try:
        # By far the most frequent event: its text is not made a dict first.
        said = _delta.decode(event.raw)
    except (msgspec.MsgspecError, UnicodeError):
        said = fitting(event)
    if said is not None and said.kind == "text" and said.call is None:
        Lineage(rows, event.agent).stream(said.text, said.index, event.seq, event.turn)


def _asked_again(rows: Rows, event: Event, history: History) -> None:  # noqa: ARG001
    if agent_key(event.agent) in rows:
        Lineage(rows, event.agent).part()


def _user_message(rows: Rows, event: Event, history: History) -> None:  # noqa: ARG001
    said = fitting(event)
    if isinstance(said, UserMessage):
        lineage = Lineage(rows, event.agent)
        lineage.end_answer()
        content = _without(said.content, "tool-call", "tool-result")
        if content:
            message = _message("user", content, event, lineage)
            if said.source is not None:
                message["source"] = said.source
            lineage.add(message)


def _assistant_message(rows: Rows, event: Event, history: History) -> None:  # noqa: ARG001
    said = fitting(event)
    if not isinstance(said, AssistantMessage):
        return
    lineage = Lineage(rows, event.agent)
    lineage.drop_answer()
    content = _without(said.content, "tool-result")
    lineage.told_whole(content)
    asked = [block for block in content if block.get("type") == "tool-call"]
    calls = [(block["id"], _name(block)) for block in asked if isinstance(block.get("id"), str)]
    if len(calls) != len(asked):
        # What has no id can never be answered.
        content = [
            block
            for block in content
            if block.get("type") != "tool-call" or isinstance(block.get("id"), str)
        ]
    if content:
        message = _message("assistant", content, event, lineage)
        if said.model is not None:
            message["model"] = said.model
        if said.interrupted:
            message["interrupted"] = True
        if calls:
            lineage.add_asking(message, calls)
        else:
            lineage.add(message)


def _tool_call(rows: Rows, event: Event, history: History) -> None:  # noqa: ARG001
    said = fitting(event)
    if isinstance(said, ToolCall) and agent_key(event.agent) in rows:
        Lineage(rows, event.agent).start(said.id)


def _tool_result(rows: Rows, event: Event, history: History) -> None:  # noqa: ARG001
    said = fitting(event)
    if isinstance(said, ToolResult) and agent_key(event.agent) in rows:
        result: Message = {"content": _without(said.content, "tool-call", "tool-result")}
        if said.error is not None:
            result["error"] = {"code": said.error.code, "message": said.error.message}
        Lineage(rows, event.agent).answer(said.id, result, event.seq)


def _context_compacted(rows: Rows, event: Event, history: History) -> None:  # noqa: ARG001
    said = fitting(event)
    if isinstance(said, ContextCompacted):
        lineage = Lineage(rows, event.agent)
        lineage.end_answer()
        content = _without(said.summary, "tool-call", "tool-result")
        summary = _message("user", content, event, lineage) | {"source": "summary"}
        lineage.compact(summary if content else None, said.first_kept)


def _turn_end(rows: Rows, event: Event, history: History) -> None:  # noqa: ARG001
    if isinstance(fitting(event), TurnEnd) and agent_key(event.agent) in rows:
        lineage = Lineage(rows, event.agent)
        if lineage.streamed_in(event.turn):
            lineage.end_answer()


def _message(role: str, content: list[Any], event: Event, lineage: Lineage) -> Message:
    message: Message = {"role": role, "content": content, "seq": event.seq}
    turn = lineage.turn if event.turn is None else event.turn
    if turn is not None:
        message["turn"] = turn
    return message


def _name(block: Mapping[str, Any]) -> str | None:
    name = block.get("name")
    return name if isinstance(name, str) else None


def _without(content: list[dict[str, Any]], *types: str) -> list[dict[str, Any]]:
    """The blocks but those of some types, which have no place in such a message."""
    if any(block.get("type") in types for block in content):
        return [block for block in content if block.get("type") not in types]
    return content


# --- where it is said ---------------------------------------------------------------------------


def _turn_start(rows: Rows, event: Event, history: History) -> None:
    said = fitting(event)
    if not isinstance(said, TurnStart):
        return
    lineage = Lineage(rows, event.agent)
    lineage.end_answer()
    depth: int | None = lineage.numbers["top"]
    if said.replaces is not None:
        depth = lineage.depth_replacing(said.replaces)
    elif said.parent is not None:
        depth = lineage.depth_of_turn(said.parent)
    lineage = _moved(lineage, event, history, depth, lambda t: t.behind(said.replaces, said.parent))
    lineage.begin(event.turn, event.seq)


def _context_rewound(rows: Rows, event: Event, history: History) -> None:
    said = fitting(event)
    if not isinstance(said, ContextRewound):
        return
    lineage = Lineage(rows, event.agent)
    lineage.end_answer()
    depth = 0 if said.to is None else lineage.depth_of_turn(said.to)
    lineage = _moved(lineage, event, history, depth, lambda tree: tree.standing(said.to))
    lineage.begin(None, event.seq)


def _moved(
    lineage: Lineage,
    event: Event,
    history: History,
    depth: int | None,
    find: Callable[[Tree], Node],
) -> Lineage:
    """Go to the end of another node: to a depth that the rows know, or to what the log tells."""
    if depth is None or not lineage.known(depth):
        tree = Tree.of(history(), event.agent)
        node = find(tree)
        depth = lineage.numbers["top"] if node is tree.head else lineage.depth_of(node.seq)
        if depth is None or not lineage.known(depth):
            return _rebuilt(lineage, event.agent, history, tree, node)
    lineage.cut(depth)
    return lineage


def _rebuilt(
    lineage: Lineage, agent: str | None, history: History, tree: Tree, node: Node
) -> Lineage:
    """Let rows that are made anew take the place of the agent's rows."""
    rows, number = lineage.rows, lineage.number
    made = replayed(history(), agent, tree, node, number=number)
    _index(made, tree)
    prefixes = tuple(f"{letter}{number}:" for letter in _OWN)
    new = {key: value for key, value in made.rows.all.items() if key.startswith(prefixes)}
    for key in [key for key in rows.all if key.startswith(prefixes) and key not in new]:
        rows.remove(key)
    for key, value in new.items():
        if key not in rows or rows[key] != value:
            rows.put(key, value)
    rows.put(agent_key(agent), made.numbers)
    return Lineage(rows, agent)


def _index(made: Lineage, tree: Tree) -> None:
    """Let turn ids be found as if the rows had followed all that led here."""
    live = {}
    for depth in range(made.numbers["base"], made.numbers["top"] + 1):
        mark = made.node(depth)
        live[mark["seq"]] = depth
        turn = mark["turn"]
        if turn is not None and tree.newest[turn].seq != mark["seq"]:
            # A later turn of that name is on another branch.
            made.rows.remove(f"t{made.number}:{turn}")
    for turn, newest in tree.newest.items():
        behind = None if newest.parent is None else live.get(newest.parent.seq)
        if behind is not None and newest.seq not in live:
            made.remember(turn, behind)


def replayed(
    events: Iterable[Event], agent: str | None, tree: Tree, node: Node, *, number: int = 0
) -> Lineage:
    """The lineage as it was at the end of a node, from the events of the whole log.

    Of other branches nothing is decoded; memory goes with the messages that come out, and with
    those before a compaction on the way.
    """
    rows = Rows({"agents": number})
    lineage = Lineage(rows, agent)
    path = {each.seq for each in node.lineage()}
    inside = True
    for event in events:
        if event.agent != agent or event.type not in _STEPS:
            continue
        # What a lens makes of one record has one number.
        if event.type in BEGINNINGS and event.seq in tree.nodes:
            inside = event.seq in path
            if inside:
                lineage = Lineage(rows, agent)
                lineage.end_answer()
                lineage.begin(tree.nodes[event.seq].turn, event.seq)
        elif inside:
            _STEPS[event.type](rows, event, _no_history)
    lineage = Lineage(rows, agent)
    if node is not tree.head:
        lineage.end_answer()
    return lineage


def _no_history() -> Any:
    """Beginnings are known from the tree, so nothing else asks."""
    return iter(())


_STEPS: dict[str, Step] = {
    "assistant/delta": _assistant_delta,
    "assistant/message": _assistant_message,
    "context/compacted": _context_compacted,
    "context/rewound": _context_rewound,
    "request/header": _asked_again,
    "step/start": _asked_again,
    "tool/call": _tool_call,
    "tool/result": _tool_result,
    "turn/end": _turn_end,
    "turn/start": _turn_start,
    "user/message": _user_message,
}


class Conversation(View):
    """Per agent, the messages since the last compaction, on the branch where it stands.

    Most events change a few rows. One that goes to a branch that is not live any more, or behind a
    compaction, reads the log twice; one that names a turn that never was reads it once.
    """

    name = "conversation"
    version = 2
    types = frozenset(_STEPS)

    def apply(self, rows: Rows, event: Event, history: History) -> None:
        """Take the next event into account."""
        _STEPS[event.type](rows, event, history)
