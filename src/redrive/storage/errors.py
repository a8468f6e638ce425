"""Errors of storage that several backends raise, and the errors of the operating system."""

from __future__ import annotations

import errno
from typing import TypeVar

from ..engine.nesting import mark, outcome
from ..errors import AlreadyExists, Denied, NotFound, PathInvalid, StorageError, Unavailable

E = TypeVar("E", bound=Exception)

NO_SPACE = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
INVALID_PATH = frozenset((errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL, errno.ELOOP))
DENIED = frozenset((errno.EACCES, errno.EPERM, errno.EROFS))
UNREACHABLE = frozenset(
    (
        errno.ESTALE,
        errno.EIO,
        errno.ETIMEDOUT,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.EAGAIN,
        errno.EBUSY,
    )
)


def file_not_found(path: str, backend: str) -> NotFound:
    return NotFound(f"{backend}: file {path!r} not found", path=path, backend=backend)


def file_exists(path: str, backend: str) -> AlreadyExists:
    return AlreadyExists(f"{backend}: file {path!r} already exists", path=path, backend=backend)


def copy_outcome(target: E, source: Exception, /) -> E:
    """Copy the retry outcome of a client's error to our error, and return our error.

    `redrive.outcome` then reports the attempts of the error that the caller gets.
    """
    retried = outcome(source)
    if retried is not None:
        mark(target, retried, None)
    return target


def from_os(error: OSError, /, *, path: str, backend: str, writing: bool = False) -> StorageError:
    """Return the storage error for an error number. Raise it `from` the original error.

    SFTP uses it too, because its client raises the same numbers. In a write, a path through a
    file is invalid, not missing.
    """
    number = error.errno
    reason = error.strerror or str(error)
    where = {"path": path, "backend": backend}
    subject = repr(path) if path else "its root"
    if number == errno.ENOENT or (number in (errno.ENOTDIR, errno.EISDIR) and not writing):
        return file_not_found(path, backend)
    if number == errno.EEXIST and not writing:
        return file_exists(path, backend)
    if number in (errno.ENOTDIR, errno.EEXIST):
        problem = "cannot be written: a part of it is a file, not a folder"
        return PathInvalid(f"{backend}: {path!r} {problem}", **where)
    if number == errno.EISDIR:
        return PathInvalid(f"{backend}: {path!r} is a folder", **where)
    if number in INVALID_PATH:
        return PathInvalid(f"{backend}: invalid path {path!r}: {reason}", **where)
    if number in DENIED:
        return Denied(f"{backend}: {subject} is not allowed: {reason}", **where)
    if number in NO_SPACE:
        return StorageError(f"{backend}: no space for {path!r}: {reason}", **where)
    if number in UNREACHABLE or isinstance(error, (ConnectionError, TimeoutError)):
        return Unavailable(f"{backend}: {subject} cannot be reached: {reason}", **where)
    return StorageError(f"{backend}: {subject}: {reason}", **where)
