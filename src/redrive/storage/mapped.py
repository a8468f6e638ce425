"""Mapped: errors of the operating system in our words. For files here, and for SFTP, which speaks of the same errors."""

from __future__ import annotations

import errno

from ..errors import AlreadyExists, Denied, NotFound, PathInvalid, StorageError, Unavailable

FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
NO_PATH = frozenset((errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL, errno.ELOOP))
REFUSED = frozenset((errno.EACCES, errno.EPERM, errno.EROFS))
AWAY = frozenset((errno.ESTALE, errno.EIO, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.EAGAIN, errno.EBUSY))


def from_os(error: OSError, /, *, path: str, backend: str, writing: bool = False) -> StorageError:
    """The error in our words, by its number; to be raised `from` it.

    writing: a folder that turns out to be a file is then a wrong path, and not a missing file.
    """
    number = error.errno
    said = error.strerror or str(error)
    where = {"path": path, "backend": backend}
    what = repr(path) if path else "its root"
    if number == errno.ENOENT or (number in (errno.ENOTDIR, errno.EISDIR) and not writing):
        return NotFound(f"{backend}: file {path!r} not found", **where)
    if number == errno.EEXIST and not writing:
        return AlreadyExists(f"{backend}: file {path!r} already exists", **where)
    if number in (errno.ENOTDIR, errno.EEXIST):
        return PathInvalid(f"{backend}: {path!r} cannot be written: a part of it is a file, not a folder", **where)
    if number == errno.EISDIR:
        return PathInvalid(f"{backend}: {path!r} is a folder", **where)
    if number in NO_PATH:
        return PathInvalid(f"{backend}: invalid path {path!r}: {said}", **where)
    if number in REFUSED:
        return Denied(f"{backend}: {what} is not allowed: {said}", **where)
    if number in FULL:
        return StorageError(f"{backend}: no space for {path!r}: {said}", **where)
    if number in AWAY or isinstance(error, (ConnectionError, TimeoutError)):
        return Unavailable(f"{backend}: {what} cannot be reached: {said}", **where)
    return StorageError(f"{backend}: {what}: {said}", **where)
