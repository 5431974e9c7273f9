"""The views of a store: those that every session has, and a user's own."""

import re
from collections.abc import Collection, Sequence

from perdure.errors import InvalidValue
from perdure.model import values
from perdure.views.builtin import BUILTIN
from perdure.views.view import View

__all__ = ["check_view", "views_of"]

_NAME = re.compile("[a-z0-9-]{1,64}")


def views_of(own: Sequence[View]) -> tuple[View, ...]:
    """All views of a store: those that every session has, and a user's own.

    Raises:
        InvalidValue: one is no view, or its name or version cannot be, or two have the same name.

    """
    if not isinstance(own, list | tuple):
        raise InvalidValue("views", f"{values.shown(own)} is no list of views", hint="[MyView()]")
    given: Sequence[object] = own
    taken = {view.name for view in BUILTIN}
    for number, view in enumerate(given):
        path = f"views[{number}]"
        if not isinstance(view, View):
            hint = "give an object, not its class: MyView()" if isinstance(view, type) else ""
            raise InvalidValue(path, f"{values.shown(view)} is no view", hint=hint)
        check_view(view, path, taken)
        taken.add(view.name)
    return (*BUILTIN, *own)


def check_view(view: View, path: str, taken: Collection[str]) -> None:
    """Demand a name that is not taken, a version and types; `path` says whose they are.

    Raises:
        InvalidValue: one of them cannot be.

    """
    name, version = getattr(view, "name", None), getattr(view, "version", None)
    types = getattr(view, "types", None)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        hint = "1 to 64 lower-case letters, digits and hyphens"
        raise InvalidValue(f"{path}.name", f"{values.shown(name)} is no name", hint=hint)
    if version.__class__ is not int:
        raise InvalidValue(f"{path}.version", f"{values.shown(version)} is no integer")
    if not isinstance(types, frozenset) or not all(isinstance(kind, str) for kind in types):
        raise InvalidValue(f"{path}.types", f"{values.shown(types)} is no frozenset of types")
    if name in taken:
        raise InvalidValue(f"{path}.name", f"{name!r} is taken", hint="choose another name")
