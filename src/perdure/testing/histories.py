"""Histories of agents that do everything wrong: a seeded source of events for the conversation.

Several agents at once, parallel calls, crashes at any event, compactions in the middle, rewinds,
edits, answers given again, results that come late, twice or for nothing, ids that come again, texts
no provider takes, payloads that do not fit. A log takes them all, so what is read of it has to make
sense of them.
"""

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from perdure.model.event import Event, draft
from perdure.model.header import Header, new_header
from perdure.recovery.closers import OpenWork

__all__ = ["History", "history"]

_TEXTS = (
    "look at the test",
    "it fails",
    "let me see",
    "done \n",
    "",
    " ",
    "\n\t",
    "ok \ud83d",
    "\ude00 now",
    "\udc00\ud800",
    "\U0001f600",
    "a\0b\u2028c",
    "long " * 30,
)
_NAMES: tuple[Any, ...] = ("bash", "read", "mcp.files/read", "", "n" * 90, "\ud83d", 5, None)
_ARGUMENTS: tuple[Any, ...] = (
    {},
    {"cmd": "ls"},
    {"cmd": "\ud83d", "\udc00": [1, {"deep": "\udfff"}]},
    None,
    "plain",
    '{"cmd": "ls"}',
    '{"cmd": ',
    '{"cmd": NaN}',
    [1, 2],
    10**30,
    1.5,
)
_FOREIGN_IDS = ("", "call é/1", "a|b", "x" * 100, "\ud83d", "y" * 50, "a|b ", "_")
_BAD: tuple[Any, ...] = (
    None,
    5,
    [],
    {},
    {"content": "text"},
    {"content": [5], "id": "call_1"},
    {"content": [{"type": "text", "text": "no"}], "source": 5, "model": 5, "id": 5},
    {"text": 5},
    {"text": "no", "index": "0"},
    {"summary": None},
    {"summary": [], "first_kept": "x"},
    {"to": 5, "parent": 5, "replaces": []},
    {"content": [], "error": "no", "id": "call_1"},
    {"\ud83d": 1},
)
_TYPES = (
    *("turn/start", "turn/end", "user/message", "assistant/delta", "assistant/message"),
    *("tool/call", "tool/result", "context/compacted", "context/rewound", "step/start"),
)


class History(NamedTuple):
    """The events of a log, and how often each oddity is in it."""

    header: Header
    events: list[Event]
    told: Counter[str]


def history(seed: int | str, *, events_max: int = 140) -> History:
    """The history of this seed, of at most about `events_max` events."""
    return _Teller(random.Random(seed)).tell(events_max)


class _Agent:
    """What an agent remembers of itself."""

    def __init__(self, name: str | None) -> None:
        self.name = name
        self.turns: list[str] = []
        self.calls: list[str] = []
        self.results: list[int] = []
        # Calls that were left without a result, each with its turn.
        self.waiting: list[tuple[str, str | None]] = []
        self.turn: str | None = None
        self.replaced: str | None = None
        self.regretted: str | None = None


