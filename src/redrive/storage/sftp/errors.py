"""Storage errors for the errors of asyncssh."""

from __future__ import annotations

from ...errors import AlreadyExists, Denied, NotFound, PathInvalid, StorageError, Unavailable
from ..errors import from_os

ERROR_BY_CLASS_NAME: dict[str, tuple[type[StorageError], str]] = {
    "SFTPNoSuchFile": (NotFound, "file {subject} not found"),
    "SFTPNoSuchPath": (NotFound, "file {subject} not found"),
    "SFTPFileAlreadyExists": (AlreadyExists, "file {subject} already exists"),
    "SFTPPermissionDenied": (Denied, "{subject} is not allowed: {reason}"),
    "SFTPWriteProtect": (Denied, "{subject} is not allowed: {reason}"),
    "SFTPLockConflict": (Denied, "{subject} is locked by another program: {reason}"),
    "SFTPNotADirectory": (
        PathInvalid,
        "{subject} cannot be written: a part of it is a file, not a folder",
    ),
    "SFTPFileIsADirectory": (PathInvalid, "{subject} is a folder"),
    "SFTPInvalidFilename": (PathInvalid, "invalid path {subject}: {reason}"),
    "SFTPNoSpaceOnFilesystem": (StorageError, "no space for {subject}: {reason}"),
    "SFTPQuotaExceeded": (StorageError, "no space for {subject}: {reason}"),
    "SFTPNoConnection": (Unavailable, "the connection was lost at {subject}: {reason}"),
    "SFTPConnectionLost": (Unavailable, "the connection was lost at {subject}: {reason}"),
    "PermissionDenied": (Denied, "the server rejected the login: {reason}"),
    "HostKeyNotVerifiable": (
        Denied,
        "the host key cannot be verified: {reason}; add it to known_hosts",
    ),
    "KeyImportError": (Denied, "the private key cannot be read: {reason}"),
    "KeyEncryptionError": (Denied, "the private key cannot be read: {reason}"),
    "DisconnectError": (Unavailable, "the server cannot be reached: {reason}"),
    "ChannelOpenError": (Unavailable, "the server gives no session: {reason}"),
}
"""Error and message by the name of an asyncssh class, or of its nearest base in this table."""


def from_ssh(error: Exception, /, *, path: str, backend: str, writing: bool = False) -> Exception:
    """Return the storage error for an error of the client. Raise it `from` the original error.

    An error that has nothing to do with the server is returned unchanged. In a write, a path
    through a file is invalid, not missing.
    """
    if isinstance(error, StorageError):
        return error
    where = {"path": path, "backend": backend}
    subject = repr(path) if path else "its root"
    reason = str(error) or type(error).__name__
    for cls in type(error).__mro__:
        if cls.__module__.startswith("asyncssh") and cls.__name__ in ERROR_BY_CLASS_NAME:
            error_class, template = ERROR_BY_CLASS_NAME[cls.__name__]
            message = template.format(subject=subject, reason=reason)
            return error_class(f"{backend}: {message}", **where)
    if isinstance(error, TimeoutError):
        return Unavailable(f"{backend}: no answer in time for {subject}", **where)
    if isinstance(error, OSError):
        is_network = isinstance(error, ConnectionError) or type(error).__name__ == "gaierror"
        if error.errno is None or is_network:
            return Unavailable(f"{backend}: the server cannot be reached: {reason}", **where)
        return from_os(error, path=path, backend=backend, writing=writing)
    if type(error).__module__.startswith("asyncssh"):
        return StorageError(f"{backend}: {subject}: the server says: {reason}", **where)
    return error
