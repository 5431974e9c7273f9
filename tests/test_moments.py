"""Moments as people give them: dates, times with and without a zone, so long ago, milliseconds."""

import datetime as dt
import decimal
import enum
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perdure.errors import InvalidValue
from perdure.model.limits import TIME_MS_MAX
from perdure.store.moments import moment_of
from perdure.testing.strategies import json_values, texts
from tests.support import scaled

NOW = 1_900_000_000_000
NOON = 1_796_040_000_000
"""2026-11-30T12:00Z."""
HOUR_MS = 3_600_000
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

UTC, INDIA, BERLIN = "UTC0", "IST-5:30", "CET-1CEST,M3.5.0,M10.5.0/3"


@contextmanager
def zone(name: str) -> Iterator[None]:
    """Let this machine be somewhere else for a while; the name says all of its rules."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", name)
        time.tzset()
        try:
            yield
        finally:
            patch.undo()
            time.tzset()


def naive(written: str) -> dt.datetime:
    """A time without a zone."""
    return dt.datetime.fromisoformat(written)


def moment(value: Any) -> int | None:
    return moment_of("since", value, NOW)


def exact(moment: dt.datetime) -> int:
    """Whole milliseconds of a time that has a zone, without a float."""
    return (moment - EPOCH) // dt.timedelta(milliseconds=1)


def test_no_moment_is_none() -> None:
    """Where nothing is given there is no moment."""
    assert moment(None) is None


# --- dates and times ------------------------------------------------------------------------------


@pytest.mark.parametrize(("where", "ahead"), [(UTC, 0.0), (INDIA, 5.5), (BERLIN, 1.0)])
def test_a_date_is_its_first_moment_here(where: str, ahead: float) -> None:
    """A date, as such or as text, begins at midnight of this machine."""
    midnight = NOON - 12 * HOUR_MS - int(ahead * HOUR_MS)
    with zone(where):
        for each in ("2026-11-30", " 2026-11-30\n", dt.date(2026, 11, 30)):
            assert moment(each) == midnight


@pytest.mark.parametrize(("where", "ahead"), [(UTC, 0.0), (INDIA, 5.5), (BERLIN, 1.0)])
def test_a_time_without_a_zone_is_local(where: str, ahead: float) -> None:
    """What names no zone is a time of this machine."""
    wanted = NOON - int(ahead * HOUR_MS)
    with zone(where):
        for each in (
            "2026-11-30T12:00",
            "2026-11-30 12:00:00.000",
            naive("2026-11-30T12:00"),
        ):
            assert moment(each) == wanted


@pytest.mark.parametrize("where", [UTC, INDIA, BERLIN])
def test_a_time_with_a_zone_is_the_same_everywhere(where: str) -> None:
    """What names its zone is that moment, wherever this machine is."""
    there = dt.timezone(dt.timedelta(hours=-8))
    with zone(where):
        for each in (
            "2026-11-30T12:00Z",
            "2026-11-30T12:00:00+00:00",
            "2026-11-30T04:00-08:00",
            dt.datetime(2026, 11, 30, 12, tzinfo=dt.UTC),
            dt.datetime(2026, 11, 30, 4, tzinfo=there),
        ):
            assert moment(each) == NOON


def test_summer_time_counts() -> None:
    """A local time is taken with the offset of its day; one that the clock skips is near it."""
    with zone(BERLIN):
        winter, summer = moment("2026-03-28T12:00"), moment("2026-03-29T12:00")
        assert winter is not None
        assert summer == winter + 23 * HOUR_MS
        skipped = moment("2026-03-29T02:30")
        assert skipped is not None
        assert winter + 13 * HOUR_MS < skipped < winter + 16 * HOUR_MS
        first = naive("2026-10-25T02:30")
        second = first.replace(fold=1)
        assert moment(second) == exact(first.replace(tzinfo=dt.UTC)) - HOUR_MS
        assert moment(first) == exact(first.replace(tzinfo=dt.UTC)) - 2 * HOUR_MS


WITH_ZONE = st.datetimes(timezones=st.just(dt.UTC) | st.just(dt.timezone(dt.timedelta(hours=9))))


@settings(max_examples=scaled(5000))
@given(WITH_ZONE, st.booleans())
@example(dt.datetime(2004, 3, 12, 17, 34, 3, 41_000, tzinfo=dt.UTC), False)
@example(dt.datetime(2038, 10, 7, 7, 12, 20, 226_000, tzinfo=dt.UTC), True)
@example(dt.datetime(1969, 12, 31, 23, 59, 57, 998_000, tzinfo=dt.UTC), False)
@example(dt.datetime.max.replace(tzinfo=dt.UTC), False)
@example(dt.datetime.min.replace(tzinfo=dt.UTC), True)
def test_milliseconds_are_exact(when: dt.datetime, written: bool) -> None:
    """A time of whole milliseconds is that many, before 1970 as well as after it."""
    when = when.replace(microsecond=when.microsecond // 1000 * 1000)
    assert moment(when.isoformat() if written else when) == exact(when)


@settings(max_examples=scaled(2000))
@given(st.datetimes(naive("1900-01-01"), naive("2200-01-01")))
@example(naive("2004-03-12T23:04:03.041"))
def test_local_milliseconds_are_exact(when: dt.datetime) -> None:
    """A local time of whole milliseconds is that many away from the same time in its zone."""
    when = when.replace(microsecond=when.microsecond // 1000 * 1000)
    with zone(INDIA):
        assert moment(when) == exact(when.replace(tzinfo=dt.UTC)) - HOUR_MS * 11 // 2


@settings(max_examples=scaled(2000))
@given(WITH_ZONE)
def test_smaller_parts_are_cut(when: dt.datetime) -> None:
    """A time between two milliseconds is one of the two."""
    found = moment(when)
    assert found is not None
    assert abs(dt.timedelta(milliseconds=found) - (when - EPOCH)) < dt.timedelta(milliseconds=1)


@settings(max_examples=scaled(1000))
@given(st.datetimes() | st.dates())
@example(naive("0001-01-01"))
@example(naive("9999-12-31T23:59:59.999999"))
@example(dt.date.min)
@example(dt.date.max)
def test_any_local_time_is_a_moment_or_refused(when: dt.date) -> None:
    """Where the system knows no such local time it is refused, as anything else."""
    for where in (UTC, INDIA, "ABC11"):
        with zone(where):
            try:
                found = moment(when)
            except InvalidValue:
                found = None
            if 1900 <= when.year <= 9000:
                assert found is not None
            assert found is None or abs(found) < TIME_MS_MAX


# --- so long ago ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "ago"),
    [
        ("90m", 90 * 60_000),
        ("12h", 12 * HOUR_MS),
        ("3d", 72 * HOUR_MS),
        ("2w", 14 * 24 * HOUR_MS),
        (" 3 d ", 72 * HOUR_MS),
        ("0m", 0),
        ("007d", 7 * 24 * HOUR_MS),
    ],
)
def test_ago_is_counted_from_now(said: str, ago: int) -> None:
    """So many minutes, hours, days or weeks ago are before the moment that is given as now."""
    assert moment(said) == NOW - ago
    assert moment_of("until", said, 0) == -ago


@settings(max_examples=scaled(1000))
@given(st.integers(0, 10**12), st.sampled_from("mhdw"), st.sampled_from((0, NOW, TIME_MS_MAX)))
@example(999_999_999, "w", 0)
def test_no_time_is_longer_ago_than_times_go(count: int, unit: str, now: int) -> None:
    """What is longer ago than any event can be is refused, or as long ago as can be."""
    try:
        found = moment_of("since", f"{count}{unit}", now)
    except InvalidValue:
        return
    assert found is not None
    assert -TIME_MS_MAX <= found <= now


# --- milliseconds ---------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 1, -1, NOW, TIME_MS_MAX, -TIME_MS_MAX])
def test_whole_numbers_are_milliseconds(number: int) -> None:
    """A whole number within the bounds of times is taken as it is."""
    assert moment(number) == number


# --- what is none ---------------------------------------------------------------------------------


class Number(enum.IntEnum):
    """A whole number, and something else besides."""

    ONE = 1


class Shy:
    """Does not even say what it is."""

    def __repr__(self) -> NoReturn:
        """Fail."""
        raise RuntimeError("nobody's business")


REFUSED: list[Any] = [
    *(TIME_MS_MAX + 1, -TIME_MS_MAX - 1, 10**30, -(10**400)),
    *(True, False, 1.5, float("nan"), float("inf"), decimal.Decimal(5), 1j, Number.ONE),
    *("", " ", "soon", "now", "3 years", "3", "d", "-3d", "3D", "3 d ago", "1.5h", "1_0d"),
    *("٣d", "1234567890d", "2026", "2026-13-01", "2026-02-30", "2026-11-30T25:00", "T12:00"),
    *("19000000000000000", "0", "\0", "\ud800", "\ud83d" * 50, "x" * 100_000, "12:00"),
    *(
        b"2026-11-30",
        [],
        {},
        [2026, 11, 30],
        object(),
        dt.time(12),
        dt.timedelta(1),
        dt.date,
        Shy(),
    ),
]


@pytest.mark.parametrize("value", REFUSED, ids=lambda value: type(value).__name__)
def test_what_is_no_moment_is_refused(value: Any) -> None:
    """Anything else is refused by name, with a hint at what is one."""
    with pytest.raises(InvalidValue) as caught:
        moment_of("until", value, NOW)
    error = caught.value
    assert error.path == "until"
    assert "2026-11-30" in error.hint
    assert len(str(error)) < 500
    str(error).encode()


@settings(max_examples=scaled(5000))
@given(
    texts(max_size=None)
    | json_values()
    | st.from_regex(r"[0-9]{0,6}[-:TWZ mhdw0-9.+]{0,14}", fullmatch=True)
)
def test_anything_is_a_moment_or_refused(value: Any) -> None:
    """Whatever is given, either a moment comes out or the one error."""
    with zone(UTC):
        try:
            found = moment(value)
        except InvalidValue as error:
            str(error).encode()
        else:
            assert (found is None) == (value is None)
            assert found is None or abs(found) <= TIME_MS_MAX
