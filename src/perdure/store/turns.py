"""Turns and steps as they are recorded: what each says, and how it ends whatever happens in it.

What blocks and what is awaited say the same (`TurnWriting`, `StepWriting`); they differ in what a
call returns, and in how they end. A turn keeps a `Book` of what is open in it, from what it was
told itself; nothing is read for that.
"""

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, Protocol, Self, TypeVar

from perdure.model.event import Event
from perdure.store.book import Book, Hold, check_reason, ending
from perdure.store.closing import close_behind
from perdure.store.members import Content, Failure, failure_of

__all__ = ["Step", "StepWriting", "Turn", "TurnWriting", "Write"]

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Write(Protocol[R_co]):
    """Appends one event of a turn, unless the turn has ended, and takes note of it."""

    def __call__(
        self,
        kind: str,
        data: Any,
        *,
        book: Book,
        step: int | None = None,
        durable: bool = False,
        members: bool = True,
        key: str | None = None,
        time: int | None = None,
        ignorable: bool = False,
    ) -> R_co:
        """`members` are checked and made data of; otherwise `data` is taken as it is."""


class StepWriting(Generic[R]):
    """One request to the model and what follows from it; see `TurnWriting.step`."""

    def __init__(self, book: Book, number: int, write: Write[R], hold: Hold) -> None:
        """Made by `turn.step()`."""
        self._book = book
        self._write = write
        self._hold = hold
        self.number = number

    def __repr__(self) -> str:
        """Which step, and whether it is open."""
        state = "open" if self.open else "ended"
        return f"<{type(self).__name__} {self.number} of turn {self._book.turn!r}, {state}>"

    @property
    def open(self) -> bool:
        """Whether it has not ended."""
        return self._book.step == self.number

    def request(self, header: Any, *, reason: str | None = None) -> R:
        """What the model is asked with: model, system, tools, settings, as JSON.

        Durable before it returns, and with it all that was said before: then call the model. What
        is large and seldom changes goes beside the log (`put_blob`), its digest here.

        Raises:
            InvalidValue: it cannot be kept, or the step has ended.
            As `Session.append`; then the model must not be called.

        """
        members = {"header": header, "reason": reason}
        step = self.number
        return self._write("request/header", members, book=self._book, step=step, durable=True)

    def delta(self, text: str, *, kind: str = "text", index: int = 0, call: str | None = None) -> R:
        """A piece of the streamed answer: buffered. `message` repeats the answer whole.

        `kind` is "text", "thinking", or "arguments" of the call `call`; `index` counts the blocks.

        Raises:
            InvalidValue: it cannot be kept, or the step has ended.
            As `Session.buffer`.

        """
        members = {"text": text, "kind": kind, "index": index, "call": call}
        return self._write("assistant/delta", members, book=self._book, step=self.number)

    def message(
        self,
        content: Content,
        *,
        model: str | None = None,
        response: str | None = None,
        usage: dict[str, Any] | None = None,
        interrupted: bool = False,
    ) -> R:
        """The complete answer: buffered, durable with the next call or the end of the step.

        Each block `{"type": "tool-call", "id": …, "name": …, "arguments": …}` asks for a result.
        Blocks in the form of a provider are refused: the log has one form for all. `response` is
        the provider's id of the answer. `usage` has the members of the event `usage`.

        Raises:
            As `delta`.

        """
        members = {
            "content": content,
            "model": model,
            "response": response,
            "usage": usage,
            "interrupted": interrupted,
        }
        return self._write("assistant/message", members, book=self._book, step=self.number)

    def call(self, id: str, name: str, arguments: Any = None, *, nested: bool = False) -> R:
        """The tool is about to run: durable before this returns. Then run it.

        A nested call, which a tool makes while it runs, is buffered: that the outer one began is
        stored, so nothing that it does goes unrecorded.

        Raises:
            InvalidValue: it cannot be kept, or the step has ended.
            As `Session.append`; then the tool must not run.

        """
        members = {"id": id, "name": name, "arguments": arguments}
        step, durable = self.number, not nested
        return self._write("tool/call", members, book=self._book, step=step, durable=durable)

    def result(self, id: str, content: Any, *, error: Failure | None = None) -> R:
        """What the tool answered to the call `id`: buffered.

        `content` is a text, a list of blocks, or any other JSON value, which is kept as the text
        of its JSON. It may come after the step, while the turn lasts. `error` is an exception, or
        `{"code": …, "message": …}`.

        Raises:
            InvalidValue: it cannot be kept, or the turn has ended.
            As `Session.buffer`.

        """
        members = {"id": id, "content": content, "error": failure_of(error)}
        return self._write("tool/result", members, book=self._book)


