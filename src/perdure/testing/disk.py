"""A disk after a loss of power: what was synced is there, what was not is there or not, or in part.

`Disk` follows the operations of the durable layer and keeps apart what was synced from what was
not. At any moment it can say what a loss of power would leave, as a policy and a seed decide.

The model of the disk, all of it pessimistic:

- Written data is sure from the sync of its file on. Until then each of its 512-byte sectors may be
  there or not; a sector is never mixed (the policy "torn-bytes" mixes even that, at one place).
- A file may have grown and hold zeros where its data did not arrive.
- An entry of a folder is sure from the sync of that folder on, a rename from that of its target.
  Until then each operation may have happened or not, in any order, but for those on one entry or
  one file, which stay in their order; a rename happens as one.
- The sync of a file says nothing about its entry, nor the other way.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

__all__ = ["ENTRY_POLICIES", "FILE_POLICIES", "Disk", "Policy"]

_SECTOR = 512
FILE_POLICIES = ("dropped", "kept", "torn", "torn-bytes", "reordered", "grown")
ENTRY_POLICIES = ("dropped", "kept", "random")


class Policy(NamedTuple):
    """What becomes of that which was not synced.

    Attributes:
        files: "dropped": nothing of it is there. "kept": all of it. "torn": a prefix, the write at
            its end cut at a sector; "torn-bytes": at any byte. "reordered": each sector on its own.
            "grown": the files are as long as they would be, and hold zeros.
        entries: "dropped", "kept", or "random": each entry operation on its own.

    """

    files: str
    entries: str


class _Change(NamedTuple):
    """A write (with data) or a truncation (without) that was not synced."""

    offset: int
    data: bytes | None


class _File:
    def __init__(self) -> None:
        self.synced = b""
        self.pending: list[_Change] = []

    def sync(self) -> None:
        for change in self.pending:
            self.synced = _apply(self.synced, change)
        self.pending.clear()

    def survivor(self, policy: str, rng: random.Random) -> bytes:
        """The content after a loss of power."""
        content, pending = self.synced, self.pending
        if policy == "dropped" or not pending:
            return content
        if policy == "reordered":
            for change in pending:
                for part in _sectors(change):
                    if rng.random() < 0.5:
                        content = _apply(content, part)
            return content
        if policy == "grown":
            longest = max(c.offset + len(c.data or b"") for c in pending)
            return content.ljust(longest, b"\0")
        whole = len(pending) if policy == "kept" else rng.randrange(len(pending))
        for change in pending[:whole]:
            content = _apply(content, change)
        if whole < len(pending):
            content = _apply(content, _torn(pending[whole], policy, rng))
        return content


def _apply(content: bytes, change: _Change) -> bytes:
    if change.data is None:
        return content[: change.offset].ljust(change.offset, b"\0")
    start = content[: change.offset].ljust(change.offset, b"\0")
    return start + change.data + content[change.offset + len(change.data) :]


def _sectors(change: _Change) -> Iterator[_Change]:
    """The parts of a write that the disk takes as one."""
    if change.data is None:
        yield change
        return
    at = 0
    while at < len(change.data):
        size = _SECTOR - (change.offset + at) % _SECTOR
        yield _Change(change.offset + at, change.data[at : at + size])
        at += size


def _torn(change: _Change, policy: str, rng: random.Random) -> _Change:
    """The first part of a write."""
    if change.data is None:
        return change
    if policy == "torn-bytes":
        return _Change(change.offset, change.data[: rng.randrange(len(change.data) + 1)])
    parts = [*_sectors(change)]
    kept = parts[: rng.randrange(len(parts) + 1)]
    return _Change(change.offset, b"".join(part.data or b"" for part in kept))


class _Entry(NamedTuple):
    """An entry that appears (with a node) or goes away (without) in a folder."""

    folder: int
    name: str
    node: int | None


class _Operation(NamedTuple):
    """One or two entries that change as one, sure once the folder of the last was synced."""

    entries: tuple[_Entry, ...]

    @property
    def folder(self) -> int:
        return self.entries[-1].folder

    @property
    def concerns(self) -> set[tuple[int, str]]:
        """The entries and the file or folder that it is about."""
        return {(e.folder, e.name) for e in self.entries} | {
            (e.node, "") for e in self.entries if e.node is not None
        }


def _with_earlier(
    pending: Sequence[_Operation], chosen: Callable[[_Operation], bool]
) -> list[_Operation]:
    """The chosen operations, and those before them that they build on, in order."""
    found: list[_Operation] = []
    concerns: set[tuple[int, str]] = set()
    for one in reversed(pending):
        if chosen(one) or one.concerns & concerns:
            found.insert(0, one)
            concerns |= one.concerns
    return found


class Disk:
    """Follows the operations of the durable layer; nodes are files and folders by inode number.

    A number that is used again after a removal gets a new node.
    """

    def __init__(self, root: int) -> None:
        """Start with one empty folder, by its inode number; it is there whatever happens."""
        self._nodes = {root: 0}
        self._files: dict[int, _File] = {}
        self._now: dict[int, dict[str, int]] = {0: {}}
        self._synced: dict[int, dict[str, int]] = {0: {}}
        self._pending: list[_Operation] = []
        self._made = 0

    def take(self, kind: str, facts: dict[str, Any]) -> None:
        """Follow one operation, as `perdure.durable.crash.observe` tells it."""
        getattr(self, f"_{kind}")(**facts)

    def _node(self, inode: int) -> int:
        self._made += 1
        self._nodes[inode] = self._made
        return self._made

    def _create(self, parent: int, name: str, inode: int) -> None:
        node = self._node(inode)
        self._files[node] = _File()
        self._change(_Entry(self._nodes[parent], name, node))

    def _mkdir(self, parent: int, name: str, inode: int) -> None:
        if name in self._now[self._nodes[parent]]:
            return
        node = self._node(inode)
        self._now[node], self._synced[node] = {}, {}
        self._change(_Entry(self._nodes[parent], name, node))

    def _remove(self, parent: int, name: str) -> None:
        self._change(_Entry(self._nodes[parent], name, None))

    def _rename(self, source: int, name: str, target: int, new_name: str) -> None:
        node = self._now[self._nodes[source]][name]
        self._change(
            _Entry(self._nodes[source], name, None), _Entry(self._nodes[target], new_name, node)
        )

    def _change(self, *entries: _Entry) -> None:
        for entry in entries:
            _enter(self._now, entry)
        self._pending.append(_Operation(entries))

    def _write(self, inode: int, offset: int, data: bytes) -> None:
        if data:
            self._files[self._nodes[inode]].pending.append(_Change(offset, data))

    def _truncate(self, inode: int, length: int) -> None:
        self._files[self._nodes[inode]].pending.append(_Change(length, None))

    def _sync(self, inode: int) -> None:
        node = self._nodes[inode]
        if node in self._files:
            self._files[node].sync()
            return
        self._settle(_with_earlier(self._pending, lambda one: one.folder == node))

    def settle(self) -> None:
        """Everything reached the disk, as it does after a while."""
        for file in self._files.values():
            file.sync()
        self._settle([*self._pending])

    def _settle(self, operations: list[_Operation]) -> None:
        for operation in operations:
            for entry in operation.entries:
                _enter(self._synced, entry)
            self._pending.remove(operation)

    def unsynced(self) -> bool:
        """Whether a loss of power at this moment could take anything."""
        return bool(self._pending or any(one.pending for one in self._files.values()))

    def image(self, policy: Policy, rng: random.Random) -> dict[str, bytes | None]:
        """Content of each file and None for each folder, by path, after a loss of power."""
        entries = {node: dict(known) for node, known in self._synced.items()}
        chance = {"dropped": 0.0, "kept": 1.0, "random": 0.5}[policy.entries]
        for operation in _with_earlier(self._pending, lambda _: rng.random() < chance):
            for entry in operation.entries:
                _enter(entries, entry)
        image: dict[str, bytes | None] = {}
        waiting = [("", 0)]
        while waiting:
            path, node = waiting.pop()
            for name, below in sorted(entries[node].items()):
                inside = f"{path}{name}"
                if below in self._files:
                    image[inside] = self._files[below].survivor(policy.files, rng)
                else:
                    image[inside] = None
                    waiting.append((f"{inside}/", below))
        return image


def _enter(entries: dict[int, dict[str, int]], entry: _Entry) -> None:
    if entry.node is None:
        entries[entry.folder].pop(entry.name, None)
    else:
        entries[entry.folder][entry.name] = entry.node
