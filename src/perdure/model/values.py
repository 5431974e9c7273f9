"""The lossless JSON boundary: what may be stored, and its exact bytes.

`snapshot` copies a caller's value while checking it, so that a later mutation changes nothing;
`encode` and `decode` turn it into bytes and back without loss. msgspec does the work; what it
cannot carry (lone surrogates) takes a second path, and what it would change in silence (NaN,
bytes, sets, foreign keys) is refused by `snapshot` with the path to the offender.
"""

import gc
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import msgspec

from perdure.errors import InvalidValue
from perdure.model.limits import DEPTH_MAX, INTEGER_BITS_MAX

__all__ = [
    "canonical",
    "check_text",
    "decode",
    "encode",
    "shown",
    "snapshot",
    "text",
    "uncollected",
]

_encoder = msgspec.json.Encoder()
_sorted = msgspec.json.Encoder(order="sorted")
_decoder = msgspec.json.Decoder()
_FLAT = (str, bool, type(None))
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
"""A surrogate pair as two code points: JSON has no form for it other than the one character."""


class _RefusedError(Exception):
    """Carries the reason up while each level adds its step to the path."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint
        self.steps: list[str | int] = []


def snapshot(value: Any, path: str = "data") -> Any:
    """Copy `value`, keeping only what JSON carries without loss.

    Accepted: None, bool, int, finite float, str, list, tuple (kept as an array) and dict with str
    keys, exact types only, at most 200 levels deep.

    Raises:
        InvalidValue: anything else, with the path to it, as in `data.items[3].score`.

    """
    try:
        return _copy(value, 0)
    except _RefusedError as refused:
        where = path + "".join(
            f"[{step}]" if isinstance(step, int) else f".{step}" for step in reversed(refused.steps)
        )
        where = text(where if len(where) <= 300 else where[:150] + "…" + where[-150:])
        raise InvalidValue(where, refused.reason, hint=refused.hint) from None
    except RecursionError:
        raise InvalidValue(path, "nested too deeply for the stack that is left") from None


def _copy(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind in _FLAT:
        return value
    if kind is dict:
        return _copy_object(value, depth)
    if kind is list or kind is tuple:
        if depth >= DEPTH_MAX:
            _refuse_depth(value)
        items = list(value)
        for index, item in enumerate(items):
            if type(item) not in _FLAT:
                try:
                    items[index] = _copy(item, depth + 1)
                except _RefusedError as refused:
                    refused.steps.append(index)
                    raise
        return items
    if kind is int:
        if value.bit_length() > INTEGER_BITS_MAX:
            raise _RefusedError(f"integer of {value.bit_length()} bits", "keep it as a string")
        return value
    if kind is float:
        if value - value != 0.0:
            raise _RefusedError(f"{value} is not JSON", "keep it as a string or null")
        return value
    raise _RefusedError(
        f"{kind.__module__}.{kind.__qualname__} is not JSON",
        "convert it to null, bool, int, float, str, list or dict first",
    )


def _copy_object(value: dict[Any, Any], depth: int) -> dict[str, Any]:
    if depth >= DEPTH_MAX:
        _refuse_depth(value)
    # The copy is one step of the interpreter: another thread cannot change it while it is walked.
    items = value.copy()
    for name, item in items.items():
        if type(name) is not str:
            raise _RefusedError(
                f"key {shown(name)} is a {type(name).__qualname__}", "keys of objects are strings"
            )
        if type(item) not in _FLAT:
            try:
                items[name] = _copy(item, depth + 1)
            except _RefusedError as refused:
                refused.steps.append(name)
                raise
    return items


def _refuse_depth(value: Any) -> NoReturn:
    # Only now is it worth finding out whether the depth is real or a cycle.
    raise _RefusedError(
        "refers to itself (a cycle)" if _cyclic(value) else f"nested deeper than {DEPTH_MAX} levels"
    )


def _cyclic(value: Any) -> bool:
    seen: set[int] = set()
    stack: list[Any] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict | list | tuple):
            if item is value and seen:
                return True
            if id(item) not in seen:
                seen.add(id(item))
                stack.extend(item.values() if isinstance(item, dict) else item)
    return False


def check_text(path: str, string: str) -> None:
    """Refuse a string that would come back as another one.

    Raises:
        InvalidValue: it holds a surrogate pair as two code points.

    """
    if not string.isascii() and _PAIR.search(string):
        raise InvalidValue(
            path,
            "holds a surrogate pair as two code points",
            hint="join them: s.encode('utf-16', 'surrogatepass').decode('utf-16')",
        )


def shown(value: object) -> str:
    """A value in a message: cut, and whatever its own `repr` does."""
    try:
        return text(f"{value!r:.80}")
    except Exception:  # noqa: BLE001 - a message about a bad value must not fail because of it
        return f"a {type(value).__qualname__}"


def encode(value: Any, path: str = "data") -> bytes:
    """JSON text of a snapshot, UTF-8, no spaces, keys in the order given.

    Raises:
        InvalidValue: a string in it holds a surrogate pair as two code points.

    """
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        # UTF-8 has no form for lone surrogates, JSON has: "\ud83d". The error handler of that
        # name writes exactly this escape.
        plain = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        check_text(path, plain)
        return plain.encode("utf-8", "backslashreplace")


def decode(raw: bytes | msgspec.Raw) -> Any:
    """The value of a JSON text, exact for big integers and lone surrogates.

    Raises:
        ValueError: not JSON, not UTF-8, or nested beyond what can be read.

    """
    try:
        return _decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        # msgspec reads neither lone surrogates nor a few thousand levels; its message is no
        # evidence of what is wrong, so the standard library decides.
        pass
    try:
        return json.loads(bytes(raw).decode("utf-8"), parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep the collector off while much is decoded: none of it is garbage, and it would look."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def canonical(value: Any) -> bytes:
    """Bytes that are equal exactly when two snapshots are the same JSON value, key order aside."""
    try:
        return _sorted.encode(value)
    except UnicodeEncodeError:
        plain = json.dumps(value, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
        return plain.encode("ascii")


def text(value: str) -> str:
    """`value` with lone surrogates shown as U+FFFD: safe for every output and every other store."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value
