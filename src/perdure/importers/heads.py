"""What is read of the first records of a source in every format: times, and its lens's facts."""

from collections.abc import Iterable, Sequence
from typing import Any

from perdure.errors import InvalidValue
from perdure.importers.formats import LineFormat
from perdure.lenses import SourceFacts, lens_of
from perdure.model import values
from perdure.model.event import Event
from perdure.model.limits import TIME_MS_MAX

__all__ = ["created", "facts_of", "milliseconds"]


def milliseconds(value: object, unit: int = 1) -> int | None:
    """Unix milliseconds of a number of units of so many milliseconds, or None; True is none."""
    if type(value) is not int and type(value) is not float:
        return None
    # NaN is in no range, and infinity beyond each.
    if not -TIME_MS_MAX <= value * unit <= TIME_MS_MAX:
        return None
    return int(value * unit)


def created(times: Iterable[int | None]) -> int | None:
    """The earliest time that a session can be created at, or None."""
    return min((time for time in times if time is not None and time >= 0), default=None)


def facts_of(format: LineFormat, head: Sequence[dict[str, Any]]) -> SourceFacts:  # noqa: A002
    """What the lens of a format learns from these records, as if they were stored."""
    lens = lens_of(format.name)
    if lens is None:
        return SourceFacts()
    now = 0
    for seq, record in enumerate(head):
        _, time = format.record(record)
        now = now if time is None else time
        try:
            line = values.encode(values.snapshot(record)).decode()
        except InvalidValue:
            # What nothing can hold tells nothing.
            continue
        stored = values.encode(line)
        kind = f"{format.name}/record"
        for _ in lens.read(Event(seq, kind, now, None, None, None, False, stored)):
            pass
    return lens.facts
