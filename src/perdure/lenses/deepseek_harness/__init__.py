"""deepseek-harness: the log of a session, as its harness writes it.

A header, then one event a line; a row of packed chunks stands for several. `session` reads the
lines, `content` what they hold, `answers` what was streamed of an answer, and `surface` knows
which messages the model is still told.
"""

from perdure.lenses.deepseek_harness.session import DeepseekHarness

__all__ = ["DeepseekHarness"]
