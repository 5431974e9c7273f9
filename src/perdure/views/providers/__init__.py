"""Neutral messages as the APIs of providers want them.

Each format turns the neutral messages of `perdure.views.conversation` into a list that its provider
accepts, whatever stands in the log: roles, pairs of calls and results, ids, names and texts are
made to obey the provider's rules (`speech`), and what it has no form for is told in words or left
out. What comes out depends on what goes in alone, and a call keeps its id as the conversation goes
on, so that providers find in their caches what they were sent before.

No format has a system message: it belongs to the request, with model and tools.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from perdure.views.providers.anthropic import to_anthropic
from perdure.views.providers.neutral import to_neutral
from perdure.views.providers.openai_chat import to_openai_chat
from perdure.views.providers.openai_responses import to_openai_responses
from perdure.views.providers.speech import Load, Neutral

__all__ = [
    "FORMATS",
    "Format",
    "to_anthropic",
    "to_neutral",
    "to_openai_chat",
    "to_openai_responses",
]


class Format(Protocol):
    """What turns neutral messages into those of a provider."""

    def __call__(self, messages: Neutral, load: Load | None = None) -> list[dict[str, Any]]:
        """The provider's messages; `load` gives the bytes of images by their digest."""


FORMATS: Mapping[str, Format] = {
    "neutral": to_neutral,
    "anthropic": to_anthropic,
    "openai-chat": to_openai_chat,
    "openai-responses": to_openai_responses,
}
"""Formats by name: each is called with the messages and, for images, with what loads them."""
