"""What may be asked of listing and search: arguments, checked and in one form."""

import os
from collections.abc import Collection, Iterable, Mapping

from perdure.catalog.passages import KINDS
from perdure.errors import InvalidValue
from perdure.model import values
from perdure.model.header import check_id

__all__ = [
    "STATUSES",
    "Names",
    "Scalar",
    "agents_of",
    "check_count",
    "folder_of",
    "ids_of",
    "kinds_of",
    "names_of",
    "pointers_of",
    "statuses_of",
    "truth_of",
]

STATUSES = ("running", "paused", "completed", "crashed", "interrupted", "damaged")

Names = str | Collection[str]
Scalar = str | int | float | bool | None


def check_count(name: str, given: object, most: int) -> None:
    """Demand a count from 1 to `most`.

    Raises:
        InvalidValue: it is none.

    """
    if type(given) is not int or not 1 <= given <= most:
        raise InvalidValue(name, f"{values.shown(given)} is not 1 to {most}")


def names_of(name: str, given: Names | None) -> Collection[str] | None:
    """One text or several, as a collection; None stays None.

    Raises:
        InvalidValue: it is none.

    """
    if given is None or isinstance(given, str):
        return None if given is None else [given]
    names = list(given) if isinstance(given, Iterable) else [None]
    if not all(isinstance(each, str) for each in names):
        raise InvalidValue(name, f"{values.shown(given)} is no text, and no list of texts")
    return [each for each in names if each is not None]


def ids_of(name: str, given: Names | None) -> Collection[str] | None:
    """As `names_of`, of ids that sessions can have.

    Raises:
        InvalidValue: it is none.

    """
    ids = names_of(name, given)
    for each in ids or ():
        check_id(each)
    return ids


def folder_of(given: str | None) -> str | None:
    """A folder by its absolute path, as sessions have it; a tilde is the home of whoever asks.

    Raises:
        InvalidValue: it is none.

    """
    if given is None:
        return None
    if not isinstance(given, str) or not given:
        raise InvalidValue("cwd", f"{values.shown(given)} is no folder", hint="/srv/net")
    return os.path.abspath(os.path.expanduser(given))  # noqa: PTH100, PTH111 - it may be gone


def statuses_of(given: Names | None) -> Collection[str] | None:
    """As `names_of`, of statuses.

    Raises:
        InvalidValue: it is none.

    """
    found = names_of("status", given)
    for each in found or ():
        if each not in STATUSES:
            raise InvalidValue("status", f"{values.shown(each)} is none", hint=", ".join(STATUSES))
    return found


def agents_of(given: str | Collection[str | None] | None) -> Collection[str | None] | None:
    """As `names_of`; None within is the agent without a name.

    Raises:
        InvalidValue: it is none.

    """
    if given is None or isinstance(given, str):
        return None if given is None else [given]
    agents = list(given) if isinstance(given, Iterable) else [3]
    if not all(isinstance(each, str | None) for each in agents):
        raise InvalidValue("agent", f"{values.shown(given)} is no name, and no list of names")
    return [each for each in agents if not isinstance(each, int)]


def truth_of(name: str, given: bool | None) -> bool | None:
    """True, False, or None where it does not matter.

    Raises:
        InvalidValue: it is none.

    """
    if given is not None and given.__class__ is not bool:
        raise InvalidValue(name, f"{values.shown(given)} is not True, False or None")
    return given


def kinds_of(given: Names | None) -> Collection[str] | None:
    """As `names_of`, of kinds of passages.

    Raises:
        InvalidValue: it is none.

    """
    kinds = names_of("kind", given)
    for each in kinds or ():
        if each not in KINDS:
            raise InvalidValue("kind", f"{values.shown(each)} is none", hint=", ".join(KINDS))
    return kinds


def pointers_of(given: Mapping[str, Scalar] | None) -> list[tuple[str, Scalar]]:
    """JSON pointers with their values.

    Raises:
        InvalidValue: it is none.

    """
    known: object = given
    if known is not None and not isinstance(known, Mapping):
        hint = '{"/goal/done": True}'
        raise InvalidValue("projection", f"{values.shown(given)} is no mapping", hint=hint)
    found = list((given or {}).items())
    for pointer, value in found:
        if not isinstance(pointer, str) or (pointer and not pointer.startswith("/")):
            hint = "a JSON pointer begins with /, as in /goal/done"
            raise InvalidValue("projection", f"{values.shown(pointer)} is none", hint=hint)
        if not isinstance(value, str | int | float | bool | None):
            raise InvalidValue("projection", f"{values.shown(value)} is no text, number or truth")
    return found
