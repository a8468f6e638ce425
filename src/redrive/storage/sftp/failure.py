"""Failure: errors of the SSH client in our words."""

from __future__ import annotations

from ...errors import AlreadyExists, Denied, NotFound, PathInvalid, StorageError, Unavailable
from ..mapped import from_os

KINDS: dict[str, tuple[type[StorageError], str]] = {
    "SFTPNoSuchFile": (NotFound, "file {what} not found"),
    "SFTPNoSuchPath": (NotFound, "file {what} not found"),
    "SFTPFileAlreadyExists": (AlreadyExists, "file {what} already exists"),
    "SFTPPermissionDenied": (Denied, "{what} is not allowed: {said}"),
    "SFTPWriteProtect": (Denied, "{what} is not allowed: {said}"),
    "SFTPLockConflict": (Denied, "{what} is locked by another program: {said}"),
    "SFTPNotADirectory": (PathInvalid, "{what} cannot be written: a part of it is a file, not a folder"),
    "SFTPFileIsADirectory": (PathInvalid, "{what} is a folder"),
    "SFTPInvalidFilename": (PathInvalid, "invalid path {what}: {said}"),
    "SFTPNoSpaceOnFilesystem": (StorageError, "no space for {what}: {said}"),
    "SFTPQuotaExceeded": (StorageError, "no space for {what}: {said}"),
    "SFTPNoConnection": (Unavailable, "the connection was lost at {what}: {said}"),
    "SFTPConnectionLost": (Unavailable, "the connection was lost at {what}: {said}"),
    "PermissionDenied": (Denied, "the server rejected the login: {said}"),
    "HostKeyNotVerifiable": (Denied, "the host key cannot be verified: {said}; add it to known_hosts"),
    "KeyImportError": (Denied, "the private key cannot be read: {said}"),
    "KeyEncryptionError": (Denied, "the private key cannot be read: {said}"),
    "DisconnectError": (Unavailable, "the server cannot be reached: {said}"),
    "ChannelOpenError": (Unavailable, "the server gives no session: {said}"),
}
"""By the name of the class, or of the nearest base that is listed."""


def from_ssh(error: Exception, /, *, path: str, backend: str, writing: bool = False) -> Exception:
    """The error in our words, to be raised `from` it; one that is no error of the server's comes back as it is."""
    if isinstance(error, StorageError):
        return error
    what = repr(path) if path else "its root"
    for kind in type(error).__mro__:
        if kind.__module__.startswith("asyncssh") and kind.__name__ in KINDS:
            made, words = KINDS[kind.__name__]
            return made(f"{backend}: " + words.format(what=what, said=_said(error)), path=path, backend=backend)
    if isinstance(error, TimeoutError):
        return Unavailable(f"{backend}: no answer in time for {what}", path=path, backend=backend)
    if isinstance(error, OSError):
        if error.errno is None or isinstance(error, ConnectionError) or type(error).__name__ == "gaierror":
            return Unavailable(f"{backend}: the server cannot be reached: {_said(error)}", path=path, backend=backend)
        return from_os(error, path=path, backend=backend, writing=writing)
    if type(error).__module__.startswith("asyncssh"):
        return StorageError(f"{backend}: {what}: the server says: {_said(error)}", path=path, backend=backend)
    return error


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
