"""What a session says, in perdure's vocabulary: turns, prompts, answers, results, in their order.

Two records that say one thing are told of once, whichever of them comes first. Memory goes with
the open answer, with the ids of turns, with the latest calls, and with the prompts that an old
compaction keeps.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from perdure.lenses.codex.answers import Answer, Piece, Seam, pieces_of
from perdure.lenses.codex.calls import Search, Shown
from perdure.lenses.codex.content import prompt_keys
from perdure.lenses.codex.ledger import Ledger
from perdure.lenses.lens import SourceFacts
from perdure.lenses.pieces import text_block
from perdure.model.event import Event
from perdure.model.vocabulary.payloads import Block

__all__ = ["Telling"]

_RECENT_MAX = 16
"""Prompts without an answer between them, each of which may be repeated by its other record."""

_KEPT_CHARS_MAX = 80_000
"""Codex keeps about 20,000 tokens of prompts where a compaction does not say what is kept."""

_WAITING_MAX = 64
"""So many events about calls wait for an item that tells of the same."""

_FAILED = {"code": "FAILED", "message": "the tool reported a failure"}


class _Prompt(NamedTuple):
    keys: frozenset[str]
    told_by: set[str]


class _Doubt(NamedTuple):
    record: Event
    blocks: list[Block]
    source: str


class _Waiting(NamedTuple):
    record: Event
    turn: str | None
    shown: Shown
    begins: bool
    ends: bool


class Telling:
    """Makes events of what was said.

    Attributes:
        out: the events since it was last emptied.
        model: the model that answers now.
        task: Codex's id of the turn that runs now.
        error: what went wrong in it, unless the model answered since.

    """

    def __init__(self, said: Callable[..., Event], facts: SourceFacts) -> None:
        """Begin before the first record; `said` makes an event, `facts` gets title and model."""
        self.out: list[Event] = []
        self.model: str | None = None
        self.task: str | None = None
        self.error: dict[str, str] | None = None
        self._said = said
        self._facts = facts
        self._answer: Answer | None = None
        self._seam = Seam()
        self._recent: deque[_Prompt] = deque(maxlen=_RECENT_MAX)
        self._doubts: list[_Doubt] = []
        self._ledger = Ledger()
        self._waiting: list[_Waiting] = []
        self._turn: str | None = None
        self._task_of_turn: str | None = None
        self._turns: list[str] = []
        self._used: set[str] = set()
        self._kept: deque[tuple[str, str]] = deque()
        self._kept_chars = 0

    def _say(self, record: Event, kind: str, data: dict[str, Any]) -> None:
        self._decide()
        event = self._said(record, kind, data, turn=self._turn)
        if self._answer is None:
            self.out += self._waited()
            self.out.append(event)
        else:
            # What comes while an answer is open has a later number than the answer.
            self._answer.behind.append(event)

    # --- the user -------------------------------------------------------------------------------

    def prompt(self, record: Event, blocks: list[Block], told_by: str) -> None:
        """A typed prompt begins a turn; `told_by` is the kind of record that tells of it.

        A prompt is told of once by each kind, so a second kind says nothing new.
        """
        keys = prompt_keys(blocks)
        if self._known(keys, told_by):
            return
        found = (n for n, each in enumerate(self._doubts) if keys & prompt_keys(each.blocks))
        at = next(found, None)
        if at is None:
            self._begin(record, blocks, _Prompt(keys, {told_by}))
            return
        # The item was typed as well, and stood first.
        doubt, later = self._doubts[at], self._doubts[at + 1 :]
        del self._doubts[at:]
        self._begin(doubt.record, doubt.blocks, _Prompt(keys, {told_by, "item"}))
        self._doubts = later

    def _known(self, keys: frozenset[str], told_by: str) -> bool:
        """Whether records of other kinds told of a prompt."""
        for known in self._recent:
            if told_by not in known.told_by and keys & known.keys:
                known.told_by.add(told_by)
                return True
        return False

    def _begin(self, record: Event, blocks: list[Block], prompt: _Prompt) -> None:
        self.flush()
        self._recent.append(prompt)
        self._seam.forget()
        self.error = None
        new = self.task is not None and self.task not in self._used
        self._turn = self.task if self.task is not None and new else f"prompt-{record.seq}"
        self._task_of_turn = self.task
        self._used.add(self._turn)
        self._turns.append(self._turn)
        self._keep(self._turn, "\n".join(block["text"] for block in blocks))
        self._say(record, "turn/start", {})
        self._say(record, "user/message", {"content": blocks})

    def doubt(self, record: Event, blocks: list[Block], source: str) -> None:
        """An item in the user's name that looks as if Codex had put it there.

        So it did, and `source` says what it is, unless an event says that it was typed: one before
        it, or one behind it before anything else is said.
        """
        if not self._known(prompt_keys(blocks), "item"):
            self._close()
            self._doubts.append(_Doubt(record, blocks, source))

    def _decide(self) -> None:
        """What is in doubt still was not typed: nothing said so."""
        doubts, self._doubts = self._doubts, []
        for record, blocks, source in doubts:
            self.note(record, blocks, source)

    def note(self, record: Event, blocks: list[Block], source: str) -> None:
        """Something that the model was told and nobody typed."""
        self.flush()
        if blocks:
            self._say(record, "user/message", {"content": blocks, "source": source})

    def _keep(self, turn: str, text: str) -> None:
        self._kept.append((turn, text))
        self._kept_chars += len(text)
        while self._kept_chars > _KEPT_CHARS_MAX:
            self._kept_chars -= len(self._kept.popleft()[1])

    # --- the model ------------------------------------------------------------------------------

    def item(self, record: Event, blocks: list[Block], hidden: list[Block] | None = None) -> None:
        """A piece of an answer, as it goes to the model.

        `hidden` are further blocks that events may tell of, though the model is told the first.
        """
        open_pieces = set(self._answer.echoes) if self._answer is not None else set()
        new = [block for block in blocks if not self._told_before(block, open_pieces)]
        if not new:
            return
        if self._answer is not None and self._answer.ends_before(item=True):
            self.flush()
        answer = self._opened(record)
        answer.item(new, pieces_of(blocks) | pieces_of(hidden or []))

    def _told_before(self, block: Block, open_pieces: set[Piece]) -> bool:
        pieces = pieces_of([block])
        return not pieces & open_pieces and any(map(self._seam.repeats_echo, pieces))

    def echo(self, record: Event, block: Block) -> None:
        """A piece of an answer as the screen showed it: said unless an item says it."""
        for piece in pieces_of([block]):
            answer = self._answer
            if (answer is not None and answer.said(piece)) or self._seam.repeats_item(piece):
                return
            if answer is not None and answer.ends_before(item=False):
                self.flush()
            self._opened(record).echo(block, piece)

    def _opened(self, record: Event) -> Answer:
        if self._answer is None:
            self._decide()
            self._answer = Answer(record, self.model, self._turn)
        self._recent.clear()
        self.error = None
        return self._answer

    def usage(self, record: Event, counts: dict[str, int], *, counted: bool) -> None:
        """What a response cost: the open answer, or one that was told already."""
        answer = self._answer
        if answer is not None and not answer.over:
            answer.end(counts if counted else None)
        elif counted:
            data = {**counts} if self.model is None else {**counts, "model": self.model}
            self._say(record, "usage", data)

    def flush(self) -> None:
        """End what is open: all of it was said."""
        self._decide()
        self._close()

    def finish(self, last: Event | None) -> None:
        """End everything: no further record comes behind the last one.

        Results that only events tell have its number: up to here their item could still come.
        """
        self.flush()
        for each in () if last is None else self._ledger.unanswered():
            data = _result(each.id, each.content, failed=each.failed)
            self.out.append(self._said(last, "tool/result", data, turn=each.turn))

    def _close(self) -> None:
        """End the open answer, if there is one."""
        answer, self._answer = self._answer, None
        waited = self._waited()
        if answer is None:
            self.out += waited
            return
        data: dict[str, Any] = {"content": answer.blocks}
        if answer.model is not None:
            data["model"] = self._facts.model = answer.model
        if answer.usage is not None:
            data["usage"] = answer.usage
        told = self._said(answer.record, "assistant/message", data, turn=answer.turn)
        self.out += sorted((told, *answer.behind, *waited), key=lambda event: event.seq)
        self._seam.close(answer)

    # --- calls ----------------------------------------------------------------------------------

    def call(
        self, record: Event, block: Block, *, starts: bool, search: Search | None = None
    ) -> None:
        """A call that the model asks for, as a block; `starts`: its body begins.

        What events told of it before stays as it is, and that it began is not told again. But only
        an item makes a block of it: the conversation is what items say.
        """
        id = block["id"]
        same = [each for each in self._waiting if _same(each.shown, id, search)]
        self._waiting = [each for each in self._waiting if not _same(each.shown, id, search)]
        known = self._ledger.asked(id, None if same else search)
        begun = known and not any(each.begins for each in same)
        for each in same:
            if each.shown.id != id:
                self._ledger.told_by_item(each.shown.id)
            self._ledger.hold(id, each.shown, each.turn)
        self.item(record, [block])
        if starts and not begun:
            names = ("id", "name", "arguments")
            self._say(record, "tool/call", {name: block[name] for name in names})

    def result(
        self, record: Event, id: str, blocks: list[Block], *, failed: bool, inside: bool = False
    ) -> None:
        """What a call came to; `inside`: the provider ran it while the model went on.

        That it failed may be known from events alone.
        """
        if not inside:
            self.flush()
        news, seen_failing = self._ledger.answered(id)
        if news:
            data = _result(id, blocks, failed=failed or seen_failing)
            self._say(record, "tool/result", data)

    def shown(self, record: Event, shown: Shown) -> None:
        """A call as the screen showed it: told of unless an item tells of it.

        The item of what the provider runs comes behind the event, so that this waits until the
        answer is over, or something else is said.
        """
        begins, ends = self._ledger.shown(shown, self._turn)
        if not begins and not ends:
            return
        self._decide()
        self._waiting.append(_Waiting(record, self._turn, shown, begins, ends))
        if len(self._waiting) > _WAITING_MAX:
            (self.out if self._answer is None else self._answer.behind).extend(self._waited())

    def _waited(self) -> list[Event]:
        """What events alone say of calls that waited for their items."""
        waiting, self._waiting = self._waiting, []
        out = []
        for record, turn, shown, begins, ends in waiting:
            if begins:
                call = {"id": shown.id, "name": shown.name, "arguments": shown.arguments}
                out.append(self._said(record, "tool/call", call, turn=turn))
            if ends:
                result = _result(shown.id, shown.content or [], failed=shown.failed)
                out.append(self._said(record, "tool/result", result, turn=turn))
        return out

    # --- turns and the context ------------------------------------------------------------------

    def end_turn(self, record: Event, reason: str, task: str | None) -> None:
        """The turn is over, if it is the one that Codex names."""
        self.flush()
        named = task is None or self._task_of_turn in (None, task)
        if self._turn is not None and named:
            data: dict[str, Any] = {"reason": reason}
            if reason == "error" and self.error is not None:
                data["error"] = self.error
            self._say(record, "turn/end", data)
            self._turn = None
        if task in (None, self.task):
            self._recent.clear()
            self.task = self.error = None

    def rewind(self, record: Event, turns: int) -> None:
        """Take the last turns back; the first of all is as far as that goes."""
        self.flush()
        if not self._turns or turns < 1:
            return
        gone = set(self._turns[-turns:])
        del self._turns[-turns:]
        self._kept = deque(each for each in self._kept if each[0] not in gone)
        self._kept_chars = sum(len(text) for _, text in self._kept)
        self._turn = None
        self._recent.clear()
        self._seam.forget()
        self._say(record, "context/rewound", {"to": self._turns[-1]} if self._turns else {})

    def compact(self, record: Event, summary: list[Block], before: int | None) -> None:
        """From here on the model is told the summary in the place of all before."""
        self.flush()
        self._recent.clear()
        data: dict[str, Any] = {"summary": summary}
        self._say(
            record, "context/compacted", data | ({} if before is None else {"before": before})
        )

    def kept(self) -> list[Block]:
        """The prompts that Codex keeps where a compaction does not say what is kept."""
        return [text_block(text) for _, text in self._kept if text]

    def titled(self, record: Event, title: str) -> None:
        """The session has a name."""
        self._facts.title = title
        self._say(record, "session/titled", {"title": title})


def _same(shown: Shown, id: str, search: Search | None) -> bool:
    """Whether an event tells of the call of an item."""
    return shown.id == id or (search is not None and shown.search == search)


def _result(id: str, content: list[Block], *, failed: bool) -> dict[str, Any]:
    return {"id": id, "content": content} | ({"error": _FAILED} if failed else {})