class _Teller:
    """Lets agents act in turn, and kills them now and then."""

    def __init__(self, draws: random.Random) -> None:
        self.draws = draws
        self.events: list[Event] = []
        self.told: Counter[str] = Counter()
        self.number = 0
        sets: list[list[str | None]] = [[None], [None, "worker"], ["main", None, "\ud800"]]
        names = draws.choice(sets)
        self.agents = [_Agent(name) for name in names]
        # Some histories are quiet, so that what they show is not drowned in noise.
        self.noise = draws.choice([0.0, 0.05, 0.15])

    def tell(self, events_max: int) -> History:
        """Let things happen until there are enough events, then maybe die."""
        length = self.draws.randint(3, events_max)
        running: dict[int, Iterator[None]] = {}
        while len(self.events) < length:
            at = self.draws.randrange(len(self.agents))
            if self.chance(0.02, "crash"):
                running.clear()
                self.close()
            if at not in running:
                running[at] = self.turn(self.agents[at])
            if next(running[at], running) is running:
                del running[at]
        self.close()
        return History(new_header("told", created_at=0), self.events, self.told)

    def close(self) -> None:
        """Append what closes the interrupted turns, or leave them as they are."""
        if self.chance(0.5, "closers"):
            work = OpenWork()
            work.events(self.events)
            for closer in work.closers():
                self.events.append(closer.at(len(self.events)))

    def chance(self, probability: float, oddity: str | None = None) -> bool:
        """Whether something happens; oddities that do are counted."""
        happens = self.draws.random() < probability
        if happens and oddity is not None:
            self.told[oddity] += 1
        return happens

    def say(self, agent: _Agent, type: str, data: Any) -> None:  # noqa: A002
        """Append an event of an agent."""
        turn = agent.turn
        if self.chance(self.noise / 4, "event without turn"):
            turn = None
        one = draft(type, data, time=len(self.events), agent=agent.name, turn=turn)
        self.events.append(one.at(len(self.events)))

    def fresh(self, prefix: str) -> str:
        """An id that was not there before."""
        self.number += 1
        return f"{prefix}{self.number}"

    # --- a turn ---------------------------------------------------------------------------------

    def turn(self, agent: _Agent) -> Iterator[None]:
        """What an agent does in a turn, an event at a time."""
        if self.chance(0.08, "rewind"):
            self.say(agent, "context/rewound", {"to": self.some_turn(agent, none=True)})
            yield
        where: dict[str, Any] = {}
        if self.chance(0.08, "parent"):
            where["parent"] = self.some_turn(agent)
        elif agent.regretted is not None and self.chance(0.3, "back before a late result"):
            where["parent"] = agent.regretted
        agent.regretted = None
        # Answers to one question are given again and again.
        if self.chance(0.1 if agent.replaced is None else 0.4, "edit or regenerate"):
            where["replaces"] = agent.replaced = self.some_replaced(agent)
            where["how"] = self.draws.choice(["edit", "regenerate"])
        else:
            agent.replaced = None
        if agent.turns and self.chance(self.noise / 3, "turn id again"):
            agent.turn = self.draws.choice(agent.turns)
        else:
            agent.turn = None if self.chance(self.noise / 5) else self.fresh("t")
        self.say(agent, "turn/start", where)
        if agent.turn is not None:
            agent.turns.append(agent.turn)
        yield
        for _ in range(self.draws.choice([0, 1, 1, 1, 1, 1, 2])):
            self.say(agent, "user/message", self.message("user"))
            yield
        for step in range(1, self.draws.randint(1, 3) + 1):
            yield from self.step(agent, step)
        if not self.chance(0.1, "turn without end"):
            self.say(agent, "turn/end", {"reason": "completed"})
            yield

    def some_turn(self, agent: _Agent, *, none: bool = False) -> str | None:
        """A turn of the agent, mostly; one that never was; or none."""
        if none and self.chance(0.15, "rewind to the beginning"):
            return None
        if not agent.turns or self.chance(0.1, "unknown turn"):
            return "nowhere"
        return self.draws.choice([agent.turns[-1], self.draws.choice(agent.turns)])

    def some_replaced(self, agent: _Agent) -> str | None:
        """A turn to replace: mostly the one that was replaced just before, if one was."""
        if agent.replaced is not None and self.chance(0.7, "replaced again"):
            return agent.replaced
        return self.some_turn(agent)

    def step(self, agent: _Agent, step: int) -> Iterator[None]:
        """A request, its answer and the calls."""
        self.say(agent, "step/start", {"step": step})
        yield
        streamed = ""
        for piece in self.pieces():
            streamed += piece["text"] if piece["kind"] == "text" else ""
            self.say(agent, "assistant/delta", piece)
            yield
            if self.chance(0.1, "user while it streams"):
                self.say(agent, "user/message", self.message("user"))
                yield
            if self.chance(0.05, "request repeated"):
                self.say(agent, "request/header", {"header": None, "reason": "retry"})
                yield
        asked: list[str] = []
        if self.chance(0.85):
            message = self.message("assistant")
            if streamed and self.chance(0.5, "answer that was streamed"):
                message["content"].insert(
                    0, {"type": "text", "text": _whole(streamed, self.text())}
                )
            asked = [self.call_id(agent) for _ in range(self.draws.choice([0, 0, 1, 2, 3]))]
            for call in asked:
                message["content"].append(self.call_block(call))
            if len(asked) > 1:
                self.told["parallel calls"] += 1
                if self.chance(self.noise, "text among calls"):
                    self.draws.shuffle(message["content"])
            self.say(agent, "assistant/message", message)
            yield
        yield from self.calls(agent, asked)
        if self.chance(0.06):
            self.compact(agent)
            yield
        self.say(agent, "step/end", {"step": step})
        yield

    def calls(self, agent: _Agent, asked: list[str]) -> Iterator[None]:
        """Run the calls, and let things go wrong between."""
        for call in asked:
            if not self.chance(0.1, "call not started"):
                self.say(agent, "tool/call", {"id": call, "name": "bash", "arguments": None})
                yield
        order = self.draws.sample(asked, len(asked))
        for call in order:
            if self.chance(0.04, "compaction among results"):
                self.compact(agent)
                yield
            if self.chance(0.1, "call without result"):
                agent.waiting.append((call, agent.turn))
            else:
                yield from self.result(agent, call)
            if self.chance(self.noise / 2, "result twice"):
                yield from self.result(agent, call)
            yield from self.oddity(agent)

    def result(self, agent: _Agent, call: str) -> Iterator[None]:
        """The result of a call, or an error."""
        data: dict[str, Any] = {"id": call, "content": self.content("tool")}
        if self.chance(0.15):
            data["error"] = {"code": self.draws.choice(["FAILED", ""]), "message": self.text()}
        agent.results.append(len(self.events))
        self.say(agent, "tool/result", data)
        yield

    def oddity(self, agent: _Agent) -> Iterator[None]:
        """Something that should not be there."""
        if self.chance(self.noise, "orphan result"):
            yield from self.result(agent, self.fresh("nobody-"))
        if agent.waiting and self.chance(0.1, "late result"):
            call, agent.regretted = self.draws.choice(agent.waiting)
            yield from self.result(agent, call)
        if agent.calls and self.chance(self.noise, "late result"):
            yield from self.result(agent, self.draws.choice(agent.calls))
        if self.chance(self.noise, "malformed payload"):
            self.say(agent, self.draws.choice(_TYPES), self.draws.choice(_BAD))
            yield
        if self.chance(self.noise, "other type"):
            self.say(agent, "state/set", {"key": "a", "value": 1})
            yield

    def compact(self, agent: _Agent) -> None:
        """Compact, keeping from some event on, sensible or not."""
        self.told["compaction"] += 1
        now = len(self.events)
        kept = self.draws.choice(
            [
                None,
                self.draws.randint(max(0, now - 15), now),
                self.draws.randint(-1, now + 3),
                self.draws.choice(agent.results or [0]),
                self.draws.choice(agent.results or [0]) + 1,
            ]
        )
        self.say(agent, "context/compacted", {"summary": self.content("user"), "first_kept": kept})

    # --- what is said ---------------------------------------------------------------------------

    def text(self) -> str:
        """A text, mostly one that says something."""
        return self.draws.choice(_TEXTS[:4] if self.chance(0.6) else _TEXTS)

    def pieces(self) -> Iterator[dict[str, Any]]:
        """Pieces of a streamed answer; a character may be cut between two of them."""
        for _ in range(self.draws.choice([0, 0, 1, 4])):
            piece = self.delta()
            if piece["kind"] == "text" and self.chance(0.1, "character in halves"):
                yield {**piece, "text": "so \ud83d"}
                piece = {**piece, "text": "\ude00 it is"}
            yield piece

    def delta(self) -> dict[str, Any]:
        """A piece of a streamed answer."""
        kind = self.draws.choice(["text", "text", "text", "thinking"])
        data: dict[str, Any] = {"text": self.text(), "kind": kind}
        if self.chance(0.3):
            data["index"] = self.draws.randint(0, 2)
        if self.chance(0.1):
            data["call"] = "call_1"
        return data

    def message(self, role: str) -> dict[str, Any]:
        """A message of the user or the assistant, without calls."""
        data: dict[str, Any] = {"content": self.content(role)}
        if role == "user" and self.chance(0.1):
            data["source"] = self.draws.choice(["steering", "summary"])
        if role == "assistant" and self.chance(0.5):
            data["model"] = "m"
        if role == "assistant" and self.chance(0.05):
            data["interrupted"] = True
        return data

    def content(self, role: str) -> list[dict[str, Any]]:
        """Blocks, few or none."""
        return [self.block(role) for _ in range(self.draws.choice([0, 1, 1, 1, 1, 2, 3]))]

    def block(self, role: str) -> dict[str, Any]:
        """A block, mostly of text."""
        if role == "assistant" and self.chance(0.15, "thinking"):
            thinking: dict[str, Any] = {"type": "thinking", "text": self.text()}
            if self.chance(0.6):
                thinking["signature"] = self.draws.choice(["sig", "sig", "", "\ud83d"])
            return thinking
        if self.chance(0.8):
            return {"type": "text", "text": self.text()}
        blob = self.draws.choice(["ab" * 32, "cd" * 32, "expired", "empty", 5])
        media = self.draws.choice(["image/png", "image/jpeg", "image/tiff", None])
        return self.draws.choice(
            [
                {"type": "image", "blob": blob, "media_type": media},
                {"type": "image"},
                {"type": "file", "name": "a\ud83d.txt", "blob": blob},
                {"type": "audio", "blob": blob},
                {"type": "text", "text": 5},
                {"type": 5},
                {},
                {"type": "tool-result", "id": "call_1", "content": []},
                {"type": "tool-call", "name": "bash"},
                {"type": "thinking", "thinking": "hm", "signature": "sig"},
            ]
        )

    def call_id(self, agent: _Agent) -> str:
        """The id of a call, mostly new and plain."""
        if agent.calls and self.chance(0.05 + self.noise / 2, "call id again"):
            call = self.draws.choice(agent.calls)
        elif self.chance(self.noise / 2, "foreign call id"):
            call = self.draws.choice(_FOREIGN_IDS)
        else:
            call = self.fresh("call_")
        agent.calls.append(call)
        return call

    def call_block(self, call: str) -> dict[str, Any]:
        """The block that asks for a call."""
        name = "bash" if self.chance(0.7) else self.draws.choice(_NAMES)
        block = {"type": "tool-call", "id": call, "name": name}
        return block | {"arguments": self.draws.choice(_ARGUMENTS)}


def _whole(*parts: str) -> str:
    """The texts as one, in which characters that were cut in halves are whole."""
    halves = "".join(parts).encode("utf-16-le", "surrogatepass")
    return halves.decode("utf-16-le", "surrogatepass")
