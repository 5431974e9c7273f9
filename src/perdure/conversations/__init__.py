"""Conversations of authenticated users over one store, which take messages while a turn runs.

`Conversations(store).of(principal)` gives one user's, `create` begins one, `post` leaves a message,
`turn` runs the agent. `docs/conversations.md` shows it, `DESIGN.md` beside this module says why it
holds.
"""

from perdure.conversations.conversation import Conversation
from perdure.conversations.facts import Accepted, Message, MessagePage, Profile
from perdure.conversations.principals import Conversations, Principal
from perdure.conversations.turns import RunningTurn

__all__ = [
    "Accepted",
    "Conversation",
    "Conversations",
    "Message",
    "MessagePage",
    "Principal",
    "Profile",
    "RunningTurn",
]
