"""The table of exit codes."""

import pytest

from perdure import errors
from perdure.cli.exits import EXIT_CODES, Exit, exit_code


def classes() -> set[type[errors.PerdureError]]:
    return {getattr(errors, name) for name in errors.__all__}


def test_every_error_has_an_exit_code() -> None:
    """The table names every class of the error tree and no other."""
    assert set(EXIT_CODES) == classes()


def test_exit_codes_are_the_documented_ones() -> None:
    """The numbers that scripts rely on do not change."""
    assert {code.name: int(code) for code in Exit} == {
        "OK": 0,
        "FAILED": 1,
        "USAGE": 2,
        "DAMAGE": 3,
        "BUSY": 4,
        "NOT_FOUND": 5,
        "INTERRUPTED": 130,
        "PIPE_CLOSED": 141,
    }


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.SessionNotFound("s"), 5),
        (errors.SessionBusy("s"), 4),
        (errors.SessionDamaged("s", "torn"), 3),
        (errors.InvalidValue("id", "empty"), 2),
        (errors.StorageFull("f", "full"), 1),
    ],
)
def test_errors_end_with_their_code(error: errors.PerdureError, code: int) -> None:
    """What a script can act on has a code of its own."""
    assert exit_code(error) == code


def test_errors_from_elsewhere_count_as_their_ancestor() -> None:
    """A class that a backend adds ends as what it descends from."""

    class QuotaError(errors.SessionDamaged):
        pass

    assert exit_code(QuotaError("s", "x")) == Exit.DAMAGE
