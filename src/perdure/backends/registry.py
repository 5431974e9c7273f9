"""From a path or URL to a backend, imported when it is first asked for."""

import os
import re
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from perdure.backends.base import Backend
from perdure.databases.forks import undivided
from perdure.errors import InvalidValue
from perdure.runtime import SYSTEM, Runtime

__all__ = ["ENTRY_POINTS", "SCHEMES", "open_backend"]

ENTRY_POINTS = "perdure.backends"
"""Group of the entry points by which other packages register: a scheme, and `module:Class`."""

_URL = re.compile("[A-Za-z][A-Za-z0-9+.-]*://")

BUNDLE_SUFFIX = ".perdure"
"""A plain path that ends so names a bundle."""

SCHEMES: dict[str, tuple[str, str]] = {
    "bundle": ("perdure.backends.sqlite", "BundleBackend"),
    "dir": ("perdure.backends.directory", "DirectoryBackend"),
    "memory": ("perdure.backends.memory", "MemoryBackend"),
    "none": ("perdure.backends.null", "NullBackend"),
    "postgres": ("perdure.backends.postgres", "PostgresBackend"),
    "postgresql": ("perdure.backends.postgres", "PostgresBackend"),
    "sqlite": ("perdure.backends.sqlite", "SqliteBackend"),
}
"""Scheme to module and class. A plain path means `dir`."""


def open_backend(
    location: str | os.PathLike[str], *, runtime: Runtime = SYSTEM, **options: Any
) -> Backend:
    """The backend that `location` names. Nothing is created before the first write.

    `location` is a path (`~` is expanded), `dir:PATH`, `sqlite:///PATH`, `bundle:PATH`, `memory:`,
    `none:`, or the scheme of a backend that another package registers. A plain path names a folder,
    or a bundle if it ends in `.perdure`.

    Raises:
        InvalidValue: no backend has that scheme, it cannot be loaded, or the path is empty.

    """
    text = _text_of(location)
    if "://" in text and not text.partition("://")[0].isalnum() and _URL.match(text):
        # No folder is meant; and what stands in it may be a password.
        scheme = text.partition(":")[0]
        hint = "write postgresql://…" if scheme.startswith("postgres") else ""
        raise InvalidValue("location", f"no backend for {scheme!r}", hint=hint)
    scheme, colon, rest = text.partition(":")
    if not colon or not scheme.isalnum() or len(scheme) == 1:
        # A folder may be called so, too: `~/.perdure`, whose name has no suffix, or any other.
        path = os.path.expanduser(text)
        is_bundle = os.path.splitext(path)[1] == BUNDLE_SUFFIX and not os.path.isdir(path)
        scheme, rest = "bundle" if is_bundle else "dir", text
    make = _class_of(scheme)
    if scheme == "dir" and not rest:
        raise InvalidValue("location", "empty path", hint="name a folder, such as ~/.perdure")
    try:
        return make(rest, runtime=runtime, **options)
    except FileNotFoundError as error:
        # A relative path in a working directory that is gone.
        raise InvalidValue("location", f"{text!r:.80}: {error.strerror}") from error


def _text_of(location: str | os.PathLike[str]) -> str:
    try:
        text = os.fspath(location)
        if not isinstance(text, str) or b"\0" in os.fsencode(text):
            raise ValueError
    except (TypeError, ValueError):
        raise InvalidValue("location", f"{location!r:.80} names no folder") from None
    return text


def _class_of(scheme: str) -> Callable[..., Backend]:
    if scheme in SCHEMES:
        module, name = SCHEMES[scheme]
        # A child that was forked in the middle of an import would wait for it for ever.
        with undivided():
            try:
                found: Callable[..., Backend] = getattr(import_module(module), name)
            except ModuleNotFoundError as error:
                if (error.name or "").startswith("perdure"):
                    raise
                reason = f"{scheme}: needs {error.name}, which is not installed"
                hint = "install perdure again with [postgres] behind its name or folder"
                raise InvalidValue("location", reason, hint=hint) from error
        return found
    others = entry_points(group=ENTRY_POINTS)
    for entry in others:
        if entry.name == scheme:
            with undivided():
                return _loaded(entry.load, scheme, entry.value)
    known = ", ".join(f"{name}:" for name in sorted({*SCHEMES, *others.names}))
    raise InvalidValue(
        "location", f"no backend for {scheme!r}", hint=f"use a path or one of {known}"
    )


def _loaded(load: Callable[[], Any], scheme: str, value: str) -> Callable[..., Backend]:
    try:
        found = load()
    except Exception as error:  # a package of others may fail in any way
        raise InvalidValue(
            "location",
            f"the backend for {scheme!r} cannot be loaded from {value}: {error}",
            hint="see whether the package that registers it is installed whole",
        ) from error
    if not (isinstance(found, type) and issubclass(found, Backend)):
        raise InvalidValue(
            "location",
            f"{value}, which is registered for {scheme!r}, is no Backend",
            hint="its package has to name a subclass of perdure.backends.Backend",
        )
    return found
