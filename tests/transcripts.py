"""What a conversation has to be, worked out plainly: lists, no rows, no care for cost."""

import random
from collections.abc import Iterator, Sequence
from typing import Any

from perdure.errors import ContentExpired
from perdure.model import values, vocabulary
from perdure.model.event import Event
from perdure.recovery.closers import unanswered
from perdure.testing.histories import History
from perdure.testing.providers import VALIDATORS
from perdure.views.conversation import Conversation, agents, branches, head, messages, messages_at
from perdure.views.conversation.lineage import Lineage
from perdure.views.fold import Fold
from perdure.views.providers import FORMATS
from perdure.views.view import Rows

Messages = list[dict[str, Any]]


# --- the same by other means --------------------------------------------------------------------


class Plain:
    """The nodes of an agent with their events, and what stands at the end of each."""

    def __init__(self, events: Sequence[Event], agent: str | None) -> None:
        self.nodes: list[dict[str, Any]] = [{"seq": -1, "turn": None, "up": None, "events": []}]
        for event in events:
            said = vocabulary.fitting(event)
            if event.agent != agent or said is None:
                continue
            head = len(self.nodes) - 1
            named = {node["turn"]: at for at, node in enumerate(self.nodes)}
            if isinstance(said, vocabulary.TurnStart):
                up = named.get(said.parent, head) if said.parent else head
                if said.replaces in named and said.replaces is not None:
                    up = self.nodes[named[said.replaces]]["up"]
                self.nodes.append({"seq": event.seq, "turn": event.turn, "up": up, "events": []})
            elif isinstance(said, vocabulary.ContextRewound):
                up = 0 if said.to is None else named.get(said.to, head)
                self.nodes.append({"seq": event.seq, "turn": None, "up": up, "events": []})
            else:
                self.nodes[-1]["events"].append((event, said))

    def messages(self, at: int) -> Messages:
        """The messages at the end of a node; the last is not at its end yet."""
        chain = [at]
        while self.nodes[chain[0]]["up"] is not None:
            chain.insert(0, self.nodes[chain[0]]["up"])
        told = _Told()
        for number in chain:
            told.node, told.turn = number, self.nodes[number]["turn"]
            for event, said in self.nodes[number]["events"]:
                told.take(event, said)
            if number != len(self.nodes) - 1:
                told.flush()
        return told.rendered()


class _Told:
    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.streamed: list[tuple[Any, str, int, str | None]] = []
        self.part = 0
        self.node = 0
        self.turn: str | None = None

    def take(self, event: Event, said: Any) -> None:
        if isinstance(said, vocabulary.AssistantDelta):
            if said.kind == "text" and said.call is None:
                piece = ((self.part, said.index), said.text, event.seq, event.turn)
                self.streamed.append(piece)
        elif event.type in ("step/start", "request/header"):
            self.part += 1
        elif isinstance(said, vocabulary.TurnEnd):
            first = self.streamed[0][3] if self.streamed else None
            if None in (event.turn, first) or event.turn == first:
                self.flush()
        elif isinstance(said, vocabulary.ToolCall):
            for call in self.open(said.id):
                call["started"] = True
        elif isinstance(said, vocabulary.ToolResult):
            content = [b for b in said.content if b.get("type") not in ("tool-call", "tool-result")]
            error = said.error and {"code": said.error.code, "message": said.error.message}
            for call in self.open(said.id):
                call["result"] = content, error, event.seq
        else:
            self.speak(event, said)

    def open(self, identity: str) -> list[dict[str, Any]]:
        for entry in reversed(self.entries):
            for call in entry["calls"]:
                if call["id"] == identity and call["result"] is None:
                    return [call]
        return []

    def speak(self, event: Event, said: Any) -> None:
        extra: dict[str, Any] = {}
        asks, content = False, getattr(said, "content", [])
        if isinstance(said, vocabulary.UserMessage):
            self.flush()
            extra = {"source": said.source}
        elif isinstance(said, vocabulary.AssistantMessage):
            self.streamed = []
            extra = {"model": said.model, "interrupted": said.interrupted or None}
            asks = True
            self.whole([block for block in content if block.get("type") != "tool-result"])
        elif isinstance(said, vocabulary.ContextCompacted):
            self.flush()
            self.compact(said.first_kept)
            content, extra = said.summary, {"source": "summary"}
        else:
            return
        content = [block for block in content if _belongs(block, asks=asks)]
        role = "assistant" if asks else "user"
        calls = [
            {"id": block["id"], "name": block.get("name"), "started": False, "result": None}
            for block in content
            if block.get("type") == "tool-call"
        ]
        if content:
            entry = self.entry(role, content, event.seq, event.turn, **extra) | {"calls": calls}
            if isinstance(said, vocabulary.ContextCompacted):
                self.entries.insert(0, entry | {"summary": True})
            else:
                self.entries.append(entry)

    def entry(self, role: str, content: Any, seq: int, turn: Any, **extra: Any) -> dict[str, Any]:
        message = {"role": role, "content": content, "seq": seq, "turn": turn or self.turn, **extra}
        message = {name: value for name, value in message.items() if value is not None}
        return {"message": message, "calls": [], "node": self.node, "summary": False}

    def compact(self, first_kept: int | None) -> None:
        def stays(entry: dict[str, Any]) -> bool:
            waits = any(call["result"] is None for call in entry["calls"])
            seqs = [call["result"][2] for call in entry["calls"] if call["result"]]
            last = max([entry["message"]["seq"], *seqs])
            kept = first_kept is not None and last >= first_kept
            return not entry["summary"] and (kept or (waits and entry["node"] == self.node))

        self.entries = [entry for entry in self.entries if stays(entry)]

    def whole(self, content: Any) -> None:
        """What was streamed of an answer goes when all of it comes, however often it was cut."""
        rest = _units(content)
        for entry in [*self.entries]:
            part = _units(entry["message"]["content"])
            here = entry.pop("streamed", None) == (self.node, self.part)
            if here and rest[: len(part)] == part:
                self.entries.remove(entry)
                rest = rest[len(part) :]

    def flush(self) -> None:
        if self.streamed:
            blocks: dict[Any, str] = {}
            for where, text, _, _ in self.streamed:
                blocks[where] = blocks.get(where, "") + text
            whole = [_whole(text) for text in blocks.values() if text]
            content = [{"type": "text", "text": text} for text in whole]
            _, _, seq, turn = self.streamed[0]
            if content:
                entry = self.entry("assistant", content, seq, turn, interrupted=True)
                self.entries.append(entry | {"streamed": (self.node, self.part)})
        self.streamed = []

    def rendered(self) -> Messages:
        out: Messages = []
        for entry in self.entries:
            out.append(entry["message"])
            if entry["calls"]:
                seqs = [call["result"][2] for call in entry["calls"] if call["result"]]
                blocks = [_result(call) for call in entry["calls"]]
                message = entry["message"]
                tool = {"role": "tool", "content": blocks, "seq": max([message["seq"], *seqs])}
                out.append(tool | {"turn": message["turn"]} if "turn" in message else tool)
        return out


