"""What a session says, in perdure's vocabulary: turns and answers, in the order of the records."""

from collections.abc import Callable
from typing import Any, NamedTuple

from perdure.lenses.deepseek_harness.answers import Answer, Key
from perdure.lenses.pieces import count
from perdure.model.event import Event
from perdure.model.vocabulary.payloads import Block

__all__ = ["Line", "Telling"]


class Line(NamedTuple):
    """An event of the source.

    Attributes:
        event: the stored event.
        kind: its type in the source.
        seq: its number in the source; of a row of chunks, that of the first.
        data: what it holds.
        record: all of it.

    """

    event: Event
    kind: str
    seq: int
    data: dict[str, Any]
    record: dict[str, Any]

    @property
    def key(self) -> Key:
        """Turn and step that it names."""
        return count(self.data.get("turn")), count(self.data.get("step"))


class Telling:
    """Makes events of what was said, and knows the open turn and the open answer.

    Attributes:
        out: the events since it was last emptied.
        turn: number of the open turn, or None.
        model: what the model was called when it was asked last.
        seed: how many events of the source came before the session's own.

    """

    def __init__(self, said: Callable[..., Event]) -> None:
        """Begin before the first record; `said` makes an event."""
        self.out: list[Event] = []
        self.turn: int | None = None
        self.model: str | None = None
        self.seed = 0
        self._said = said
        self._held: list[Event] = []
        self._turns = 0
        self._unnamed = False
        self._answer: Answer | None = None
        self._answered: Key | None = None

    def say(self, line: Line, kind: str, data: dict[str, Any], turn: str | None = None) -> None:
        """An event comes from a record."""
        # What comes while an answer is open has a later number than its pieces.
        out = self.out if self._answer is None else self._held
        out.append(self._said(line.event, kind, data, turn=turn))

    def own(self, line: Line) -> bool:
        """Whether a record is the session's own, not one that a fork begins with."""
        return line.seq >= self.seed

    # --- turns ----------------------------------------------------------------------------------

    def turn_of(self, line: Line) -> str | None:
        """The turn that a record names, else the open one; one that is new begins here."""
        number = line.key[0]
        if number is None:
            number = self.turn
        elif number > self._turns:
            # Its start is lost, or was never written.
            self._begin(line, number)
        return None if number is None else str(number)

    def _begin(self, line: Line, number: int) -> None:
        self.turn = number
        self._turns = max(self._turns, number)
        self._unnamed = False
        self.say(line, "turn/start", {}, str(number))

    def prompted(self, line: Line) -> None:
        """Somebody typed: in a log that tells of no turns, one begins."""
        if self.turn is None and line.key[0] is None:
            self._begin(line, self._turns + 1)
            self._unnamed = True

    def start_turn(self, line: Line) -> bool:
        """The turn that a record names begins; False: it names none."""
        number = line.key[0]
        if number is None:
            return False
        if self._unnamed and number == self.turn:
            # It began with the prompt before this record.
            self._unnamed = False
        else:
            self._begin(line, number)
        return True

    def end_turn(self, line: Line, data: dict[str, Any]) -> bool:
        """The turn that a record names is over, else the open one; False: there is none."""
        turn = self.turn_of(line)
        if turn is None:
            return False
        self.say(line, "turn/end", data, turn)
        if turn == str(self.turn):
            self.turn, self._unnamed = None, False
        return True

    # --- answers --------------------------------------------------------------------------------

    def streamed(self, line: Line) -> Answer:
        """The answer that a chunk belongs to."""
        key = line.key
        if key == self._answered:
            # What comes behind the message says nothing new.
            return Answer(key, None)
        if self._answer is None or self._answer.key != key:
            self._step_over(line)
            # The turn may begin with it.
            turn = self.turn_of(line)
            self._answer = Answer(key, turn)
        return self._answer

    def _step_over(self, line: Line) -> None:
        """Another answer begins: where the one before is told in pieces, these are all of it."""
        before = self._answer
        if before is not None and self.abandon(last=True) and before.key[1] is not None:
            data = {"step": before.key[1], "interrupted": True}
            self.say(line, "step/end", data, before.turn)

    def whole(self, line: Line) -> dict[str, int] | None:
        """A message tells what was streamed; what the chunks told of its cost is returned."""
        key, answer, usage = line.key, self._answer, None
        if answer is not None and answer.key == key:
            usage = None if answer.usage is None else answer.usage[1]
            answer.pieces, answer.usage, answer.calls = [], None, {}
        self.abandon()
        self._answered = None if None in key else key
        return usage

    def ran(self, line: Line, data: dict[str, Any]) -> None:
        """A call begins: one that was streamed belongs to that answer, whatever becomes of it."""
        answer = self._answer
        if answer is not None and answer.asked(line.key, data["id"]):
            answer.calls[data["id"]] = data
        else:
            self.abandon()

    def returned(self, ids: list[str]) -> None:
        """Results come: those of calls of the open answer do not end it."""
        if self._answer is None or not any(id in self._answer.calls for id in ids):
            self.abandon()

    def new_step(self, *, again: bool = False) -> None:
        """No message comes any more for what was streamed before; `again`: it is asked for anew."""
        self.abandon(last=not again)
        self._answered = None

    def abandon(self, *, last: bool = False) -> bool:
        """End the open answer: what was streamed of it is all that there is.

        It is told as it was streamed, and True is returned; as a message where calls of it were
        begun, which need one, or where no message of it can come any more (`last`).
        """
        answer, self._answer = self._answer, None
        if answer is None:
            return False
        blocks, whole = answer.whole()
        if blocks and (answer.calls or last):
            told = [self._message(answer, blocks, whole=whole)]
        else:
            told = [
                self._said(record, "assistant/delta", data, turn=answer.turn)
                for record, data in answer.pieces
            ]
            if answer.usage is not None:
                record, usage = answer.usage
                told.append(self._said(record, "usage", usage | self._model(), turn=answer.turn))
        self.out += sorted(told + self._held, key=lambda event: event.seq)
        self._held = []
        return any(event.type == "assistant/delta" for event in told)

    def _message(self, answer: Answer, blocks: list[Block], *, whole: bool) -> Event:
        data: dict[str, Any] = {"content": blocks, **self._model()}
        data |= {} if answer.usage is None else {"usage": answer.usage[1]}
        data |= {} if whole else {"interrupted": True}
        first = answer.pieces[0].record if answer.pieces else self._held[0]
        return self._said(first, "assistant/message", data, turn=answer.turn)

    def _model(self) -> dict[str, Any]:
        return {} if self.model is None else {"model": self.model}
