"""View "conversation": what each agent's model has been told and said, as of now or of any turn.

The turns of an agent are a tree (`tree`): edits, answers given again and rewinds begin branches,
and the log keeps them all. The rows hold the one lineage that ends where the agent stands
(`lineage`); `folding` moves them from event to event, `reading` makes messages of them.
"""

from perdure.views.conversation.folding import Conversation
from perdure.views.conversation.reading import (
    agents,
    head,
    knows,
    messages,
    messages_at,
    parent_of,
    turns,
)
from perdure.views.conversation.tree import Branch, branches

__all__ = [
    "Branch",
    "Conversation",
    "agents",
    "branches",
    "head",
    "knows",
    "messages",
    "messages_at",
    "parent_of",
    "turns",
]
