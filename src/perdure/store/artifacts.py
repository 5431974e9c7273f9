"""Artifacts: files that a run made, kept as content beside its log and named by an event each.

A name is data of whoever wrote the log. What could lead out of a folder, or cannot be a file
everywhere, is refused when an artifact is saved, and again when it is written out: logs come from
others, too.
"""

import os
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from perdure.backends.base import Backend
from perdure.durable.files import Folder
from perdure.errors import InvalidValue, PerdureError, StorageFull
from perdure.model import values
from perdure.model.event import Event
from perdure.model.identity import DEVICES
from perdure.runtime import Runtime
from perdure.store.content import content_of, parts_of
from perdure.store.reading import Pages
from perdure.store.retention import Retention
from perdure.views.artifacts import Artifact, Artifacts, artifacts
from perdure.views.view import Rows

__all__ = ["Artifact", "Extracted", "Extracting", "Saving", "Skipped", "artifact_of", "check_name"]

NAME_CHARS_MAX = 1024
"""Longest name of an artifact."""

_PART_BYTES_MAX = 255
_SAVED = "artifact/saved"
_MEDIA_TYPE = re.compile("[!-~]{1,127}/[ -~]{1,127}")
_ILLEGAL = re.compile(r'[\\<>:"|?*]')
_INVISIBLE = re.compile(
    "[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_HINT = "a relative path such as plots/loss.png"


def check_name(name: object) -> list[str]:
    """The parts of an artifact's name, which is a relative path that every file system takes.

    Raises:
        InvalidValue: it leads out of its folder, or cannot be the name of a file everywhere.

    """
    if not isinstance(name, str) or not 1 <= len(name) <= NAME_CHARS_MAX:
        raise InvalidValue(
            "name",
            f"{values.shown(name)} is not a string of 1 to {NAME_CHARS_MAX} characters",
            hint=_HINT,
        )
    parts = name.split("/")
    reason: str | None = None
    if _INVISIBLE.search(name):
        reason = "has characters that cannot be seen, or that turn the text around"
    elif _ILLEGAL.search(name):
        reason = 'has one of the characters \\ < > : " | ? *'
    elif name.startswith("/"):
        reason = "is an absolute path"
    elif ".." in parts:
        reason = "leads out of its folder"
    elif "" in parts or "." in parts:
        reason = "has a part that is empty, or a dot"
    elif any(part[-1] in ". " or part[0] == " " for part in parts):
        reason = "has a part that ends in a dot, or begins or ends with a space"
    elif any(part.split(".", 1)[0].rstrip(" ").lower() in DEVICES for part in parts):
        reason = "has the name of a device"
    elif any(len(part.encode()) > _PART_BYTES_MAX for part in parts):
        reason = f"has a part of more than {_PART_BYTES_MAX} bytes"
    if reason is not None:
        raise InvalidValue("name", f"{values.shown(name)} {reason}", hint=_HINT)
    return parts


class Saving(ABC):
    """What a session's writer does for artifacts."""

    @abstractmethod
    def append(
        self,
        type: str,  # noqa: A002
        data: Any = None,
        *,
        agent: str | None = None,
        turn: str | None = None,
    ) -> Event:
        """Append one event."""

    @abstractmethod
    def put_blob(self, value: bytes | BinaryIO | Iterable[bytes]) -> str:
        """Store content beside the log."""

    def save_artifact(
        self,
        name: str,
        value: bytes | BinaryIO | Iterable[bytes],
        media_type: str | None = None,
        *,
        agent: str | None = None,
        turn: str | None = None,
    ) -> Artifact:
        """Keep a file that the run made; durable when this returns.

        `name` is a relative path with `/`, such as `plots/loss.png`; the artifact takes the place
        of an earlier one of that name, which the log still has. `value` as for `put_blob`.
        `media_type` is such as `image/png`.

        Raises:
            InvalidValue: the name leads out of its folder or is no name of a file everywhere, or
                the value is no content.
            As `put_blob` and `append`.

        """
        data = self._put_artifact(name, value, media_type)
        return artifact_of(self.append(_SAVED, data, agent=agent, turn=turn))

    def _put_artifact(
        self, name: str, value: bytes | BinaryIO | Iterable[bytes], media_type: str | None
    ) -> dict[str, Any]:
        """Store the bytes; what the event is to say of them."""
        check_name(name)
        if media_type is not None and not (
            isinstance(media_type, str) and _MEDIA_TYPE.fullmatch(media_type)
        ):
            reason = f"{values.shown(media_type)} is no media type"
            raise InvalidValue("media_type", reason, hint="such as image/png")
        size = 0

        def counted() -> Iterator[bytes]:
            nonlocal size
            for part in parts:
                size += len(part)
                yield part

        parts = parts_of(value)
        data = {"name": name, "blob": self.put_blob(counted()), "size": size}
        return data if media_type is None else {**data, "media_type": media_type}


def artifact_of(event: Event) -> Artifact:
    """The artifact that an event says was saved."""
    data = event.data
    return Artifact(data["name"], data["blob"], data["size"], data.get("media_type"), event.seq)


class Skipped(NamedTuple):
    """An artifact that was not written, and why."""

    name: str
    reason: str


class Extracted(NamedTuple):
    """What became of the artifacts that were to be written into a folder.

    Attributes:
        written: names of those that are there now.
        skipped: the others, with the reason.

    """

    written: tuple[str, ...]
    skipped: tuple[Skipped, ...]


class Extracting(ABC):
    """What a store does for the artifacts of its sessions."""

    _backend: Backend
    _pages: Pages
    _retention: Retention
    _runtime: Runtime

    def artifacts(self, id: str) -> list[Artifact]:
        """The files that a run made, each as it was saved last, sorted by name. Reads the log.

        Raises:
            SessionNotFound: there is no such session.
            SessionDamaged, FormatUnsupported: it cannot be read.

        """
        view, rows = Artifacts(), Rows()
        with self._retention.telling(id):
            for event in self._pages.read(id, 0, view.types):
                view.apply(rows, event, lambda: iter(()))
        return artifacts(rows)

    def open_artifact(self, id: str, name: str) -> Iterator[bytes]:
        """The bytes of an artifact in parts; the last one comes only if their hash is right.

        Raises:
            InvalidValue: there is no artifact of that name.
            As `artifacts` and `open_blob`.

        """
        for each in self.artifacts(id):
            if each.name == name:
                return content_of(self._backend, id, each.blob)
        reason = f"session {id!r} has no artifact {values.shown(name)}"
        raise InvalidValue(
            "name", reason, hint="store.artifacts(id), `perdure artifacts` lists them"
        )

    def extract(
        self,
        id: str,
        folder: str | os.PathLike[str],
        names: Collection[str] | None = None,
        *,
        overwrite: bool = False,
    ) -> Extracted:
        """Write the artifacts of a session into a folder: all, or those of these names.

        The folder is made where missing. Nothing is written outside of it, whatever the names in
        the log say, and no link in it is followed; files get mode 0600, folders 0700. A file
        appears whole, its hash checked. One that is there stays unless `overwrite`. What cannot be
        written is skipped and named, with the reason: it has expired, is damaged, or its name is
        none that `save_artifact` takes.

        Raises:
            InvalidValue: `names` is one string, or `folder` can be no path.
            UnsafeFile, StorageUnavailable: the folder cannot be used.
            StorageFull: what was written before is there.
            As `artifacts`.

        """
        if isinstance(names, str):
            raise InvalidValue("names", "is one string", hint="a list of names")
        place = str(Path(folder).expanduser().absolute())
        if "\0" in place:
            raise InvalidValue("folder", f"{values.shown(place)} names no folder")
        found = {each.name: each for each in self.artifacts(id)}
        wanted = [*found] if names is None else [*dict.fromkeys(names)]
        written: list[str] = []
        skipped: list[Skipped] = []
        with _opened(place) as root:
            target = _Target(root, self._runtime, overwrite=overwrite)
            for name in wanted:
                try:
                    if name not in found:
                        raise InvalidValue("name", f"there is no artifact {values.shown(name)}")
                    target.write(name, content_of(self._backend, id, found[name].blob))
                except StorageFull:
                    raise
                except PerdureError as error:
                    reason = error.reason if isinstance(error, InvalidValue) else error.message
                    skipped.append(Skipped(name, reason))
                else:
                    written.append(name)
        return Extracted(tuple(written), tuple(skipped))


def _opened(path: str) -> Folder:
    """The folder to write into, whose mode is its owner's affair; a new one is private."""
    try:
        return Folder.open_shared(path)
    except FileNotFoundError:
        return Folder.make(path)


class _Target:
    """The folder that artifacts are written into."""

    def __init__(self, root: Folder, runtime: Runtime, *, overwrite: bool) -> None:
        self._root = root
        self._runtime = runtime
        self._overwrite = overwrite
        self._written: set[tuple[int, int]] = set()

    def write(self, path: str, content: Iterator[bytes]) -> None:
        """Write one file; `path` is the name of an artifact, as the log has it.

        Raises:
            PerdureError: it was not written; what stood in its place still does.

        """
        *above, name = check_name(path)
        with ExitStack() as stack:
            folder = self._root
            for part in above:
                folder = stack.enter_context(folder.child(part, make=True))
            self._refuse_if_taken(folder, name)
            building = f".{self._runtime.token()}"
            folder.create(building, content)
            try:
                self._give_name(folder, building, name)
            except BaseException:
                with suppress(PerdureError):
                    folder.remove(building)
                raise
            folder.sync()
            status = folder.stat(name)
            if status is not None:
                self._written.add((status.st_dev, status.st_ino))

    def _refuse_if_taken(self, folder: Folder, name: str) -> None:
        there = folder.stat(name)
        if there is None:
            return
        path = str(Path(folder.path, name))
        if not self._overwrite:
            raise _taken(path)
        if not stat.S_ISREG(there.st_mode):
            raise InvalidValue("name", f"{path} is there and is no regular file")
        if (there.st_dev, there.st_ino) in self._written:
            raise InvalidValue("name", f"{path} is another artifact, for the disk ignores case")

    def _give_name(self, folder: Folder, building: str, name: str) -> None:
        """In one step; a name that must be free is taken first, so nobody loses a file by it."""
        if self._overwrite:
            folder.move(building, folder, name)
            return
        try:
            folder.create(name, b"")
        except FileExistsError:
            raise _taken(str(Path(folder.path, name))) from None
        try:
            folder.move(building, folder, name)
        except BaseException:
            with suppress(PerdureError):
                folder.remove(name)
            raise


def _taken(path: str) -> InvalidValue:
    return InvalidValue("name", f"{path} exists already", hint="overwrite=True, or a new folder")
