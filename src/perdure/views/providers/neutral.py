"""The neutral format: messages as the conversation has them."""

from typing import Any

from perdure.views.providers.speech import Load, Neutral

__all__ = ["to_neutral"]


def to_neutral(
    messages: Neutral,
    load: Load | None = None,  # noqa: ARG001 - all formats are called alike
) -> list[dict[str, Any]]:
    """The messages as they are, each in a dict of its own; images stay references."""
    return [dict(message) for message in messages]
