"""The live lineage of one agent, as rows: its messages, a mark per node, open calls, open answer.

Rows of the agent number `n`, none of which grows with what came before:

    agents          how many agents there are
    i<n>            the agent's name
    a, a:<name>     its numbers: first and next message, base and top node, whether the first
                    message is a summary
    m<n>:<i>        message number i; what answers calls stands right behind what asked them
    n<n>:<d>        node at depth d of the lineage: turn, seq, number of its first message, the turn
                    behind which it stands, and whether what it was at its end is known no more
    t<n>:<turn>     depth of the node, where it is the newest of that turn id
    s<n>:<turn>     where it is not live, and its parent is: depth of the parent, number there
    g<n>:<d>:<k>    turn id number k of those, behind the node at depth d, which counts them (gone)
    o<n>:<call>     the newest call of that id without a result: message, place in it
    p<n>, d<n>:<c>  an answer that is being streamed, and its text in pieces
    q<n>:<k>        seq of a message of this node and step that was streamed, and has not come whole
"""

from collections.abc import Iterator
from typing import Any

from perdure.views.view import Rows

__all__ = ["Lineage", "Message", "agent_key"]

Message = dict[str, Any]
"""A neutral message."""

_PIECE_CHARS = 4096
"""A piece of streamed text ends here, so that adding to it costs the same however long it gets."""


def agent_key(agent: str | None) -> str:
    """Key of the row with the numbers of an agent."""
    return "a" if agent is None else f"a:{agent}"


