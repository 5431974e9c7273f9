"""Closing at the end of a context, without hiding what ended it."""

from collections.abc import Callable

from perdure.errors import PerdureError

__all__ = ["close_behind"]


def close_behind(error: BaseException | None, close: Callable[[], None], when: str) -> None:
    """Close at the end of a context that `error` ends, if any: that one comes first."""
    if error is None:
        close()
        return
    try:
        close()
    except PerdureError as failure:
        error.add_note(f"and {when}: {failure}")
        _chain(error, failure)


def _chain(error: BaseException, failure: BaseException) -> None:
    """Put `failure` behind all that led to `error`; Python linked them the other way round."""
    first = failure
    while first.__context__ is not None and first.__context__ is not error:
        first = first.__context__
    first.__context__ = None
    last = error
    while last.__context__ is not None:
        last = last.__context__
    last.__context__ = failure
