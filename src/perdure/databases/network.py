"""Network file systems, where SQLite's WAL must not be used.

Its writers share memory through a file, which programs on two machines cannot
(https://www.sqlite.org/wal.html, "All processes using a database must be on the same host").
"""

import os
from contextlib import suppress
from pathlib import Path

from perdure.errors import StorageUnavailable

__all__ = ["refuse_network"]

_MOUNTS = Path("/proc/self/mountinfo")
"""One line a mount: its id, its parent's, major:minor, root, place, options, a dash, the type
(proc_pid_mountinfo(5)). Where there is no such file, nothing is known and nothing refused."""

_NETWORK = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "fuse.glusterfs",
        "fuse.s3fs",
        "fuse.sshfs",
        "gfs2",
        "glusterfs",
        "lustre",
        "nfs",
        "nfs4",
        "ocfs2",
        "smb2",
        "smb3",
        "smbfs",
    }
)


def refuse_network(folder: str, path: str) -> None:
    """Refuse a file in a folder of a network file system.

    Raises:
        StorageUnavailable: `folder` is on one; `path` names the file in the error.

    """
    kind = _kind_of(folder)
    if kind in _NETWORK:
        raise StorageUnavailable(
            path,
            f"is on a network file system ({kind}), where SQLite files shared by several machines "
            "break",
            hint="keep it on a local disk; `perdure copy` and `perdure export` move sessions",
        )


def _kind_of(folder: str) -> str | None:
    """The type of the file system that a folder is on, or None if that cannot be told."""
    with suppress(OSError, ValueError):
        device = os.lstat(folder).st_dev
        wanted = b"%d:%d" % (os.major(device), os.minor(device))
        for line in _MOUNTS.read_bytes().splitlines():
            fields, _, behind = line.partition(b" - ")
            if fields.split()[2:3] == [wanted]:
                return behind.split()[0].decode("utf-8", "replace")
    return None
