"""Moments as people give them: in their own time zone, or as so long ago."""

import datetime as dt
import re

from perdure.errors import InvalidValue
from perdure.model import values
from perdure.model.limits import TIME_MS_MAX

__all__ = ["moment_of"]

_AGO = re.compile(r"([0-9]{1,9})\s*(m|h|d|w)")
_DIGITS = re.compile(r"-?[0-9]{9,16}")
"""No date is written so."""

_MS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_HINT = (
    "2026-11-30, 2026-11-30T14:05, today, yesterday, so long ago as 90m, 12h, 3d, 2w, or Unix ms"
)


def moment_of(name: str, value: int | str | dt.datetime | dt.date | None, now: int) -> int | None:
    """Unix milliseconds of a moment; `now` is those of this one.

    A date is its first moment; what names no zone is in the zone of this machine.

    Raises:
        InvalidValue: it is none.

    """
    if value is None:
        return None
    try:
        if value.__class__ is int:
            return _whole(name, value)
        if isinstance(value, str):
            if _DIGITS.fullmatch(value.strip()):
                return _whole(name, int(value))
            days = {"today": 0, "yesterday": 1}.get(value.strip())
            if days is not None:
                midnight = dt.datetime.combine(_local(now).date(), dt.time.min)
                value = midnight - dt.timedelta(days=days)
                return _whole(name, int(value.timestamp()) * 1000)
            ago = _AGO.fullmatch(value.strip())
            if ago is not None:
                return _whole(name, now - int(ago[1]) * _MS[ago[2]])
            value = dt.datetime.fromisoformat(value.strip())
        elif not isinstance(value, dt.datetime):
            value = dt.datetime.combine(_date(value), dt.time.min)
        # One without a zone is taken as local time.
        seconds = int(value.replace(microsecond=0).timestamp())
        return _whole(name, seconds * 1000 + value.microsecond // 1000)
    except (ValueError, TypeError, OverflowError, OSError) as error:
        raise InvalidValue(name, f"{values.shown(value)} is no moment", hint=_HINT) from error


def _local(now: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(now / 1000)  # noqa: DTZ006 - of this machine


def _date(value: object) -> dt.date:
    if not isinstance(value, dt.date):
        raise TypeError
    return value


def _whole(name: str, value: object) -> int:
    if not isinstance(value, int) or abs(value) > TIME_MS_MAX:
        raise InvalidValue(name, f"{values.shown(value)} is no moment", hint=_HINT)
    return value
