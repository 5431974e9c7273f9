"""Packed runs: neighbours that differ in one string, stored as one record.

Streamed text arrives in hundreds of events that are equal but for a few characters. Three or more
such neighbours of one commit become one record: the data of the first, the path to the string that
differs, the other strings and the differences of the times. It knows no vocabulary, and expansion
is exact.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from perdure.model import values
from perdure.model.event import Draft
from perdure.model.limits import RUN_BYTES_MAX, RUN_EVENTS_MAX, RUN_EVENTS_MIN

__all__ = ["Path", "Run", "follow", "group", "replace"]

Path = tuple[str | int, ...]
"""Steps from the data to one of its strings: names of objects, indexes of arrays."""

_SAME: Path = ("\0same",)
"""Marker, compared by identity: no difference at all."""


class Run(NamedTuple):
    """What tells the events of a run apart.

    Attributes:
        path: where the string is that differs.
        more: the strings of all but the first.

    """

    path: Path
    more: list[str]


def group(drafts: Sequence[Draft]) -> Iterator[tuple[Sequence[Draft], Run | None]]:
    """Split one commit into single events (None) and runs."""
    start = 0
    while start < len(drafts):
        run = _run_from(drafts, start)
        if run is not None and len(run.more) + 1 >= RUN_EVENTS_MIN:
            end = start + 1 + len(run.more)
            yield drafts[start:end], run
            start = end
        else:
            yield drafts[start : start + 1], None
            start += 1


def _run_from(drafts: Sequence[Draft], start: int) -> Run | None:
    """The longest run that begins at `start`, perhaps a short one."""
    first = drafts[start]
    path: Path | None = None
    around = (b"", b"")
    more: list[str] = []
    for candidate in _alike(drafts, start):
        if path is None:
            path = _first_difference(first, _alike(drafts, start))
            if path is None:
                return None
            around = _around(first.value, path)
        string = _told(candidate, path, around)
        if string is None:
            break
        more.append(string)
    return None if path is None else Run(path, more)


def _alike(drafts: Sequence[Draft], start: int) -> Iterator[Draft]:
    """Those behind the one at `start` that are as it is but for data and time."""
    first = drafts[start]
    if first.key is not None or first.ignorable:
        return
    size = len(first.raw)
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
            return
        yield candidate


def _first_difference(first: Draft, behind: Iterator[Draft]) -> Path | None:
    """The path to the string in which the first of those behind differs that is not the same.

    If none is, or if it differs in more, any string does: the run is of those before it.
    """
    for candidate in behind:
        if candidate.raw != first.raw:
            found = _difference(first.value, candidate.value)
            if found is not None and found is not _SAME:
                return found
            break
    return _first_string(first.value)


def _around(value: Any, path: Path) -> tuple[bytes, bytes]:
    """The JSON text of a value before and behind the string at `path`."""
    # Longer than any that the value can hold, which may say so on purpose.
    mark = "\0" * (values.encode(value).count(b"\\u0000") + 1)
    before, behind = values.encode(replace(value, path, mark)).split(values.encode(mark))
    return before, behind


def _told(candidate: Draft, path: Path, around: tuple[bytes, bytes]) -> str | None:
    """The string at `path`, if it tells all of the data: its text is what expanding would give."""
    try:
        string = follow(candidate.value, path)
    except (LookupError, TypeError):
        return None
    before, behind = around
    if type(string) is str and candidate.raw == before + values.encode(string) + behind:
        return string
    return None


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
