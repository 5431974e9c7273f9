"""Codex CLI: rollouts of all generations, and its history of prompts.

A line is an envelope `{timestamp, type, payload}`, or before version 0.4 a bare item; the first
versions wrote one object over many lines (`document`). Items (`items`) are what goes to the model
and comes from it; events are what the screen showed, and say much of it again. `telling` puts both
together, `answers` the pieces of one answer, `calls` reads what events say of calls and `ledger`
knows which were told of, `meter` counts tokens once, and `origin` tells whose lines they are.
"""

from perdure.lenses.codex.rollout import Codex

__all__ = ["Codex"]
