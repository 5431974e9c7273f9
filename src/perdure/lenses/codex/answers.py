"""The answer that the model is giving: its records, put together until something else is said.

Codex writes each piece of an answer (thoughts, text, calls) as a record of its own, names no
response, and says most texts twice: as the item that goes to the model and as an event for the
screen, either of them first.
"""

from typing import Any

from perdure.model.event import Event
from perdure.model.vocabulary.payloads import Block

__all__ = ["Answer", "Piece", "Seam", "pieces_of"]

Piece = tuple[str, str]
"""Type and text of a block, by which its two records are known as one."""


def pieces_of(blocks: list[Block]) -> set[Piece]:
    """How events may repeat blocks: one by one, or the texts of one type in one."""
    found: set[Piece] = set()
    for kind in ("text", "thinking"):
        texts = [block["text"] for block in blocks if block["type"] == kind]
        found |= {(kind, text.strip()) for text in (*texts, "".join(texts)) if text}
    return found


class Answer:
    """An open answer.

    Attributes:
        record: the first record of it.
        model: the model that gives it.
        turn: the turn that it belongs to.
        blocks: what was said so far.
        usage: what it cost, if that is to be counted.
        over: its cost was told, so that only records which repeat it can still come.
        behind: events to be told behind it.
        items: how events may repeat what its items said.
        echoes: what only events said so far.

    """

    __slots__ = (
        "_given",
        "_late",
        "behind",
        "blocks",
        "echoes",
        "items",
        "model",
        "over",
        "record",
        "turn",
        "usage",
    )

    def __init__(self, record: Event, model: str | None, turn: str | None) -> None:
        """Begin with a record."""
        self.record = record
        self.model = model
        self.turn = turn
        self.blocks: list[Block] = []
        self.usage: dict[str, Any] | None = None
        self.over = False
        self.behind: list[Event] = []
        self.items: set[Piece] = set()
        self.echoes: dict[Piece, Block] = {}
        self._given = False
        self._late = False

    def end(self, usage: dict[str, Any] | None) -> None:
        """Note that its cost was told, and what of it is to be counted."""
        self.over, self.usage, self._late = True, usage, not self._given

    def ends_before(self, *, item: bool) -> bool:
        """Whether an item, or else an event, that says something new is another answer's.

        Early versions told the cost behind the events of an answer, and before all its items.
        """
        return self.over and not (item and self._late)

    def item(self, blocks: list[Block], pieces: set[Piece]) -> None:
        """Add what an item says; events may repeat it as `pieces`, or did already."""
        for each in pieces:
            echo = self.echoes.pop(each, None)
            if echo is not None:
                self.blocks = [block for block in self.blocks if block is not echo]
        self._given = True
        self.items |= pieces
        self.blocks += blocks

    def echo(self, block: Block, piece: Piece) -> None:
        """Add what an event says and no item said yet."""
        self.echoes[piece] = block
        self.blocks.append(block)

    def said(self, piece: Piece) -> bool:
        """Whether an event tells what is in this answer already."""
        return piece in self.items or piece in self.echoes


class Seam:
    """What is remembered of the last answer: records that repeat it may come behind it."""

    __slots__ = ("_echoes", "_items")

    def __init__(self) -> None:
        """Remember nothing."""
        self._items: set[Piece] = set()
        self._echoes: set[Piece] = set()

    def close(self, answer: Answer) -> None:
        """Remember an answer in the place of the one before."""
        self._items, self._echoes = answer.items, set(answer.echoes)

    def forget(self) -> None:
        """Remember nothing: a new turn began."""
        self._items, self._echoes = set(), set()

    def repeats_item(self, piece: Piece) -> bool:
        """Whether an event tells again what an item of that answer said."""
        return piece in self._items

    def repeats_echo(self, piece: Piece) -> bool:
        """Whether an item tells again, for the first time, what an event of that answer said."""
        if piece not in self._echoes:
            return False
        self._echoes.discard(piece)
        return True
