"""Exit codes: the one table from what went wrong to what a script sees."""

from collections.abc import Iterable
from enum import IntEnum

from perdure import errors

__all__ = ["EXIT_CODES", "Exit", "exit_code", "worst"]


class Exit(IntEnum):
    """What the process ends with."""

    OK = 0
    FAILED = 1
    USAGE = 2
    DAMAGE = 3
    BUSY = 4
    NOT_FOUND = 5
    INTERRUPTED = 130
    """128 + SIGINT, as a shell says it."""
    PIPE_CLOSED = 141
    """128 + SIGPIPE: whoever read the output stopped, as `head` does."""


EXIT_CODES: dict[type[errors.PerdureError], Exit] = {
    errors.PerdureError: Exit.FAILED,
    errors.InvalidValue: Exit.USAGE,
    errors.PersistenceDisabled: Exit.USAGE,
    errors.SessionNotFound: Exit.NOT_FOUND,
    errors.SessionExists: Exit.FAILED,
    errors.WorkspaceMissing: Exit.FAILED,
    errors.PresetUnknown: Exit.FAILED,
    errors.SessionDiverged: Exit.FAILED,
    errors.SessionBusy: Exit.BUSY,
    errors.FormatUnsupported: Exit.FAILED,
    errors.UnsafeFile: Exit.FAILED,
    errors.KeyConflict: Exit.FAILED,
    errors.EffectUnknown: Exit.FAILED,
    errors.EffectFailed: Exit.FAILED,
    errors.StaleWriter: Exit.BUSY,
    errors.SessionClosed: Exit.FAILED,
    errors.StoreClosed: Exit.FAILED,
    errors.StorageFull: Exit.FAILED,
    errors.StorageUnavailable: Exit.FAILED,
    errors.SessionDamaged: Exit.DAMAGE,
    errors.EmbedderUnavailable: Exit.FAILED,
    errors.EmbedderFaulty: Exit.FAILED,
    errors.TextRefused: Exit.FAILED,
    errors.NotAuthenticated: Exit.USAGE,
    errors.NotAllowed: Exit.USAGE,
    errors.NotOffered: Exit.USAGE,
    errors.NoSuchOperation: Exit.USAGE,
    errors.RequestTooLarge: Exit.USAGE,
    errors.RequestTimedOut: Exit.FAILED,
    errors.ServerUnavailable: Exit.FAILED,
    errors.ServerFaulty: Exit.FAILED,
    errors.ContentExpired: Exit.NOT_FOUND,
    errors.ConversationNotFound: Exit.NOT_FOUND,
    errors.ConversationBusy: Exit.BUSY,
    errors.RequestConflict: Exit.FAILED,
    errors.RevisionConflict: Exit.FAILED,
    errors.ContentDamaged: Exit.DAMAGE,
}
"""Every class of the error tree; a test requires that none is missing."""

_GRAVITY = (Exit.OK, Exit.BUSY, Exit.NOT_FOUND, Exit.USAGE, Exit.FAILED, Exit.DAMAGE)


def exit_code(error: errors.PerdureError) -> Exit:
    """Exit code of an error; a class from elsewhere counts as its nearest known ancestor."""
    return next(EXIT_CODES[kind] for kind in type(error).__mro__ if kind in EXIT_CODES)


def worst(codes: Iterable[Exit]) -> Exit:
    """What a command ends with that did several things: damage first, a busy session last."""
    return max(codes, key=_GRAVITY.index, default=Exit.OK)
