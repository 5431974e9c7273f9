"""What stands in the way of turning texts into vectors."""

from perdure.errors.tree import PerdureError

__all__ = ["EmbedderFaulty", "EmbedderUnavailable", "TextRefused"]


class EmbedderUnavailable(PerdureError):
    """What turns texts into vectors is not installed, cannot be reached, or refuses."""

    code = "embedder-unavailable"

    def __init__(
        self, embedder: str, reason: str, *, hint: str = "", retryable: bool = False
    ) -> None:
        """Name the embedder; `retryable`: the same may go well at another time."""
        hint = hint or (
            "try again later" if retryable else "see docs/meaning.md for how to set one up"
        )
        super().__init__(f"embedder {embedder}: {reason}", hint=hint)
        self.embedder = embedder
        self.reason = reason
        self.retryable = retryable


class TextRefused(EmbedderUnavailable):
    """The embedder is there, and does not take one of the texts that it was given, or so many."""

    code = "text-refused"


class EmbedderFaulty(PerdureError):
    """What an embedder answered are no vectors of its model. Nothing of it is kept."""

    code = "embedder-faulty"

    def __init__(self, embedder: str, reason: str, *, hint: str = "") -> None:
        """Name the embedder and what is wrong with its answer."""
        hint = hint or "see whether it is the model, and the dimension, that was asked for"
        super().__init__(f"embedder {embedder}: {reason}", hint=hint)
        self.embedder = embedder
        self.reason = reason