class Lineage:
    """The rows of one agent by what they mean; a handle that lives as long as one event."""

    __slots__ = ("_key", "_n", "numbers", "rows")

    def __init__(self, rows: Rows, agent: str | None) -> None:
        """Look at the rows of `agent`; one that was not there yet begins."""
        self.rows = rows
        self._key = agent_key(agent)
        numbers = rows.get(self._key)
        if numbers is None:
            number = rows.get("agents", 0)
            numbers = {"n": number, "first": 0, "next": 0, "base": 0, "top": 0, "summary": False}
            rows.put("agents", number + 1)
            rows.put(f"i{number}", agent)
            rows.put(self._key, numbers)
            rows.put(f"n{number}:0", {"turn": None, "seq": -1, "first": 0, "behind": None})
        self.numbers: dict[str, Any] = numbers
        self._n: int = numbers["n"]

    @property
    def number(self) -> int:
        """Number of the agent, by order of appearance."""
        return self._n

    def _note(self, **numbers: Any) -> None:
        self.numbers = {**self.numbers, **numbers}
        self.rows.put(self._key, self.numbers)

    # --- messages -------------------------------------------------------------------------------

    def message(self, index: int) -> Message:
        """A message by its number."""
        found: Message = self.rows[f"m{self._n}:{index}"]
        return found

    def add(self, message: Message) -> None:
        """Put a message behind the others."""
        index = self.numbers["next"]
        self.rows.put(f"m{self._n}:{index}", message)
        self._note(next=index + 1)

    def add_asking(self, message: Message, calls: list[tuple[str, Any]]) -> None:
        """Put an answer with calls behind the others, and the place where their results come."""
        index = self.numbers["next"]
        results: Message = {"role": "tool", "content": [None] * len(calls), "seq": message["seq"]}
        if "turn" in message:
            results["turn"] = message["turn"]
        results["open"] = [[at, *call, False, None] for at, call in enumerate(calls)]
        self.rows.put(f"m{self._n}:{index}", message)
        self._put_open(index + 1, results)
        self._note(next=index + 2)

    def _put_open(self, index: int, results: Message) -> None:
        """Put results with open calls; the first of several calls of one id is to be found first.

        Each remembers what was to be found before, as `[message, place]`: calls of one id that wait
        for a result are a stack.
        """
        waiting = []
        for at, call, name, started, _ in reversed(results["open"]):
            key = f"o{self._n}:{call}"
            waiting.append([at, call, name, started, self.rows.get(key)])
            self.rows.put(key, [index, at])
        new = {**results, "open": waiting[::-1]}
        key = f"m{self._n}:{index}"
        if self.rows.get(key) != new:
            self.rows.put(key, new)

    # --- calls ----------------------------------------------------------------------------------

    def start(self, call: str) -> None:
        """Note that the newest open call of this id was started."""
        found = self.rows.get(f"o{self._n}:{call}")
        if found is not None:
            index, at = found
            results = self.message(index)
            entries = [
                [*each[:3], True, each[4]] if each[0] == at else each for each in results["open"]
            ]
            self.rows.put(f"m{self._n}:{index}", {**results, "open": entries})
            self._touched(index)

    def answer(self, call: str, result: Message, seq: int) -> None:
        """Keep the result of the newest open call of this id; without one it answers nothing."""
        found = self.rows.get(f"o{self._n}:{call}")
        if found is None:
            return
        index, at = found
        results = self.message(index)
        content = [*results["content"]]
        left = []
        for each in results["open"]:
            if each[0] != at:
                left.append(each)
                continue
            name = {} if each[2] is None else {"name": each[2]}
            content[at] = {"type": "tool-result", "id": call, **name, **result}
            self._unstack(each)
        new = {**results, "content": content, "seq": seq, "open": left}
        if not left:
            del new["open"]
        self.rows.put(f"m{self._n}:{index}", new)
        self._touched(index)

    def _unstack(self, entry: list[Any]) -> None:
        """Let what waited before this call be found again."""
        key = f"o{self._n}:{entry[1]}"
        if entry[4] is None:
            self.rows.remove(key)
        else:
            self.rows.put(key, entry[4])

    def _touched(self, index: int) -> None:
        """Note that a message changed: earlier nodes that held it are not what they were."""
        depth = self.numbers["top"]
        node = self.node(depth)
        while node["first"] > index and depth > self.numbers["base"]:
            depth -= 1
            node = self.node(depth)
            if "stale" not in node:
                self.rows.put(f"n{self._n}:{depth}", {**node, "stale": True})

    # --- nodes ----------------------------------------------------------------------------------

    def node(self, depth: int) -> dict[str, Any]:
        """The mark of a live node, to look at."""
        found: dict[str, Any] = self.rows[f"n{self._n}:{depth}"]
        return found

    @property
    def turn(self) -> str | None:
        """Turn of the node that the agent is in; None: it belongs to no turn."""
        found: str | None = self.node(self.numbers["top"])["turn"]
        return found

    def depth_of_turn(self, turn: str) -> int | None:
        """Depth of the newest node of that turn id, or None: it is not live, or unknown."""
        found: int | None = self.rows.get(f"t{self._n}:{turn}")
        return found

    def depth_replacing(self, turn: str) -> int | None:
        """Depth of the parent of the newest node of that turn id; None: not live, or unknown."""
        depth = self.depth_of_turn(turn)
        if depth is not None:
            return depth - 1
        sibling = self.rows.get(f"s{self._n}:{turn}")
        return None if sibling is None else sibling[0]

    def remember(self, turn: str, depth: int) -> None:
        """Note that the newest node of a turn id follows the live node at this depth, not live."""
        node = self.node(depth)
        count = node.get("gone", 0)
        self.rows.put(f"g{self._n}:{depth}:{count}", turn)
        self.rows.put(f"s{self._n}:{turn}", [depth, count])
        self.rows.put(f"n{self._n}:{depth}", {**node, "gone": count + 1})

    def depth_of(self, seq: int) -> int | None:
        """Depth of the node that this event began, or None: it is not live."""
        span = range(self.numbers["base"], self.numbers["top"] + 1)
        return next((at for at in span if self.node(at)["seq"] == seq), None)

    def known(self, depth: int) -> bool:
        """Whether the rows tell how the lineage was at the end of the node at this depth."""
        inside = self.numbers["base"] <= depth <= self.numbers["top"]
        return inside and "stale" not in self.node(depth)

    def begin(self, turn: str | None, seq: int) -> None:
        """Begin a node behind the last."""
        depth = self.numbers["top"] + 1
        last = self.node(depth - 1)
        behind = last["behind"] if last["turn"] is None else last["turn"]
        first = self.numbers["next"]
        node = {"turn": turn, "seq": seq, "first": first, "behind": behind}
        self.rows.put(f"n{self._n}:{depth}", node)
        if turn is not None:
            self.rows.put(f"t{self._n}:{turn}", depth)
            self.rows.remove(f"s{self._n}:{turn}")
        self._note(top=depth)
        self._forget_streamed()

    def cut(self, depth: int) -> None:
        """Go back to how it was at the end of the node at this depth, which is `known`."""
        top = self.numbers["top"]
        if depth == top:
            return
        boundary = self.node(depth + 1)["first"]
        for index in range(self.numbers["next"] - 1, boundary - 1, -1):
            for entry in self.message(index).get("open", ()):
                self._unstack(entry)
            self.rows.remove(f"m{self._n}:{index}")
        left = self.node(depth + 1)["turn"]
        newest = left is not None and self.depth_of_turn(left) == depth + 1
        for gone in range(depth + 1, top + 1):
            self._remove_node(gone)
        if newest:
            # Answers to one question are given again and again: each is asked for by its name.
            self.remember(left, depth)
        self._note(next=boundary, top=depth)

    def _remove_node(self, depth: int) -> None:
        node = self.node(depth)
        turn = node["turn"]
        if turn is not None and self.depth_of_turn(turn) == depth:
            self.rows.remove(f"t{self._n}:{turn}")
        for number in range(node.get("gone", 0)):
            key = f"g{self._n}:{depth}:{number}"
            sibling = f"s{self._n}:{self.rows[key]}"
            # A later node of that turn id may follow another one.
            if self.rows.get(sibling) == [depth, number]:
                self.rows.remove(sibling)
            self.rows.remove(key)
        self.rows.remove(f"n{self._n}:{depth}")

    # --- compaction -----------------------------------------------------------------------------

    def compact(self, summary: Message | None, first_kept: int | None) -> None:
        """Let a summary stand for all messages before `first_kept`; pairs are kept whole."""
        kept = [*self._kept(first_kept)]
        first, after = self.numbers["first"], self.numbers["next"]
        for index in range(first, after):
            for entry in self.message(index).get("open", ()):
                self.rows.remove(f"o{self._n}:{entry[1]}")
        start = after - len(kept)
        messages = [self.message(index) for index in kept]
        for index in range(first, start):
            self.rows.remove(f"m{self._n}:{index}")
        for index, (old, message) in enumerate(zip(kept, messages, strict=True), start):
            if "open" in message:
                self._put_open(index, message)
            elif old != index:
                self.rows.put(f"m{self._n}:{index}", message)
        if summary is not None:
            start -= 1
            self.rows.put(f"m{self._n}:{start}", summary)
        top = self.numbers["top"]
        for depth in range(self.numbers["base"], top):
            self._remove_node(depth)
        node = self.node(top)
        own = sum(index >= node["first"] for index in kept)
        self.rows.put(f"n{self._n}:{top}", {**node, "first": after - own})
        self._note(first=start, base=top, summary=summary is not None)

    def _kept(self, first_kept: int | None) -> Iterator[int]:
        """Numbers of the messages that a compaction keeps.

        A call that waits for its result is kept while its node goes on: the result is still to
        come, and the model that asked for it has to find it.
        """
        index = self.numbers["first"] + self.numbers["summary"]
        current = self.node(self.numbers["top"])["first"]
        while index < self.numbers["next"]:
            message, size = self.message(index), 1
            if index + 1 < self.numbers["next"] and self.message(index + 1)["role"] == "tool":
                message, size = self.message(index + 1), 2
            if (first_kept is not None and message["seq"] >= first_kept) or (
                "open" in message and index >= current
            ):
                yield from range(index, index + size)
            index += size

    # --- the answer that is being streamed -------------------------------------------------------

    def stream(self, text: str, index: int, seq: int, turn: str | None) -> None:
        """Add to the text of the open answer; `index` tells its blocks apart."""
        rows = self.rows
        answer = rows.get(f"p{self._n}")
        if answer is None:
            answer = {"seq": seq, "turn": turn, "pieces": 0, "part": 0}
        else:
            key = f"d{self._n}:{answer['pieces'] - 1}"
            part, last, piece = rows[key]
            if part == answer["part"] and last == index and len(piece) < _PIECE_CHARS:
                rows.put(key, [part, last, _joined(piece, text)])
                return
        rows.put(f"d{self._n}:{answer['pieces']}", [answer["part"], index, text])
        rows.put(f"p{self._n}", {**answer, "pieces": answer["pieces"] + 1})

    def part(self) -> None:
        """Note that the model is asked again: text that comes now goes on with nothing before."""
        self._forget_streamed()
        answer = self.rows.get(f"p{self._n}")
        if answer is not None:
            self.rows.put(f"p{self._n}", {**answer, "part": answer["part"] + 1})

    def streamed_in(self, turn: str | None) -> bool:
        """Whether there is an open answer that the end of this turn ends."""
        answer = self.rows.get(f"p{self._n}")
        return answer is not None and (turn is None or answer["turn"] in (None, turn))

    def drop_answer(self) -> Message | None:
        """Forget the open answer; what was streamed of it is returned as an interrupted message."""
        answer = self.rows.get(f"p{self._n}")
        if answer is None:
            return None
        blocks: dict[tuple[int, int], str] = {}
        for number in range(answer["pieces"]):
            part, index, text = self.rows[f"d{self._n}:{number}"]
            blocks[part, index] = _joined(blocks.get((part, index), ""), text)
            self.rows.remove(f"d{self._n}:{number}")
        self.rows.remove(f"p{self._n}")
        content = [{"type": "text", "text": text} for text in blocks.values() if text]
        if not content:
            return None
        message: Message = {"role": "assistant", "content": content, "seq": answer["seq"]}
        turn = self.turn if answer["turn"] is None else answer["turn"]
        if turn is not None:
            message["turn"] = turn
        return {**message, "interrupted": True}

    def end_answer(self) -> None:
        """Let what was streamed of an open answer stand as it is: nothing more comes."""
        message = self.drop_answer()
        if message is not None:
            self.add(message)
            self.rows.put(f"q{self._n}:{self._streamed()}", message["seq"])

    def told_whole(self, content: list[dict[str, Any]]) -> None:
        """Drop what was streamed of an answer and stood for it, if this is the whole of it."""
        count = self._streamed()
        if not count:
            return
        streamed = {self.rows[f"q{self._n}:{number}"] for number in range(count)}
        self._forget_streamed()
        index, first = self.numbers["next"], self.node(self.numbers["top"])["first"]
        parts: list[int] = []
        # Nothing but what was said in between stands behind them.
        while len(parts) < count and index > first:
            index -= 1
            if self.message(index)["seq"] in streamed:
                parts.append(index)
        whole, at, gone = _text_of(content), 0, set()
        for number in reversed(parts):
            text = _text_of(self.message(number)["content"])
            if whole.startswith(text, at):
                at += len(text)
                gone.add(number)
        self._close_up(index, gone)

    def _close_up(self, index: int, gone: set[int]) -> None:
        """Remove messages from `index` on; those behind them ask for nothing and just move."""
        after = self.numbers["next"]
        place = index
        for number in range(index, after) if gone else ():
            if number not in gone:
                if place != number:
                    self.rows.put(f"m{self._n}:{place}", self.message(number))
                place += 1
        for number in range(place, after) if gone else ():
            self.rows.remove(f"m{self._n}:{number}")
        if gone:
            self._note(next=place)

    def _streamed(self) -> int:
        count = 0
        while f"q{self._n}:{count}" in self.rows:
            count += 1
        return count

    def _forget_streamed(self) -> None:
        for number in range(self._streamed()):
            self.rows.remove(f"q{self._n}:{number}")


def _text_of(content: list[dict[str, Any]]) -> bytes:
    """The text of blocks; in UTF-16, where half a character is the beginning of a whole one."""
    texts = (block.get("text") for block in content if block.get("type") == "text")
    whole = "".join(text for text in texts if isinstance(text, str))
    return whole.encode("utf-16-le", "surrogatepass")


def _joined(text: str, more: str) -> str:
    """Both texts; a character of which each holds one half (a surrogate) becomes whole."""
    if text and more and "\ud800" <= text[-1] <= "\udbff" and "\udc00" <= more[0] <= "\udfff":
        pair = (text[-1] + more[0]).encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        return text[:-1] + pair + more[1:]
    return text + more
