"""perdure keeps agent sessions: one append-only, hash-chained log per session is the truth."""

import importlib.metadata
import os
from collections.abc import Sequence

from perdure import errors
from perdure.backends.base import Aside, Blob, Entry, Trashed
from perdure.catalog.contract import Listed
from perdure.durable.locks import Holder
from perdure.embedding import Embedder
from perdure.errors import InvalidValue
from perdure.evidence import Damage
from perdure.model import Event, Header, Parent, Position, Source
from perdure.model.vocabulary import Vocabulary
from perdure.recovery.walk import Problem
from perdure.runtime import SYSTEM, Runtime
from perdure.store import (
    LAST,
    Agents,
    Artifact,
    Compacted,
    ContentReport,
    Copied,
    Coverage,
    Embedded,
    EvidenceState,
    Expiry,
    Extracted,
    Found,
    Hit,
    Inspection,
    Listing,
    Missing,
    NotCopied,
    OutputRecorder,
    Prepared,
    Refreshed,
    Relative,
    Repair,
    Report,
    Resumed,
    Session,
    Skipped,
    State,
    Stats,
    Step,
    Store,
    Turn,
    memory_tool,
    open_store,
)
from perdure.views.conversation import Branch
from perdure.views.projection import Projection
from perdure.views.view import History, Rows, View

_URLS = ("http://", "https://")


def open(  # noqa: A001 - called as perdure.open
    location: str | os.PathLike[str],
    *,
    encoding: str | None = None,
    pack: bool = True,
    views: Sequence[View] = (),
    index: bool = True,
    projection: Projection | None = None,
    embedder: str | Embedder | None = None,
    embed: bool = False,
    token: str | None = None,
    timeout: float | None = None,
    runtime: Runtime = SYSTEM,
) -> Store:
    """Open the store at `location`: a path or `dir:PATH` for a folder, `sqlite:PATH` for a file.

    `sqlite:///home/me/agents.db` is absolute. A path that ends in `.perdure`, or `bundle:PATH`, is
    a bundle; `memory:` goes with the object, `none:` keeps nothing. Nothing is created before the
    first commit. `encoding` of new sessions in a folder is "zst" (compressed, the default) or "raw"
    (plain lines). `views` are folds of yours, kept beside every session's; each has its own name.
    A thread keeps an index for `sessions` and `search`; with `index=False` there is neither.
    `projection` is a column of yours in the listing. `embedder` turns texts into vectors, for
    search by meaning: an object, or a name as `perdure.embedding.embedder_of` takes it. It is made
    when it is needed; without one, that of the vectors that are there answers. With `embed` a
    thread embeds what is written here, soon, and nobody waits for it.

    `http://…` and `https://…` are stores that `perdure serve` serves, with the same names: see "The
    client" in docs/http.md. Nothing is asked before the first call. `token` says who asks; without
    it, `?token=…` in the URL or the environment variable PERDURE_TOKEN does. `timeout` is how many
    seconds a call goes on trying while no server answers, 30 by default.

    Raises:
        InvalidValue: the location or an option is not known, or a view cannot be.

    """
    if isinstance(location, str) and location[:8].lower().startswith(_URLS):
        # Only now: who has the store here asks nobody.
        from perdure.http.client.opening import open_url  # noqa: PLC0415

        return open_url(
            location,
            token=token,
            timeout=timeout,
            pack=pack,
            views=views,
            runtime=runtime,
            encoding=encoding,
            index=index,
            projection=projection,
            embedder=embedder,
            embed=embed,
        )
    for name, told in (("token", token), ("timeout", timeout)):
        if told is not None:
            reason = "has no meaning for a store that is opened here"
            raise InvalidValue(name, reason, hint="it is for http:// and https://")
    return open_store(
        location,
        encoding=encoding,
        pack=pack,
        views=views,
        index=index,
        projection=projection,
        embedder=embedder,
        embed=embed,
        runtime=runtime,
    )


def __getattr__(name: str) -> str:
    """`perdure.__version__`, looked up when it is asked for."""
    if name == "__version__":
        return importlib.metadata.version("perdure")
    raise AttributeError(name)


__all__ = [
    "LAST",
    "Agents",
    "Artifact",
    "Aside",
    "Blob",
    "Branch",
    "Compacted",
    "ContentReport",
    "Copied",
    "Coverage",
    "Damage",
    "Embedded",
    "Entry",
    "Event",
    "EvidenceState",
    "Expiry",
    "Extracted",
    "Found",
    "Header",
    "History",
    "Hit",
    "Holder",
    "Inspection",
    "Listed",
    "Listing",
    "Missing",
    "NotCopied",
    "OutputRecorder",
    "Parent",
    "Position",
    "Prepared",
    "Problem",
    "Projection",
    "Refreshed",
    "Relative",
    "Repair",
    "Report",
    "Resumed",
    "Rows",
    "Session",
    "Skipped",
    "Source",
    "State",
    "Stats",
    "Step",
    "Store",
    "Trashed",
    "Turn",
    "View",
    "Vocabulary",
    "errors",
    "memory_tool",
    "open",
]