def _belongs(block: dict[str, Any], *, asks: bool) -> bool:
    if block.get("type") == "tool-call":
        return asks and isinstance(block.get("id"), str)
    return block.get("type") != "tool-result"


def _units(content: Any) -> bytes:
    """Half a character is a part of a whole one."""
    said = [
        b["text"] for b in content if b.get("type") == "text" and isinstance(b.get("text"), str)
    ]
    return "".join(said).encode("utf-16-be", "surrogatepass")


def _whole(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _result(call: dict[str, Any]) -> dict[str, Any]:
    name = {"name": call["name"]} if isinstance(call["name"], str) else {}
    if call["result"] is None:
        why = unanswered(started=call["started"])
        content, error = [{"type": "text", "text": why.message}], {"code": why.code}
        error["message"] = why.message
    else:
        content, error, _ = call["result"]
    block = {"type": "tool-result", "id": call["id"], **name, "content": content}
    return block | ({"error": error} if error else {})


# --- what there is against a history -------------------------------------------------------------


def complaints(told: History, draws: random.Random) -> Iterator[str]:
    """Whatever does not hold of the conversation in these events."""
    events = told.events
    ends: dict[tuple[str | None, int], Messages] = {}
    rows = folded(told, ends=ends)
    yield from _folded_in_parts(told, rows, draws)
    for agent in agents(rows):
        plain = Plain(events, agent)
        found = messages(rows, agent)
        for problem in _wrong(found):
            yield f"{agent!r}, now: {problem}"
        if found != plain.messages(len(plain.nodes) - 1):
            yield f"{agent!r}: not what plainly follows"
        if values.encode(found) != values.encode(messages(rows, agent)):
            yield f"{agent!r}: another list the second time"
        newest = {node["turn"]: at for at, node in enumerate(plain.nodes) if node["turn"]}
        for turn, at in newest.items():
            then = messages_at(lambda: iter(events), told.header, agent, turn)
            if then != plain.messages(at):
                yield f"{agent!r} at {turn}: not what plainly follows"
            end = ends.get((agent, plain.nodes[at]["seq"]), found)
            if then != end:
                yield f"{agent!r} at {turn}: not what was said when it ended"
            if draws.random() < 0.2:
                for problem in _wrong(then):
                    yield f"{agent!r} at {turn}: {problem}"
        yield from _tree_agrees(events, agent, rows, plain)
    yield from _rows_sound(rows)


def folded(told: History, *, ends: dict[tuple[str | None, int], Messages] | None = None) -> Rows:
    """The rows after all events; `ends` gets the messages at the end of each node on the way."""
    fold = Fold([Conversation()], told.header, lambda seq: iter(told.events[:seq]))
    rows = fold.rows["conversation"]
    for event in told.events:
        begins = event.type in ("turn/start", "context/rewound")
        if ends is not None and begins and vocabulary.fitting(event) is not None:
            copy = Rows({**rows.all})
            lineage = Lineage(copy, event.agent)
            lineage.end_answer()
            seq = lineage.node(lineage.numbers["top"])["seq"]
            ends[event.agent, seq] = messages(copy, event.agent)
        fold.event(event)
    return rows


def _folded_in_parts(told: History, rows: Rows, draws: random.Random) -> Iterator[str]:
    """Rows that were stored in between, and changes that were put together, are the same rows."""
    read = lambda seq: iter(told.events[:seq])  # noqa: E731
    cut = draws.randint(0, len(told.events))
    first = Fold([Conversation()], told.header, read)
    first.events(told.events[: cut // 2])
    stored = dict(values.decode(values.encode(dict(first.rows["conversation"].all))))
    first.rows["conversation"].stored()
    first.events(told.events[cut // 2 : cut])
    put, removed = first.rows["conversation"].changes()
    for key in removed:
        stored.pop(key, None)
    stored |= values.decode(values.encode(put))
    position = first.position._replace(seq=cut - 1)
    second = Fold(
        [Conversation()], told.header, read, rows={"conversation": stored}, position=position
    )
    second.events(told.events[cut:])
    if dict(second.rows["conversation"].all) != dict(rows.all):
        yield f"folded in parts at {cut // 2} and {cut}: other rows"
    for agent in agents(rows):
        again = messages(second.rows["conversation"], agent)
        if values.encode(again) != values.encode(messages(rows, agent)):
            yield f"folded in parts: {agent!r} has other messages"


def _wrong(neutral: Messages) -> Iterator[str]:
    """What a provider has against it, in any format, with images and without."""
    for name, validate in VALIDATORS.items():
        for load in (None, load_image):
            out = FORMATS[name](neutral, load=load)
            if out:
                for violation in validate(out):
                    yield f"{name}: {violation.rule} at {violation.where}"
            elif name != "neutral" and _says_something(neutral):
                yield f"{name}: nothing is left"
            if values.encode(out) != values.encode(FORMATS[name](neutral, load=load)):
                yield f"{name}: another list the second time"


def load_image(digest: str) -> bytes:
    if digest == "expired":
        raise ContentExpired("said", digest)
    return b"" if digest == "empty" else b"image " + digest.encode()


def _says_something(neutral: Messages) -> bool:
    return any(
        block.get("type") == "tool-call" or (block.get("type") == "text" and _not_blank(block))
        for message in neutral
        for block in message["content"]
        if message["role"] != "tool"
    )


def _not_blank(block: dict[str, Any]) -> bool:
    return isinstance(block.get("text"), str) and bool(block["text"].strip())


def _tree_agrees(
    events: Sequence[Event], agent: str | None, rows: Rows, plain: Plain
) -> Iterator[str]:
    found = branches(iter(events), agent)
    starts = [event.seq for event in events if _starts(event, agent)]
    if [branch.seq for branch in found] != starts:
        yield f"{agent!r}: branches are not the turns"
    live = set()
    at: int | None = len(plain.nodes) - 1
    while at is not None:
        live.add(plain.nodes[at]["seq"])
        at = plain.nodes[at]["up"]
    if {branch.seq for branch in found if branch.live} != live & set(starts):
        yield f"{agent!r}: live branches are not those of the lineage"
    standing = [branch for branch in found if branch.head]
    if [branch.seq for branch in standing] != sorted(live & set(starts))[-1:]:
        yield f"{agent!r}: stands somewhere else"
    # A turn without id has no name to stand behind.
    if standing and standing[0].turn not in (None, head(rows, agent)):
        yield f"{agent!r}: stands behind {head(rows, agent)!r}"


def _starts(event: Event, agent: str | None) -> bool:
    said = vocabulary.fitting(event)
    return event.agent == agent and isinstance(said, vocabulary.TurnStart)


def _rows_sound(rows: Rows) -> Iterator[str]:
    """Nothing is left behind: rows are those that the numbers account for."""
    for agent in agents(rows):
        lineage = Lineage(rows, agent)
        numbers, n = lineage.numbers, lineage.number
        accounted = {f"m{n}:{at}" for at in range(numbers["first"], numbers["next"])}
        depths = range(numbers["base"], numbers["top"] + 1)
        accounted |= {f"n{n}:{depth}" for depth in depths}
        accounted |= {f"t{n}:{lineage.node(depth)['turn']}" for depth in depths}
        for depth in depths:
            for number in range(lineage.node(depth).get("gone", 0)):
                key = f"g{n}:{depth}:{number}"
                accounted.add(key)
                if rows.get(f"s{n}:{rows[key]}") == [depth, number]:
                    accounted.add(f"s{n}:{rows[key]}")
        waiting = {
            f"o{n}:{entry[1]}"
            for at in range(numbers["first"], numbers["next"])
            for entry in lineage.message(at).get("open", ())
        }
        if waiting != {key for key in rows.all if key.startswith(f"o{n}:")}:
            yield f"{agent!r}: open calls are not those without result"
        for key in rows.all:
            if key.startswith(tuple(f"{kind}{n}:" for kind in "mntsg")) and key not in accounted:
                yield f"{agent!r}: {key} belongs to nothing"
