"""What a failed request means for what was to be stored."""

from perdure.errors import (
    PerdureError,
    RequestTimedOut,
    ServerFaulty,
    ServerUnavailable,
    StorageUnavailable,
)

__all__ = ["doubtful", "told"]


def told(error: PerdureError, url: str) -> PerdureError:
    """The error of a write: `doubtful` where it may have been done, else the error itself."""
    if isinstance(error, ServerUnavailable) and not error.uncertain:
        # It was never sent, or the server said that it did not do it.
        return error
    unknown = isinstance(error, ServerUnavailable | ServerFaulty | RequestTimedOut)
    # The root alone: an error of the server's that has no name.
    return doubtful(error, url) if unknown or type(error) is PerdureError else error


def doubtful(error: PerdureError, url: str) -> StorageUnavailable:
    """Nobody can say whether it was done."""
    failure = StorageUnavailable(
        url, f"whether it was stored is not known: {error.message}", hint="open the session again"
    )
    failure.uncertain = True
    return failure
