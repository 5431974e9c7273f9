"""Claude Code: transcripts of all generations, files of sub-agents, and its history of prompts.

A line is a record with an `uuid`, chained to others by `parentUuid`, or housekeeping without one.
`transcript` says what each kind of record is; `content` reads the pieces of messages, `injected`
what was put there for the model, `attachments` what came beside them. `chain` knows whose records
they are and what they follow, `turns` what was told in each turn and what was taken back of it, and
`telling` makes events of it all, in their order.
"""

from perdure.lenses.claude_code.transcript import ClaudeCode

__all__ = ["ClaudeCode"]
