"""What a shell offers for an argument: ids, namespaces and digests that are stored.

Looking writes nothing, and where it fails there is nothing to offer. Ids may come from files that
anybody has written, and a shell puts what it is offered into the command line as it is: only names
without any character that a shell obeys are offered.
"""

import re
from collections.abc import Callable, Iterable

import click

from perdure.cli.options import Place
from perdure.store import Store, open_store

__all__ = ["deleted_sessions", "digests", "missing_sessions", "namespaces", "places", "sessions"]

_HARMLESS = re.compile(r"[A-Za-z0-9_@%+=.,/][A-Za-z0-9_@%+=.,/:-]*")


def _offer(
    ctx: click.Context, incomplete: str, found: Callable[[Store], Iterable[str]]
) -> list[str]:
    try:
        given = ctx.find_root().params
        place = Place(given["location"], tuple(given["parts"] or ()))
        with open_store(place.location) as store:
            names = [*found(store.namespace(*place.parts))]
        return [name for name in names if name.startswith(incomplete) and _HARMLESS.fullmatch(name)]
    except Exception:  # noqa: BLE001 - a shell that waits for an answer gets an empty one
        return []


def sessions(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Ids of stored sessions."""
    return _offer(ctx, incomplete, lambda store: (entry.id for entry in store.list()))


def deleted_sessions(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Ids in the trash."""
    return _offer(ctx, incomplete, lambda store: {each.id: None for each in store.trash()})


def missing_sessions(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Ids of sessions that vanished."""
    return _offer(ctx, incomplete, lambda store: (each.id for each in store.missing()))


def digests(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Digests of the content of the session that stands before."""
    session = str(ctx.params.get("session"))
    return _offer(ctx, incomplete, lambda store: (blob.digest for blob in store.blobs(session)))


def places(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Places beside the log of the session that stands before."""
    session = str(ctx.params.get("session"))
    return _offer(ctx, incomplete, lambda store: (each.place for each in store.asides(session)))


def namespaces(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Namespaces directly below the ones that stand before."""
    return _offer(ctx, incomplete, lambda store: store.namespaces())