class TurnWriting(Generic[R]):
    """One turn of an agent: what is said in it, in steps; see `Session.turn`."""

    def __init__(self, book: Book, write: Write[R], hold: Hold) -> None:
        """Made by `session.turn()`."""
        self._book = book
        self._write = write
        self._hold = hold

    def __repr__(self) -> str:
        """Which turn, of whom, and whether it is open."""
        state = "open" if self.open else "ended"
        return f"<{type(self).__name__} {self.id!r} of agent {self.agent!r}, {state}>"

    @property
    def id(self) -> str:
        """Its id, which stands in the envelope of its events."""
        return self._book.turn

    @property
    def agent(self) -> str | None:
        """Whose turn it is."""
        return self._book.agent

    @property
    def open(self) -> bool:
        """Whether it has not ended."""
        return not self._book.ended

    def user(self, content: Content, *, source: str | None = None) -> R:
        """What the user said, or `source` in place of the user: buffered.

        Raises:
            InvalidValue: it cannot be kept, or the turn has ended.
            As `Session.buffer`.

        """
        members = {"content": content, "source": source}
        return self._write("user/message", members, book=self._book)

    def append(
        self,
        type: str,  # noqa: A002
        data: Any = None,
        *,
        key: str | None = None,
        time: int | None = None,
        ignorable: bool = False,
    ) -> R:
        """Append any event to this turn, as `Session.append` with its agent and turn.

        Raises:
            InvalidValue: it cannot be kept, or the turn has ended.
            As `Session.append`.

        """
        return self._write(
            type,
            data,
            book=self._book,
            durable=True,
            members=False,
            key=key,
            time=time,
            ignorable=ignorable,
        )

    def buffer(
        self,
        type: str,  # noqa: A002
        data: Any = None,
        *,
        key: str | None = None,
        time: int | None = None,
        ignorable: bool = False,
    ) -> R:
        """Accept any event of this turn, as `Session.buffer` with its agent and turn.

        Raises:
            InvalidValue: it cannot be kept, or the turn has ended.
            As `Session.buffer`.

        """
        return self._write(
            type, data, book=self._book, members=False, key=key, time=time, ignorable=ignorable
        )

    def _begin_step(self) -> tuple[int, R]:
        """The number of a new step, and what came of its `step/start`."""
        with self._book.lock:
            number = self._book.begin_step()
            said = self._write("step/start", {"step": number}, book=self._book)
            self._book.steps = self._book.step = number
        return number, said

    @abstractmethod
    def step(self) -> StepWriting[R]:
        """Begin the next step."""

    @abstractmethod
    def next_step(self) -> StepWriting[R]:
        """End the open step, if there is one, and begin the next."""

    @abstractmethod
    def end(self, reason: str = "completed", error: Failure | None = None) -> Any:
        """End the turn."""

    def _end_open_step(self) -> None:
        """Accept the end of the step that is open, if one is, without waiting."""
        with self._book.lock:
            if self._book.step is not None:
                self._book.end_step(self._hold, self._book.step, answer=False)


class Step(StepWriting[Event]):
    """One request to the model and what follows from it; a context manager that ends itself."""

    def __init__(
        self,
        book: Book,
        number: int,
        write: Write[Event],
        hold: Hold,
        flush: Callable[[], None],
    ) -> None:
        """Made by `Turn.step`."""
        super().__init__(book, number, write, hold)
        self._flush = flush

    def end(self) -> None:
        """End the step: durable when this returns. Its context does this by itself.

        Calls without a result may still be answered while the turn lasts.

        Raises:
            InvalidValue: it has ended.
            As `Session.flush`; the end is accepted then, and stored by the next commit.

        """
        self._end(answer=False)

    def _end(self, *, answer: bool) -> None:
        self._book.end_step(self._hold, self.number, answer=answer)
        self._flush()

    def __enter__(self) -> Self:
        """The step itself."""
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """End it; calls that an exception left unanswered get error results.

        A storage error is chained onto the exception that ends the context.
        """
        if self.open:
            end = partial(self._end, answer=error is not None)
            close_behind(error, end, f"while ending step {self.number}")


class Turn(TurnWriting[Event]):
    """One turn of an agent; a context manager that ends itself, whatever happens inside.

    Methods may be called from any thread: tools may run side by side.
    """

    def __init__(
        self,
        book: Book,
        write: Write[Event],
        hold: Hold,
        flush: Callable[[], None],
    ) -> None:
        """Made by `Session.turn`."""
        super().__init__(book, write, hold)
        self._flush = flush

    def step(self) -> Step:
        """Begin the next step: `with turn.step() as step`, or `step.end()`. Steps count from 1.

        Raises:
            InvalidValue: a step is open, or the turn has ended.
            As `Session.buffer`.

        """
        number, _ = self._begin_step()
        return Step(self._book, number, self._write, self._hold, self._flush)

    def next_step(self) -> Step:
        """As `step`, after ending the one that is open: that end is stored with what follows.

        Raises:
            InvalidValue: the turn has ended.
            As `Session.buffer`.

        """
        self._end_open_step()
        return self.step()

    def end(self, reason: str = "completed", error: Failure | None = None) -> None:
        """End the turn: durable when this returns. Its context does this by itself.

        `reason` is one of "completed", "aborted", "blocked", "error" and "max-tokens". Calls
        without a result get an error result: `TOOL_NOT_STARTED` where no `call` was recorded,
        otherwise `TOOL_OUTCOME_UNKNOWN`. An open step ends as well.

        Raises:
            InvalidValue: it has ended, or for another reason.
            As `Session.flush`; the end is accepted then, and stored by the next commit.

        """
        check_reason(reason)
        self._end(reason, failure_of(error))

    def _end(self, reason: str, error: Any) -> None:
        self._book.end(self._hold, reason, error)
        self._flush()

    def __enter__(self) -> Self:
        """The turn itself."""
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """End it as completed, or as an exception says: "error", or "aborted" by an interrupt.

        A storage error is chained onto the exception that ends the context.
        """
        if self.open:
            reason, failure = ending(error)
            close_behind(
                error, partial(self._end, reason, failure), f"while ending turn {self.id!r}"
            )
