"""Backend: what a kind of storage has to do. `Store` puts the rest around it: paths, roots, progress."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Literal, Protocol, TypeAlias

from .body import Body
from .info import Capabilities, FileInfo

How: TypeAlias = Literal["replace", "atomic", "create"]
"""How a file is written.

replace: what was there is gone; a reader may see a part, where the backend cannot do better.
atomic: a reader gets the old bytes or the new ones, and what was written outlives a crash of the machine.
create: as atomic, and only if nothing is there; else AlreadyExists, and nothing has changed.
"""


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
            NotFound: There is no such file.
        """
        ...

    def read_bytes(self, path: str, /) -> bytes:
        """Read a whole file.

        Args:
            path: The path.

        Returns:
            Its bytes.
        """
        ...

    def write(self, path: str, body: Body, how: How, /) -> None:
        """Write a file.

        Args:
            path: The path.
            body: The bytes.
            how: `"replace"`, `"atomic"` or `"create"`.
        """
        ...

    def files(self, folder: str, /, *, recursive: bool) -> Iterator[FileInfo]:
        """List the files in a folder. A missing folder is empty.

        A backend may also have `paths` with the same parameters, if sizes and times cost extra.

        Args:
            folder: The folder. `""` is the root.
            recursive: Include folders below.

        Returns:
            The files, with complete paths.
        """
        ...

    def folders(self, folder: str, /) -> Iterator[str]:
        """List the folders in a folder, one level.

        Args:
            folder: The folder.

        Returns:
            Complete paths.
        """
        ...

    def info(self, path: str, /) -> FileInfo:
        """Return size, time and etag of a file.

        Args:
            path: The path.

        Returns:
            The description.

        Raises:
            NotFound: There is no such file, or it is a folder.
        """
        ...

    def delete(self, path: str, /) -> None:
        """Delete a file. A missing file is not an error.

        Args:
            path: The path.
        """
        ...

    def move(self, source: str, target: str, /) -> None:
        """Move a file, and replace the target.

        Args:
            source: Path of the file.
            target: Another path.
        """
        ...

    def copy(self, source: str, target: str, /) -> None:
        """Copy a file, and replace the target.

        Args:
            source: Path of the file.
            target: Another path.
        """
        ...

    def check(self) -> None:
        """Check that the storage can be reached and its container exists.

        Raises:
            StorageError: It says what is wrong.
        """
        ...

    def close(self) -> None:
        """Close the connections. You may close twice."""
        ...
