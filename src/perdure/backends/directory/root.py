"""The root of a directory store, its `store.json`, and the folders of its namespaces.

`store.json` names the format of the layout, the store's own id (which makes revisions of two stores
distinct) and the encoding of new sessions. A namespace is a folder `ns/<name>` that is laid out as
the root is, but for what all namespaces share.
"""

import os
from contextlib import suppress
from typing import Any

from perdure.durable.files import Folder
from perdure.durable.locks import exclusive
from perdure.errors import FormatUnsupported, PerdureError, UnsafeFile
from perdure.model import values
from perdure.model.identity import escape_id, unescape_name
from perdure.runtime import Runtime

__all__ = ["LAYOUT_FORMAT", "Root", "Space"]

LAYOUT_FORMAT = 0
_NAME = "store.json"
_PART = "name.json"
_BYTES_MAX = 64 * 1024
_RESTORE = (
    'restore it, or make it anew with {"format":0,"id":"any text","encoding":"zst"}, mode 600'
)


class Root:
    """Opens the root and knows what it was created with."""

    def __init__(self, path: str, runtime: Runtime, encoding: str | None) -> None:
        """Name it; nothing is touched yet."""
        self.path = path
        self._runtime = runtime
        self._wanted = encoding
        self._facts: dict[str, Any] | None = None
        self._durable = False

    def open(self, *, fresh: bool = False) -> Folder:
        """The root folder, checked; with `fresh` its description is read again.

        Raises:
            FileNotFoundError: no store was created there yet.
            FormatUnsupported: another version's layout.
            UnsafeFile: not private, or not a store.

        """
        folder = Folder.open(self.path)
        try:
            if fresh or self._facts is None:
                self._facts = self._read_or_miss(folder)
        except BaseException:
            folder.close()
            raise
        return folder

    def _read_or_miss(self, folder: Folder) -> dict[str, Any]:
        """The description; a folder without one is no store yet, unless it holds sessions."""
        try:
            return self._read(folder)
        except FileNotFoundError:
            if folder.stat("sessions") is None:
                raise
        # A first writer writes the description and then makes the folder: whoever looked between
        # the two finds the description now.
        try:
            return self._read(folder)
        except FileNotFoundError:
            raise UnsafeFile(
                os.path.join(self.path, _NAME),
                "is missing, and there are sessions beside it",
                hint=_RESTORE,
            ) from None

    def make(self) -> Folder:
        """The root folder, created where missing; durable before anything is put into it."""
        with suppress(FileNotFoundError):
            if self._durable:
                # Read again: who removed the root under a running process shall not find a store
                # without its description.
                return self.open(fresh=True)
        folder = Folder.make(self.path)
        try:
            # Two first writers must not give the store two ids.
            with exclusive(folder.fd, self.path):
                try:
                    self._facts = self._read(folder)
                except FileNotFoundError:
                    self._facts = self._create(folder)
            # Whoever described the store may have died before that was durable, and a folder that
            # holds something else and no description is nobody's store: first the one.
            folder.sync()
            for name in ("sessions", "new"):
                folder.child(name, make=True).close()
            folder.sync()
            self._durable = True
        except BaseException:
            folder.close()
            raise
        return folder

    def _create(self, folder: Folder) -> dict[str, Any]:
        # A first writer that died may have left its half of the description.
        if any(not name.startswith(f".{_NAME}.") for name in folder.names()):
            raise UnsafeFile(
                self.path,
                f"is not empty and holds no {_NAME}",
                hint="name an empty or a new folder for the store",
            )
        facts = {
            "format": LAYOUT_FORMAT,
            "id": self._runtime.token(16),
            "encoding": self._wanted or "zst",
        }
        folder.replace(_NAME, values.encode(facts) + b"\n")
        return facts

    def _read(self, folder: Folder) -> dict[str, Any]:
        path = os.path.join(self.path, _NAME)
        try:
            facts = values.decode(folder.read(_NAME, _BYTES_MAX))
        except ValueError:
            facts = None
        if not isinstance(facts, dict) or not isinstance(facts.get("id"), str):
            raise UnsafeFile(
                path,
                "is not the description of a store",
                hint=_RESTORE,
            )
        if facts.get("format") != LAYOUT_FORMAT or isinstance(facts.get("format"), bool):
            raise FormatUnsupported(path, found=facts.get("format"), supported=LAYOUT_FORMAT)
        if facts.get("encoding") not in ("zst", "raw"):
            what = f"encoding {facts.get('encoding')!r}"
            raise FormatUnsupported(path, found=what, supported=LAYOUT_FORMAT)
        return facts

    def encoding(self) -> str:
        """The encoding of new sessions: as asked, else as the store says."""
        if self._wanted is not None:
            return self._wanted
        if self._facts is None:
            with suppress(FileNotFoundError):
                self.open().close()
        return str(self._facts["encoding"]) if self._facts is not None else "zst"

    def store_id(self) -> str:
        """The store's own id; empty before it was created."""
        return str(self._facts["id"]) if self._facts is not None else ""


class Space:
    """The folder of one namespace; without parts, the root itself."""

    def __init__(self, root: Root, parts: tuple[str, ...] = ()) -> None:
        """Name it; nothing is touched yet."""
        self.root = root
        self.parts = parts
        self._names = [escape_id(part) for part in parts]
        self.path = os.path.join(root.path, *(x for name in self._names for x in ("ns", name)))
        self._durable = False

    def open(self) -> Folder:
        """The folder.

        Raises:
            FileNotFoundError: nothing was stored in it yet.

        """
        folder = self.root.open()
        for name in self._names:
            folder = _step(folder, "ns", name)
        return folder

    def sessions(self) -> Folder:
        """The folder of its sessions.

        Raises:
            FileNotFoundError: nothing was stored in it yet.

        """
        with self.open() as folder:
            return folder.child("sessions")

    def make(self) -> Folder:
        """The folder, created where missing; durable before anything is put into it."""
        folder = self.root.make()
        for part, name in zip(self.parts, self._names, strict=True):
            folder = _step(folder, "ns", name, make=True, sync=not self._durable)
            try:
                if unescape_name(name) is None and folder.stat(_PART) is None:
                    # A shortened name does not tell what it stands for.
                    folder.replace(_PART, values.encode({"name": part}) + b"\n")
            except BaseException:
                folder.close()
                raise
        if self.parts and not self._durable:
            try:
                for name in ("sessions", "new"):
                    folder.child(name, make=True).close()
                folder.sync()
            except BaseException:
                folder.close()
                raise
            self._durable = True
        return folder

    def names(self) -> list[str]:
        """The namespaces directly below, in order."""
        try:
            with self.open() as folder, folder.child("ns") as below:
                return sorted(filter(None, (_part(below, name) for name in below.names())))
        except FileNotFoundError:
            return []


def _step(folder: Folder, *names: str, make: bool = False, sync: bool = False) -> Folder:
    """The folder that `names` lead to, in place of the one that they start from.

    With `sync` their names are durable: whoever made them may have died before they were.
    """
    for name in names:
        with folder as above:
            folder = above.child(name, make=make)
            if sync:
                above.sync()
    return folder


def _part(below: Folder, name: str) -> str | None:
    part = unescape_name(name)
    if part is not None:
        return part
    with suppress(FileNotFoundError, ValueError, PerdureError), below.child(name) as folder:
        text = values.decode(folder.read(_PART, _BYTES_MAX))
        told = text.get("name") if isinstance(text, dict) else None
        if isinstance(told, str) and escape_id(told) == name:
            return told
    return None
