"""From a path or URL to a backend, imported when it is first asked for."""

import os
from importlib import import_module
from typing import Any

from perdure.backends.base import Backend
from perdure.errors import InvalidValue
from perdure.runtime import SYSTEM, Runtime

__all__ = ["SCHEMES", "open_backend"]

SCHEMES: dict[str, tuple[str, str]] = {
    "dir": ("perdure.backends.directory", "DirectoryBackend"),
    "memory": ("perdure.backends.memory", "MemoryBackend"),
    "none": ("perdure.backends.null", "NullBackend"),
}
"""Scheme to module and class. A plain path means `dir`."""


def open_backend(
    location: str | os.PathLike[str], *, runtime: Runtime = SYSTEM, **options: Any
) -> Backend:
    """The backend that `location` names. Nothing is created before the first write.

    `location` is a path (`~` is expanded), `dir:PATH`, `memory:` or `none:`.

    Raises:
        InvalidValue: no backend has that scheme, or the path is empty.

    """
    try:
        text = os.fspath(location)
        if not isinstance(text, str) or b"\0" in os.fsencode(text):
            raise ValueError
    except (TypeError, ValueError):
        raise InvalidValue("location", f"{location!r:.80} names no folder") from None
    scheme, colon, rest = text.partition(":")
    if not colon or not scheme.isalnum() or len(scheme) == 1:
        scheme, rest = "dir", text
    if scheme not in SCHEMES:
        known = ", ".join(f"{name}:" for name in sorted(SCHEMES))
        raise InvalidValue(
            "location", f"no backend for {scheme!r}", hint=f"use a path or one of {known}"
        )
    if scheme == "dir" and not rest:
        raise InvalidValue("location", "empty path", hint="name a folder, such as ~/.perdure")
    module, name = SCHEMES[scheme]
    try:
        backend: Backend = getattr(import_module(module), name)(rest, runtime=runtime, **options)
    except FileNotFoundError as error:
        # A relative path in a working directory that is gone.
        raise InvalidValue("location", f"{text!r:.80}: {error.strerror}") from error
    return backend
