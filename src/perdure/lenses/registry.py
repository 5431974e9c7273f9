"""Which lens reads a format: perdure's own, and those that other packages bring."""

import re
from collections.abc import Callable, Container
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from perdure.errors import InvalidValue
from perdure.lenses.lens import Kinds, Lens, SourceFacts
from perdure.model import values

__all__ = [
    "ENTRY_POINTS",
    "LENSES",
    "RESERVED",
    "PlugIns",
    "broken_lenses",
    "lens_of",
    "told",
]

ENTRY_POINTS = "perdure.lenses"
"""The group of entry points in which another package names a format and its class."""

LENSES: dict[str, tuple[str, str]] = {
    "claude-code": ("perdure.lenses.claude_code", "ClaudeCode"),
    "codex": ("perdure.lenses.codex", "Codex"),
    "deepseek-harness": ("perdure.lenses.deepseek_harness", "DeepseekHarness"),
}
"""Name of a format to its module and class, imported when it is first asked for."""

RESERVED = frozenset(
    {
        *("session", "source", "turn", "step", "tool", "user", "assistant", "context", "state"),
        *("trigger", "channel", "job", "subagent", "effect", "usage", "artifact", "content"),
        *("request", "perdure"),
    }
)
"""No format has such a name: types of perdure's own events begin so."""

_NAME = re.compile(r"[a-z][a-z0-9._-]{0,63}")
_SAID_CHARS_MAX = 300

T = TypeVar("T")


class PlugIns(Generic[T]):
    """What other packages bring in one group of entry points.

    The entry points are looked up once in a process, and each is loaded once, when it is asked for.
    One that is broken stands for nothing and stops no other.
    """

    def __init__(
        self, group: str, own: Container[str], check: Callable[[str, str, object], T]
    ) -> None:
        """Nothing is looked up yet.

        `own` are the names that are not for others. `check` is given the name, the package and what
        the entry point holds; what it raises says what is wrong with that.
        """
        self._group = group
        self._own = own
        self._check = check
        self._points: dict[str, list[EntryPoint]] | None = None
        self._loaded: dict[str, T | InvalidValue] = {}

    def names(self) -> list[str]:
        """The names of those that are intact, sorted; loads all."""
        return sorted(name for name in self._found() if self.get(name) is not None)

    def get(self, name: str) -> T | None:
        """What stands for a name; None: nothing does, or it is broken."""
        loaded = self._load(name)
        return None if isinstance(loaded, InvalidValue) else loaded

    def wrong(self, name: str) -> InvalidValue | None:
        """What is wrong with the entry point of a name; None: nothing, or there is none."""
        loaded = self._load(name)
        return loaded if isinstance(loaded, InvalidValue) else None

    def broken(self) -> list[InvalidValue]:
        """What is wrong with those that are broken, in the order of their names; loads all."""
        found = (self.wrong(name) for name in sorted(self._found()))
        return [wrong for wrong in found if wrong is not None]

    def forget(self) -> None:
        """Look everything up again: packages came or went."""
        self._points = None
        self._loaded.clear()

    def _found(self) -> dict[str, list[EntryPoint]]:
        if self._points is None:
            points: dict[str, list[EntryPoint]] = {}
            for point in entry_points(group=self._group):
                # One package may be found twice on the path.
                if point not in points.setdefault(point.name, []):
                    points[point.name].append(point)
            self._points = points
        return self._points

    def _load(self, name: str) -> T | InvalidValue | None:
        points = self._found().get(name)
        if points is None:
            return None
        if name not in self._loaded:
            self._loaded[name] = self._made(name, points)
        return self._loaded[name]

    def _made(self, name: str, points: list[EntryPoint]) -> T | InvalidValue:
        packages = " and ".join(sorted({_package(point) for point in points}))
        try:
            _check_name(name, self._own)
            if len(points) > 1:
                raise ValueError("there is more than one of that name")
            return self._check(name, packages, points[0].load())
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a package may hold anything
            reason = f"{values.shown(name)} of the package {packages} cannot be used: {told(error)}"
            wrong = InvalidValue(self._group, reason, hint="update that package, or remove it")
            wrong.__cause__ = error
            return wrong


def told(error: BaseException) -> str:
    """What an error of foreign code says, whatever that is."""
    try:
        said = str(error)
    except (Exception, SystemExit):  # noqa: BLE001 - an error must be told whatever it is
        said = ""
    return values.text(f"{type(error).__name__}: {said}"[:_SAID_CHARS_MAX])


def _check_name(name: str, own: Container[str]) -> None:
    if name in own:
        raise ValueError("perdure reads what is called that itself")
    if name in RESERVED:
        raise ValueError("types of perdure's own events begin with that name")
    if _NAME.fullmatch(name) is None:
        raise ValueError("a name has lower-case letters, digits and . _ - behind a letter")


def _package(point: EntryPoint) -> str:
    return point.value if point.dist is None else values.text(point.dist.name)


def _checked(name: str, _package: str, kind: object) -> type[Lens]:
    """The class of a lens.

    Raises:
        Exception: it is none, or cannot be made.

    """
    if not (isinstance(kind, type) and issubclass(kind, Lens)):
        raise TypeError(f"{values.shown(kind)} is no subclass of perdure.lenses.Lens")
    if kind.name != name:
        raise ValueError(f"its lens is called {values.shown(kind.name)}")
    if type(kind.version) is not int:
        raise TypeError(f"the version of its lens is {values.shown(kind.version)}, not an integer")
    lens = kind()
    counted = all(type(each) is Kinds for each in (lens.understood, lens.raw))
    if not (isinstance(lens.facts, SourceFacts) and counted and lens.told == lens.missed == 0):
        raise TypeError("its lens does not begin as Lens.__init__ does")
    return kind


_others = PlugIns(ENTRY_POINTS, LENSES, _checked)


def lens_of(format: str) -> Lens | None:  # noqa: A002
    """A new lens for a session of this format; None if nobody reads it, or its lens is broken."""
    if format in LENSES:
        module, name = LENSES[format]
        own: type[Lens] = getattr(import_module(module), name)
        return own()
    kind = _others.get(format)
    if kind is None:
        return None
    try:
        return kind()
    except (Exception, SystemExit):  # noqa: BLE001 - it may be anybody's
        return None


def broken_lenses() -> list[InvalidValue]:
    """What is wrong with lenses of other packages that cannot be used; loads all."""
    return _others.broken()
