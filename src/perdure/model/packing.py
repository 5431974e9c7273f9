"""Packed runs: neighbours that differ in one string, stored as one record.

Streamed text arrives in hundreds of events that are equal but for a few characters. Three or more
such neighbours of one commit become one record: the data of the first, the path to the string that
differs, the other strings and the differences of the times. It knows no vocabulary, and expansion
is exact.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from perdure.model.event import Draft
from perdure.model.limits import RUN_BYTES_MAX, RUN_EVENTS_MAX, RUN_EVENTS_MIN

__all__ = ["Path", "follow", "group", "replace"]

Path = tuple[str | int, ...]
"""Steps from the data to one of its strings: names of objects, indexes of arrays."""

_SAME: Path = ("\0same",)
"""Marker, compared by identity: no difference at all."""


def group(drafts: Sequence[Draft]) -> Iterator[tuple[Sequence[Draft], Path | None]]:
    """Split one commit into single events (path None) and runs (path to the string)."""
    start = 0
    while start < len(drafts):
        end, path = _extend(drafts, start)
        if end - start >= RUN_EVENTS_MIN and path is not None:
            yield drafts[start:end], path
            start = end
        else:
            yield drafts[start : start + 1], None
            start += 1


def _extend(drafts: Sequence[Draft], start: int) -> tuple[int, Path | None]:
    """How far the run that begins at `start` reaches, and along which path it differs."""
    first = drafts[start]
    if first.key is not None or first.ignorable:
        return start + 1, None
    spare = _first_string(first.value)
    if spare is None:
        # A run is told apart by a string; looking for the end of this one would be for nothing.
        return start + 1, None
    path: Path = _SAME
    size = len(first.raw)
    end = start + 1
    for candidate in drafts[start + 1 : start + RUN_EVENTS_MAX]:
        size += len(candidate.raw)
        if (
            size > RUN_BYTES_MAX
            or first.type != candidate.type
            or first.turn != candidate.turn
            or first.agent != candidate.agent
            or candidate.key is not None
            or candidate.ignorable
        ):
            break
        found = _difference(first.value, candidate.value)
        if found is None or (found is not _SAME and path is not _SAME and found != path):
            break
        if found is not _SAME:
            path = found
        end += 1
    return end, spare if path is _SAME else path


def _difference(a: Any, b: Any) -> Path | None:
    """`_SAME`, the path to the only string that differs, or None if more than that differs."""
    kind = type(a)
    if kind is not type(b):
        return None
    if kind is str:
        return _SAME if a == b else ()
    if kind is float:
        # -0.0 equals 0.0 but is not the same number.
        return _SAME if a == b and math.copysign(1, a) == math.copysign(1, b) else None
    if kind is not dict and kind is not list:
        return _SAME if a == b else None
    if len(a) != len(b):
        return None
    path: Path = _SAME
    steps = zip(a.items(), b.items(), strict=True) if kind is dict else zip(
        enumerate(a), enumerate(b), strict=True
    )  # fmt: skip
    for (step, left), (other, right) in steps:
        if step != other:
            # The same names in another order are another text.
            return None
        if left is right:
            continue
        if type(left) is str and type(right) is str:
            found: Path | None = _SAME if left == right else ()
        else:
            found = _difference(left, right)
        if found is None or (found is not _SAME and path is not _SAME):
            return None
        if found is not _SAME:
            path = (step, *found)
    return path


def _first_string(value: Any) -> Path | None:
    if type(value) is str:
        return ()
    steps = (
        value.items() if type(value) is dict else enumerate(value) if type(value) is list else ()
    )
    for step, item in steps:
        below = _first_string(item)
        if below is not None:
            return (step, *below)
    return None


def follow(value: Any, path: Path) -> Any:
    """What `path` leads to.

    Raises:
        LookupError, TypeError: the path does not fit the value.

    """
    for step in path:
        if isinstance(step, int):
            # Strings can be indexed too, and arrays from their end: neither is a path.
            if type(value) is not list or step < 0:
                raise LookupError(step)
        elif type(value) is not dict:
            raise LookupError(step)
        value = value[step]
    return value


def replace(value: Any, path: Path, string: str) -> Any:
    """A copy of `value` with the string at `path` replaced; what is beside the path is shared."""
    if not path:
        return string
    copy = value.copy()
    copy[path[0]] = replace(value[path[0]], path[1:], string)
    return copy
