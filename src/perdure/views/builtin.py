"""The views that every session has."""

from perdure.views.agents import Agents
from perdure.views.artifacts import Artifacts
from perdure.views.channels import Channels
from perdure.views.conversation import Conversation
from perdure.views.effects import Effects
from perdure.views.facts import SessionFacts
from perdure.views.jobs import Jobs
from perdure.views.scratch import Scratch
from perdure.views.subagents import Subagents
from perdure.views.triggers import Triggers
from perdure.views.usage import UsageView
from perdure.views.view import View

__all__ = ["BUILTIN"]

BUILTIN: tuple[View, ...] = (
    Conversation(),
    Scratch(),
    Triggers(),
    Channels(),
    Jobs(),
    Effects(),
    Subagents(),
    UsageView(),
    Agents(),
    Artifacts(),
    SessionFacts(),
)
"""Views keep nothing in themselves, so all sessions share them."""
