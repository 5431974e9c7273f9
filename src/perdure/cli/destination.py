"""A new file outside the store for what a command gives out: private, and whole or not there."""

import os
from collections.abc import Iterable
from contextlib import suppress

from perdure.durable.files import Folder, translated
from perdure.errors import PerdureError

__all__ = ["write_new"]


def write_new(path: str, parts: Iterable[bytes]) -> None:
    """Write a file that is not there yet, mode 0600; it stays only if all parts came.

    Raises:
        PerdureError: there is something at `path`, or it cannot be written; or as `parts` raise.

    """
    above, name = os.path.split(path)
    if name in ("", ".", ".."):
        raise PerdureError(f"{path!r} names no file")
    try:
        descriptor = os.open(above or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise translated(error, above) from error
    with Folder(above, descriptor) as folder:
        try:
            folder.create(name, parts)
        except FileExistsError:
            raise PerdureError(f"{path} exists already", hint="name a new file") from None
        except BaseException:
            with suppress(PerdureError):
                folder.remove(name)
            raise
