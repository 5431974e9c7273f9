"""The end of a log: observed facts in, one verdict out.

`TABLE` is read from the top; the first row whose facts fit decides. Each row names the event in the
life of a store that leads to it. The test of this module walks through every combination of facts.
"""

from enum import Enum
from typing import NamedTuple

__all__ = ["TABLE", "Row", "TailFacts", "Verdict", "decide"]


class Verdict(Enum):
    """What the end of a log amounts to."""

    UNSUPPORTED = "unsupported"
    DAMAGED = "damaged"
    TORN = "torn"
    UNTERMINATED = "unterminated"
    AHEAD = "ahead"
    COMPLETE = "complete"


class TailFacts(NamedTuple):
    """What a reader saw when it came to the end, or to the first thing that does not fit.

    Attributes:
        format_known: the header is of a format that this version reads.
        header_intact: the header carries its own digest and the id that was asked for.
        all_intact: every byte behind the header belongs to an intact, linked record.
        acknowledged_kept: the acknowledged position lies in the intact part, with its hash
            (True as well where no acknowledged position is known).
        later_acknowledged: what does not fit lies before or at the acknowledged position, or, where
            none is known, intact records stand behind it.
        unterminated: the last record is whole but for its newline.
        beyond: intact records stand behind the acknowledged position.

    """

    format_known: bool
    header_intact: bool
    all_intact: bool
    acknowledged_kept: bool
    later_acknowledged: bool
    unterminated: bool
    beyond: bool


class Row(NamedTuple):
    """One row of the table: facts that must hold (None: any), the verdict, and its story."""

    verdict: Verdict
    story: str
    format_known: bool | None = None
    header_intact: bool | None = None
    all_intact: bool | None = None
    acknowledged_kept: bool | None = None
    later_acknowledged: bool | None = None
    unterminated: bool | None = None
    beyond: bool | None = None

    def fits(self, facts: TailFacts) -> bool:
        """Whether every fact that the row names is as it says."""
        wanted = self[2:]
        return all(want is None or want == fact for want, fact in zip(wanted, facts, strict=True))


TABLE: tuple[Row, ...] = (
    Row(
        Verdict.UNSUPPORTED,
        "Another version of perdure wrote this session; nothing is broken.",
        format_known=False,
    ),
    Row(
        Verdict.DAMAGED,
        "The header was overwritten, or exchanged with that of another session.",
        header_intact=False,
    ),
    Row(
        Verdict.DAMAGED,
        "The file was cut, replaced by an older copy, or its last record was edited: something "
        "acknowledged is missing.",
        acknowledged_kept=False,
    ),
    Row(
        Verdict.DAMAGED,
        "Bytes were changed in the acknowledged part.",
        all_intact=False,
        later_acknowledged=True,
    ),
    Row(
        Verdict.TORN,
        "A writer died while it wrote a commit that nobody was told about.",
        all_intact=False,
        later_acknowledged=False,
    ),
    Row(
        Verdict.UNTERMINATED,
        "A writer died between the last byte of a record and its newline.",
        unterminated=True,
    ),
    Row(
        Verdict.AHEAD,
        "A writer died after its records were written and before it could say so.",
        beyond=True,
    ),
    Row(Verdict.COMPLETE, "The last commit was acknowledged and nothing came after it."),
)


def decide(facts: TailFacts) -> Verdict:
    """The verdict of the first row that fits; the last row fits everything."""
    return next(row.verdict for row in TABLE if row.fits(facts))
