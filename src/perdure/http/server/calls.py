"""One request as a handler sees it: who asks, of which store, with what, checked already."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote

import msgspec

from perdure.conversations import Conversations
from perdure.errors import InvalidValue, SessionNotFound
from perdure.http.operations import Operation
from perdure.http.paths import id_of
from perdure.http.server.access import Who
from perdure.http.server.writers import Place, Writers
from perdure.http.wire.shapes import Query
from perdure.model import values
from perdure.model.showing import safe
from perdure.store import Store

__all__ = ["Call", "Encoded", "Stream", "body_of", "path_of", "query_of", "store_of"]

_PLACE = re.compile(r"(?P<reason>.*) - at `(?P<path>[^`]*)`", re.DOTALL)
_FIELDS_MAX = 200
_SHOWN_CHARS = 300
_DEPTH_MAX = 8
_NAMESPACE = "namespace"


class Encoded(NamedTuple):
    """JSON that is written already."""

    raw: bytes


class Stream(NamedTuple):
    """An answer in parts.

    Attributes:
        parts: made one by one, in threads.
        headers: besides those that every answer has.
        media: its kind, where that is not the operation's.

    """

    parts: Iterator[bytes]
    headers: Mapping[str, str] = {}
    media: str | None = None


class Call(NamedTuple):
    """A request.

    Attributes:
        operation: what is asked for.
        who: who asks.
        root: the root store.
        store: the store of the namespace that is meant.
        namespace: that namespace, from the root.
        path: what stands for the names in the path: ids and digests.
        query: the parameters.
        body: the JSON that was sent, or None.
        writers: the writers of the server.
        desk: all conversations.
        arriving: the bytes that were sent, for operations that take any.
        last_event: the header Last-Event-ID, or None.

    """

    operation: Operation
    who: Who
    root: Store
    store: Store
    namespace: tuple[str, ...]
    path: Mapping[str, str]
    query: Any
    body: Any
    writers: Writers
    desk: Conversations
    arriving: Iterator[bytes] | None = None
    last_event: str | None = None

    @property
    def session(self) -> str:
        """The id of the session that is meant."""
        return self.path["session"]

    @property
    def place(self) -> Place:
        """That session, for whoever writes it."""
        return Place(self.store, self.namespace, self.session)

    def parts(self) -> Iterator[bytes]:
        """What was sent, part by part; it has arrived already, so that no thread waits for it."""
        return iter(()) if self.arriving is None else self.arriving


def path_of(names: Mapping[str, str]) -> dict[str, str]:
    """What the segments of a path stand for; `names` has them as they were sent.

    Raises:
        InvalidValue: one of them stands for nothing.

    """
    found = {}
    for name, segment in names.items():
        try:
            plain = unquote(segment, errors="strict")
        except UnicodeDecodeError:
            raise InvalidValue(name, f"{values.shown(segment)} is no UTF-8") from None
        found[name] = id_of(plain)
    return found


def query_of(told: bytes, kind: type[Query]) -> tuple[Any, tuple[str, ...]]:
    """The parameters of a URL, and the namespace that they name.

    Raises:
        InvalidValue: one of them is not known, or cannot be.

    """
    try:
        pairs = parse_qsl(
            told.decode("ascii"),
            keep_blank_values=True,
            # Ids and namespaces may be any text, also what is no Unicode.
            errors="surrogatepass",
            max_num_fields=_FIELDS_MAX,
        )
    except ValueError as error:
        raise InvalidValue("query", f"the parameters cannot be read: {error}") from None
    many = _repeated(kind)
    given: dict[str, Any] = {}
    namespace: list[str] = []
    for name, value in pairs:
        if name == _NAMESPACE:
            namespace.append(value)
        elif name in many:
            given.setdefault(name, []).append(value)
        elif name in given:
            raise InvalidValue(_shown(name), "is given twice")
        else:
            given[name] = value
    for name, value in given.items():
        if isinstance(value, str) and value.casefold() == "null" and name not in _texts(kind):
            # What is not given is left out; a lenient reading would take this for that.
            raise InvalidValue(_shown(name), "null is no value")
    if len(namespace) > _DEPTH_MAX:
        raise InvalidValue(_NAMESPACE, f"more than {_DEPTH_MAX} levels")
    return _converted(given, kind, strict=False), tuple(namespace)


@cache
def _repeated(kind: type[Query]) -> frozenset[str]:
    """The parameters that may be given more than once."""
    fields = msgspec.structs.fields(kind)
    return frozenset(each.name for each in fields if isinstance(each.default, tuple))


@cache
def _texts(kind: type[Query]) -> frozenset[str]:
    """The parameters that may be any text."""
    found = set()
    for each in msgspec.structs.fields(kind):
        try:
            msgspec.convert("any text", each.type)
        except msgspec.ValidationError:
            continue
        found.add(each.name)
    return frozenset(found)


def body_of(raw: bytes, kind: Any) -> Any:
    """The JSON that was sent, checked.

    Raises:
        InvalidValue: it is none, or not what is asked for.

    """
    try:
        # Not msgspec alone: lone surrogates are to come through as they are.
        told = values.decode(raw)
    except ValueError as error:
        raise InvalidValue("body", f"is no JSON: {error}") from None
    return _converted(told, kind, strict=True)


def _shown(text: str) -> str:
    """What was sent, in a message: cut, and nothing in it that a terminal obeys."""
    return safe(text[:_SHOWN_CHARS])


def _converted(told: Any, kind: Any, *, strict: bool) -> Any:
    try:
        return msgspec.convert(told, kind, strict=strict)
    except msgspec.ValidationError as error:
        found = _PLACE.fullmatch(str(error))
        path = "" if found is None else found["path"].removeprefix("$").removeprefix(".")
        reason = str(error) if found is None else found["reason"]
        hint = "GET /api/openapi.json has the types"
        raise InvalidValue(_shown(path) or "request", _shown(reason), hint=hint) from None
    except UnicodeEncodeError:
        raise InvalidValue("request", "holds what is no Unicode where that cannot be") from None
    except RecursionError:
        raise InvalidValue("request", "nested too deeply") from None


def store_of(root: Store, namespace: tuple[str, ...], operation: Operation, who: Who) -> Store:
    """The store of a namespace; one in which nothing was stored is not made by asking.

    Raises:
        SessionNotFound: there is nothing in it, and nothing is to be created.

    """
    store = root
    free = 0 if who.principal is None else 2
    for depth, part in enumerate(namespace):
        # A principal's own may be empty; what is below it has to be there.
        if depth >= free and not operation.creates and part not in store.namespaces():
            raise SessionNotFound(part)
        store = store.namespace(part)
    return store
