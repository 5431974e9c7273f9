"""The tree of an agent's turns: who follows whom, where the agent stands, what is a branch."""

from collections.abc import Iterable, Iterator
from types import EllipsisType

import msgspec

from perdure.model import values
from perdure.model.event import Event
from perdure.model.vocabulary import AssistantMessage, TurnStart, UserMessage, fitting

__all__ = ["BEGINNINGS", "Branch", "Node", "Tree", "branches"]

BEGINNINGS = frozenset({"turn/start", "context/rewound"})
"""Event types that begin a node. What the agent does up to the next one belongs to it."""

_PREVIEW_CHARS = 80


class Node:
    """A part of an agent's history that follows its parent as it was at the parent's end."""

    __slots__ = ("asked", "end", "how", "parent", "preview", "replaces", "rewind", "seq", "turn")

    def __init__(self, seq: int, turn: str | None, parent: "Node | None") -> None:
        """Begin it with the event `seq`; -1 and no parent: what stands before the first turn."""
        self.seq = seq
        self.turn = turn
        self.parent = parent
        self.end = seq
        self.replaces: str | None = None
        self.how: str | None = None
        self.rewind = False
        self.preview: str | None = None
        self.asked = False

    def lineage(self) -> Iterator["Node"]:
        """This node, its parent, and so on to the root."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent

    def turn_node(self) -> "Node | None":
        """The nearest node of its lineage that a `turn/start` began: where an agent stands."""
        return next((node for node in self.lineage() if not node.rewind and node.parent), None)


class Tree:
    """The nodes of one agent, from its events; memory goes with the number of its turns.

    Attributes:
        root: what stands before the first turn.
        head: the node that the agent is in.
        nodes: by the number of the event that began them, in that order.
        newest: the newest node of each turn id.

    """

    def __init__(self) -> None:
        """The tree of an agent of which there is no event."""
        self.root = self.head = Node(-1, None, None)
        self.nodes = {-1: self.root}
        self.newest: dict[str, Node] = {}

    @classmethod
    def of(cls, events: Iterable[Event], agent: str | None) -> "Tree":
        """The tree of `agent`, from the events of a log."""
        tree = cls()
        for event in events:
            if event.agent == agent and event.type in BEGINNINGS:
                tree.event(event)
        return tree

    def event(self, event: Event) -> None:
        """Take the next event of the agent into account."""
        if event.type not in BEGINNINGS:
            return
        said = fitting(event)
        if said is None:
            return
        if isinstance(said, TurnStart):
            node = Node(event.seq, event.turn, self.behind(said.replaces, said.parent))
            node.replaces, node.how = said.replaces, said.how
            if event.turn is not None:
                self.newest[event.turn] = node
        else:
            node = Node(event.seq, None, self.standing(said.to))
            node.rewind = True
        self.nodes[node.seq] = self.head = node

    def behind(self, replaces: str | None, parent: str | None) -> Node:
        """What a turn follows that says so; where the agent stands if it names nothing known."""
        replaced = self.newest.get(replaces) if replaces is not None else None
        if replaced is not None and replaced.parent is not None:
            return replaced.parent
        return self.newest.get(parent, self.head) if parent is not None else self.head

    def standing(self, to: str | None) -> Node:
        """What follows a rewind to a turn; None: the beginning."""
        return self.root if to is None else self.newest.get(to, self.head)


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """A turn as a part of the tree of its agent.

    Attributes:
        agent: whose turn it is.
        turn: its id; the same id may have been started more than once.
        seq: number of the `turn/start`, by which turns of one id are told apart.
        end: number of the agent's last event that belongs to it.
        parent: the turn that it follows, or None: it begins the conversation.
        behind: number of the `turn/start` of that turn, or None.
        replaces: the turn of which it is another version, as it was told, or None.
        how: "edit" or "regenerate", as it was told, or None.
        live: it is part of what the agent's model is told now, or was before it was compacted.
        head: the agent stands here.
        preview: the beginning of what was asked in it, else of what was answered.

    """

    agent: str | None
    turn: str | None
    seq: int
    end: int
    parent: str | None
    behind: int | None
    replaces: str | None
    how: str | None
    live: bool
    head: bool
    preview: str | None


def branches(events: Iterable[Event], agent: str | EllipsisType | None = ...) -> list[Branch]:
    """Every turn of `agent`, without it of all agents, in the order of their starts.

    `events` are those of a whole log. What an agent does behind a rewind and before its next turn
    belongs to no turn; it stands where it rewound to. Memory goes with the number of turns.
    """
    trees: dict[str | None, Tree] = {}
    for event in events:
        if agent is ... or event.agent == agent:
            tree = trees.get(event.agent)
            if tree is None:
                tree = trees[event.agent] = Tree()
            tree.event(event)
            tree.head.end = event.seq
            _preview(tree.head, event)
    found = [one for name, tree in trees.items() for one in _branches(name, tree)]
    return sorted(found, key=lambda one: one.seq)


def _preview(node: Node, event: Event) -> None:
    """Note what was asked in a node first, and until then what was answered first."""
    asks = event.type == "user/message"
    if node.asked or not (asks or (event.type == "assistant/message" and node.preview is None)):
        return
    said = fitting(event)
    for block in said.content if isinstance(said, UserMessage | AssistantMessage) else ():
        text = block.get("text")
        if block.get("type") == "text" and isinstance(text, str) and text.strip():
            line = " ".join(values.text(text[: 4 * _PREVIEW_CHARS]).split())
            cut = line if len(line) <= _PREVIEW_CHARS else line[: _PREVIEW_CHARS - 1] + "…"
            node.preview, node.asked = cut, asks
            return


def _branches(agent: str | None, tree: Tree) -> Iterator[Branch]:
    live = {node.seq for node in tree.head.lineage()}
    standing = tree.head.turn_node()
    for node in tree.nodes.values():
        if node.parent is None or node.rewind:
            continue
        parent = node.parent.turn_node()
        yield Branch(
            agent=agent,
            turn=node.turn,
            seq=node.seq,
            end=node.end,
            parent=None if parent is None else parent.turn,
            behind=None if parent is None else parent.seq,
            replaces=node.replaces,
            how=node.how,
            live=node.seq in live,
            head=node is standing,
            preview=node.preview,
        )
