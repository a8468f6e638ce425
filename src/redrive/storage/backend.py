"""Backend: the interface of a storage type, the built-in types by name, and their options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from importlib import import_module
from typing import Any, BinaryIO, Literal, NamedTuple, Protocol, TypeAlias

from ..errors import NotFound
from .body import Body
from .errors import file_exists

How: TypeAlias = Literal["replace", "atomic", "create"]
"""How a file is written.

replace: Replaces the file. On some backends a reader may see a part of the new bytes.
atomic: A reader gets the old or the new bytes. The new bytes survive a crash of the machine.
create: As atomic, but only if the file does not exist. Otherwise it raises AlreadyExists.
"""


class FileInfo(NamedTuple):
    """A file, as a listing has it. Immutable.

    Attributes:
        path: The path.
        size: Number of bytes.
        modified_at: Time of the last change, with time zone. None if the backend does not tell.
        etag: Changes with the bytes. None if the backend has none, and in listings of a disk or by
            PyArrow.
    """

    path: str
    size: int
    modified_at: datetime | None = None
    etag: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a backend guarantees beyond the interface. Immutable.

    If a value is False, the method works without that guarantee.

    Attributes:
        atomic_write: `write_atomic`: readers get the old or the new bytes, even if the writer dies.
        exclusive_create: `create`: of several at the same time, exactly one wins.
        atomic_move: `move` is one step. The file is never at both places or at none.
        native_copy: `copy` is done by the backend, without transferring the bytes.
        empty_folders: Folders are real and stay when their last file is deleted.
    """

    atomic_write: bool
    exclusive_create: bool
    atomic_move: bool
    native_copy: bool
    empty_folders: bool


OBJECT_STORE_CAPABILITIES = Capabilities(
    atomic_write=True,
    exclusive_create=True,
    atomic_move=False,
    native_copy=True,
    empty_folders=False,
)


class Backend(Protocol):
    """A kind of storage with its configuration. Creating one opens nothing.

    The constructor takes the name, positional, and options by keyword. It takes `retry: RetryPolicy
    | None = None` if the backend retries. The registry rejects options that are not in the
    signature.

    Paths are complete and checked. Folders are created as needed. Every error is a `StorageError`
    with `path` and `backend`. Only `Unavailable` may be retried. A write whose source fails leaves
    nothing under the path.

    Threads may share one. A forked child connects again.
    """

    name: str
    capabilities: Capabilities

    def read(self, path: str, /) -> BinaryIO:
        """Open a file for reading, in bounded memory.

        Args:
            path: The path.

        Returns:
            The open file.

        Raises:
            NotFound: The file does not exist.
        """

    def read_bytes(self, path: str, /) -> bytes:
        """Read a whole file.

        Args:
            path: The path.

        Returns:
            Its bytes.
        """

    def write(self, path: str, body: Body, how: How, /) -> None:
        """Write a file.

        Args:
            path: The path.
            body: The bytes.
            how: `"replace"`, `"atomic"` or `"create"`.
        """

    def files(self, folder: str, /, *, recursive: bool) -> Iterator[FileInfo]:
        """List the files in a folder. A missing folder is empty.

        A backend may also have `paths` with the same parameters, if sizes and times cost extra.

        Args:
            folder: The folder. `""` is the root.
            recursive: Include folders below.

        Returns:
            The files, with complete paths.
        """

    def folders(self, folder: str, /) -> Iterator[str]:
        """List the folders in a folder, one level.

        Args:
            folder: The folder.

        Returns:
            Complete paths.
        """

    def info(self, path: str, /) -> FileInfo:
        """Return size, time and etag of a file.

        Args:
            path: The path.

        Returns:
            The description.

        Raises:
            NotFound: The file does not exist, or it is a folder.
        """

    def delete(self, path: str, /) -> None:
        """Delete a file. A missing file is not an error.

        Args:
            path: The path.
        """

    def move(self, source: str, target: str, /) -> None:
        """Move a file, and replace the target.

        Args:
            source: Path of the file.
            target: Another path.
        """

    def copy(self, source: str, target: str, /) -> None:
        """Copy a file, and replace the target.

        Args:
            source: Path of the file.
            target: Another path.
        """

    def check(self) -> None:
        """Check that the storage can be reached and its container exists.

        Raises:
            StorageError: The message names the problem.
        """

    def close(self) -> None:
        """Close the connections. You may close twice."""


BACKEND_TYPES = {
    "azure": ".azure:Azure",
    "graph": ".graph:Graph",
    "local": ".local:Local",
    "memory": ".memory:Memory",
    "s3": ".s3:S3",
    "s3-pyarrow": ".s3:S3Arrow",
    "sftp": ".sftp:Sftp",
}
"""Built-in types and their classes. Users name their own class: `type = "package.module:Class"`."""
NOT_OPTIONS = frozenset(("name", "retry", "clock"))
"""Parameters of a backend's constructor that are not options of the configuration."""


def backend_class(type_: str, /) -> Callable[..., Backend]:
    """Return the class of a backend type. Raise ValueError if it is unknown."""
    location = BACKEND_TYPES.get(type_, type_)
    module, colon, name = location.partition(":")
    if not colon:
        known = f"known: {', '.join(BACKEND_TYPES)}, or module:Class"
        raise ValueError(
            f"unknown type of backend {type_!r}{_suggestion(type_, BACKEND_TYPES)}; {known}"
        )
    try:
        cls: Callable[..., Backend] = getattr(import_module(module, __package__), name)
    except (ImportError, AttributeError) as missing:
        raise ValueError(f"the backend {type_} cannot be imported: {missing}") from missing
    return cls


def takes_retry(cls: Callable[..., Backend], /) -> bool:
    """Return whether a backend takes a retry policy. The others never retry."""
    return "retry" in inspect.signature(cls).parameters


def check_options(type_: str, options: Mapping[str, Any], /) -> None:
    """Raise TypeError if an option is unknown, or a required option is missing."""
    is_required = {
        parameter.name: parameter.default is parameter.empty
        for parameter in inspect.signature(backend_class(type_)).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.name not in NOT_OPTIONS
    }
    for name in options:
        if name not in is_required:
            known = f"{type_} has {', '.join(is_required) or 'none'}"
            raise TypeError(f"unknown option {name!r}{_suggestion(name, is_required)}; {known}")
    missing = [name for name in is_required if is_required[name] and name not in options]
    if missing:
        raise TypeError(f"{type_} needs the option {missing[0]!r}")


def import_client(module: str, extra: str, /) -> Any:
    """Import the client library of a backend, or raise an ImportError that names the extra.

    Backends call it at the first use, because some clients take a second to import.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name is None or not f"{module}.".startswith(f"{missing.name}."):
            raise
        message = f'this backend needs its client: pip install "redrive[{extra}]"'
        raise ImportError(message, name=missing.name) from missing


def ensure_absent(backend: Backend, path: str) -> None:
    """Raise AlreadyExists if the file exists.

    Large writes with `create` call it first, so that the source is not read for nothing.
    """
    try:
        backend.info(path)
    except NotFound:
        return
    raise file_exists(path, backend.name)


def _suggestion(name: str, known: Mapping[str, Any]) -> str:
    close = get_close_matches(name, list(known), 1)
    return f" (did you mean {close[0]!r}?)" if close else ""
