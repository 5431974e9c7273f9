"""Sessions and files that cannot be opened as they were asked for."""

from collections.abc import Sequence

from perdure.errors.tree import PerdureError, clock

__all__ = [
    "FormatUnsupported",
    "PresetUnknown",
    "SessionBusy",
    "SessionExists",
    "SessionNotFound",
    "UnsafeFile",
    "WorkspaceMissing",
]


_BRING_BACK = (
    "bring its folder back; if it is gone for good, store.forget(id) or `perdure forget` says so "
    "and frees the id"
)
_LIST = "list the sessions with store.list() or `perdure ls`"


class SessionNotFound(PerdureError):
    """No session of that id is stored here.

    `deleted_at` (Unix ms): it is in the trash, or was. `missing`: it was stored here, up to this
    event, and is gone though nobody deleted it. `session` is "" where the last one was asked for.
    """

    code = "session-not-found"

    def __init__(
        self, session: str, *, deleted_at: int | None = None, missing: int | None = None
    ) -> None:
        """Name the id that was asked for."""
        message, hint = f"no session {session!r} in this store", _LIST
        if not session:
            message = "there is no session yet in this store, or none that can be read"
            hint = "store.create() makes one; `perdure --store PATH` looks in another store"
        elif deleted_at is not None:
            message = f"session {session!r} was deleted at {clock(deleted_at)}"
            hint = "store.restore(id) or `perdure restore` brings it back while it is in the trash"
        elif missing is not None:
            message = f"session {session!r} was stored here, up to event {missing}, and is gone"
            hint = _BRING_BACK
        super().__init__(message, hint=hint)
        self.session = session
        self.deleted_at = deleted_at
        self.missing = missing


class WorkspaceMissing(PerdureError):
    """The folder that a session works in is not there, so it is not resumed; nothing was done."""

    code = "workspace-missing"

    def __init__(self, session: str, cwd: str) -> None:
        """Name the folder."""
        super().__init__(
            f"the working directory {cwd!r} of session {session!r} is not there",
            hint="bring it back, or say where it is now: resume(id, cwd=…)",
        )
        self.session = session
        self.cwd = cwd


class PresetUnknown(PerdureError):
    """There is no such preset. `session` is None where a new session was to be made with it."""

    code = "preset-unknown"

    def __init__(self, session: str | None, preset: str | None, known: Sequence[str] = ()) -> None:
        """Name the preset, and those that there are."""
        there = ", ".join(repr(name) for name in known) or "none"
        message = f"there is no preset {preset!r}"
        if session is not None:
            message = f"session {session!r} was made with the preset {preset!r}; {message}"
        super().__init__(message, hint=f"presets here: {there}")
        self.session = session
        self.preset = preset
        self.known = tuple(known)


class SessionExists(PerdureError):
    """The id is taken: another writer's first durable append came before.

    `deleted_at` (Unix ms): by a deleted session, which nothing brings back unasked. `missing`: by
    one that was stored here, up to this event, and is gone though nobody deleted it.
    """

    code = "session-exists"

    def __init__(
        self, session: str, *, deleted_at: int | None = None, missing: int | None = None
    ) -> None:
        """Name the id that is taken."""
        message = f"a session {session!r} exists already"
        hint = "choose another id; store.resume(id) goes on with it, `perdure show` shows it"
        if deleted_at is not None:
            message = f"session {session!r} was deleted at {clock(deleted_at)} and keeps its id"
            hint = (
                "store.restore(id) or `perdure restore` brings it back; once the trash is emptied, "
                "store.forget(id) or `perdure forget` frees the id"
            )
        elif missing is not None:
            message = f"session {session!r} was stored here, up to event {missing}, and is gone"
            hint = _BRING_BACK
        super().__init__(message, hint=hint)
        self.session = session
        self.deleted_at = deleted_at
        self.missing = missing


class SessionBusy(PerdureError):
    """Another writer holds the session. `pid`, `host` and `since` (Unix ms) are what it said."""

    code = "session-busy"
    retryable = True

    def __init__(
        self,
        session: str,
        *,
        pid: int | None = None,
        host: str | None = None,
        since: int | None = None,
        here: bool = False,
        reentered: bool = False,
    ) -> None:
        """Say who writes, as far as the lock tells; `here`: it is this process.

        `reentered`: it is this very thread, which a signal interrupted.
        """
        who = "another writer"
        if pid is not None:
            when = "?" if since is None else clock(since)
            who = f"{'this process, ' if here else ''}pid {pid} on {host} since {when}"
        hint = "reading never waits; to write, try again later; in programs wait=seconds does that"
        if here:
            hint = "use the session that is open, or close it first"
        if reentered:
            who = "this thread, which was interrupted in the middle of it"
            hint = "let a signal handler set a flag, and append when it has returned"
        super().__init__(f"session {session!r} is being written by {who}", hint=hint)
        self.session = session
        self.pid = pid
        self.host = host
        self.since = since
        self.here = here
        self.reentered = reentered


class FormatUnsupported(PerdureError):
    """Intact, but written in a format that this version does not read."""

    code = "format-unsupported"

    def __init__(self, what: str, *, found: object, supported: int) -> None:
        """Say in which direction the versions differ."""
        older = isinstance(found, int) and not isinstance(found, bool) and found < supported
        hint = (
            "it was written by an older perdure, whose format is not read any more"
            if older
            else "it was written by a newer perdure: upgrade perdure"
        )
        super().__init__(f"{what} has format {found!r}, supported is {supported}", hint=hint)
        self.what = what
        self.found = found
        self.supported = supported


class UnsafeFile(PerdureError):
    """A file of the store is not a private regular file of ours, so it is not opened."""

    code = "unsafe-file"

    def __init__(self, path: str, reason: str, *, hint: str = "") -> None:
        """Name the path and what is wrong with it."""
        super().__init__(f"{path}: {reason}", hint=hint or "see its owner, kind and mode (0600)")
        self.path = path
        self.reason = reason
