"""Copies of files that share their bytes on the disk, where the file system can do that."""

import errno
import os

from perdure.durable.appending import ReadFile
from perdure.durable.calls import copy_at
from perdure.durable.files import Folder, sync_file, translated

__all__ = ["clone"]

_UNABLE = frozenset({errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM})


def clone(source: ReadFile, folder: Folder, name: str) -> bool:
    """Create a private file with the bytes of an open one, synced; the folder is not synced.

    The two are files of their own: what happens to one is nothing to the other. False, and nothing
    is left, if the system has no call for it, or not between these two places.

    Raises:
        FileExistsError: the name is taken.
        StorageFull, StorageUnavailable: it could not be written; nothing is left.

    """
    if not hasattr(os, "copy_file_range"):
        return False
    descriptor = folder.open_file(name, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        copy_at(source.fd, descriptor, source.size())
        sync_file(descriptor, data_only=False)
    except OSError as error:
        folder.remove(name)
        if error.errno in _UNABLE:
            return False
        raise translated(error, os.path.join(folder.path, name)) from error
    except BaseException:
        folder.remove(name)
        raise
    finally:
        os.close(descriptor)
    return True
