"""Pure decisions: what a log proves, what to do about its end, how an interrupted turn closes."""

from perdure.recovery.closers import OpenWork
from perdure.recovery.tail import TailFacts, Verdict, decide
from perdure.recovery.walk import Ending, Known, Piece, Problem, Walk

__all__ = [
    "Ending",
    "Known",
    "OpenWork",
    "Piece",
    "Problem",
    "TailFacts",
    "Verdict",
    "Walk",
    "decide",
]
