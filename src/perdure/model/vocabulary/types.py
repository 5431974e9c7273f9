"""What event types mean: from a type to the class of its payload, and back to an event."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args, is_typeddict

import msgspec

from perdure.errors import InvalidValue
from perdure.model import values
from perdure.model.event import TYPE_PATTERN, Event
from perdure.model.vocabulary.payloads import PAYLOADS

__all__ = ["NATIVE", "Vocabulary", "converted", "fitting", "payload"]

_TYPE = re.compile(TYPE_PATTERN)
_OWNED = frozenset(kind.partition("/")[0] for kind in PAYLOADS)
"""Families of types that are the library's: a later version may add to them."""


class Vocabulary(Mapping[str, type]):
    """The classes of payloads by event type: those of "perdure/1" and your own.

    Immutable, so it can be a constant of a module and differ from one program part to the next;
    nothing is registered anywhere. A class is anything that `msgspec.convert` makes of JSON: a
    `msgspec.Struct`, dataclass, `TypedDict`, `NamedTuple` or attrs class. Types outside it are
    no error anywhere: the log keeps them, views that do not know them pass them by.
    """

    __slots__ = ("_shapes", "_types")

    def __init__(self, types: Mapping[str, type] | None = None) -> None:
        """The vocabulary "perdure/1" and `types`, as in `{"acme/deploy": Deploy}`.

        Raises:
            InvalidValue: not an event type, one of a family of perdure's own (`tool/…`), or a class
                that cannot be made of JSON.

        """
        own = dict(types or {})
        for kind, shape in own.items():
            _check(kind, shape)
        self._shapes: dict[str, type] = {**PAYLOADS, **own}
        self._types: dict[type, list[str]] = {}
        for kind, shape in self._shapes.items():
            self._types.setdefault(shape, []).append(kind)

    def __getitem__(self, type: str) -> type:  # noqa: A002
        """The class of a type.

        Raises:
            KeyError: it is outside the vocabulary.

        """
        return self._shapes[type]

    def __iter__(self) -> Iterator[str]:
        """The types, perdure's first."""
        return iter(self._shapes)

    def __len__(self) -> int:
        """How many types there are."""
        return len(self._shapes)

    def __repr__(self) -> str:
        """The types that are not perdure's."""
        return f"<Vocabulary perdure/1 and {[kind for kind in self if kind not in PAYLOADS]}>"

    def payload(self, event: Event) -> Any:
        """The typed payload of an event, or None for types outside the vocabulary.

        Raises:
            msgspec.ValidationError: the data does not have the members of its type.

        """
        shape = self._shapes.get(event.type)
        return None if shape is None else converted(event.data, shape)

    def fitting(self, event: Event) -> Any:
        """As `payload`, and None as well where the data does not fit: for views, which skip it."""
        try:
            return self.payload(event)
        except (msgspec.ValidationError, InvalidValue):
            return None

    def event(self, payload: Any, *, type: str | None = None) -> dict[str, Any]:  # noqa: A002
        """The `type` and `data` to append: `session.append(**vocabulary.event(Deploy("web")))`.

        Several events go to `append_many` as they are. `type` is needed where a class stands for
        several types, and where values do not know their class (a `TypedDict`, a list).

        Raises:
            InvalidValue: what it is stands for no type, or for several, or not for this one.

        """
        kinds = self._types.get(payload.__class__, [])
        if type is None and len(kinds) == 1:
            type = kinds[0]  # noqa: A001
        if type not in kinds and not self._is_unnamed(payload, type):
            name = payload.__class__.__qualname__
            raise InvalidValue(
                "type",
                f"{values.shown(type)} is no type of {name}",
                hint=f"one of {', '.join(kinds)}" if kinds else "name it when making Vocabulary",
            )
        return {"type": type, "data": msgspec.to_builtins(payload)}

    def _is_unnamed(self, payload: Any, kind: str | None) -> bool:
        """Whether values of this type are plain JSON to Python, and this is one."""
        shape = self._shapes.get(kind or "")
        if shape is None or (isinstance(shape, type) and not is_typeddict(shape)):
            return False
        try:
            converted(payload, shape)
        except msgspec.ValidationError:
            return False
        return True


def _check(kind: object, shape: Any) -> None:
    if not isinstance(kind, str) or _TYPE.match(kind) is None:
        raise InvalidValue("type", f"{values.shown(kind)} is not an event type")
    if kind.partition("/")[0] in _OWNED:
        raise InvalidValue(
            "type",
            f"{kind!r} belongs to perdure",
            hint="begin it with a name of your own, as in 'acme/deploy'",
        )
    try:
        known = not isinstance(msgspec.inspect.type_info(shape), msgspec.inspect.CustomType)
    except (TypeError, NameError, ValueError):
        known = False
    if not known:
        raise InvalidValue(
            "type",
            f"{values.shown(shape)} cannot be made of JSON",
            hint="a msgspec.Struct, a dataclass, a TypedDict, a NamedTuple or an attrs class",
        )


def converted(data: Any, shape: type) -> Any:
    """What `data` is as a `shape`; members that the shape does not have are left out.

    Raises:
        msgspec.ValidationError: it does not fit.

    """
    try:
        return msgspec.convert(data, shape)
    except UnicodeEncodeError:
        # Names of members are compared as UTF-8, for which lone surrogates have no form. No
        # class has a member of such a name, so they are some that readers do not know.
        pass
    try:
        return msgspec.convert(_without_unspeakable(data, shape), shape)
    except UnicodeEncodeError as error:
        raise msgspec.ValidationError(f"a name with a lone surrogate: {error}") from None


def _without_unspeakable(data: Any, shape: Any) -> Any:
    shape = next((each for each in get_args(shape) if _is_struct(each)), shape)
    if not isinstance(data, dict) or not isinstance(shape, type) or shape is dict:
        return data
    kept = {name: value for name, value in data.items() if values.text(name) == name}
    for field in msgspec.structs.fields(shape) if _is_struct(shape) else ():
        if field.encode_name in kept:
            kept[field.encode_name] = _without_unspeakable(kept[field.encode_name], field.type)
    return kept


def _is_struct(shape: Any) -> bool:
    return isinstance(shape, type) and issubclass(shape, msgspec.Struct)


NATIVE = Vocabulary()
"""The vocabulary "perdure/1" alone."""

payload = NATIVE.payload
fitting = NATIVE.fitting
