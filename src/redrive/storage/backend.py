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
    """One kind of storage, configured. Making one opens nothing; it connects when first used, and again after `close`.

    Its constructor takes its name, positional, and its options by keyword, among them `retry: RetryPolicy | None = None` where it
    retries: `def __init__(self, name: str, /, *, bucket: str, retry: RetryPolicy | None = None)`. An option that is not in the
    signature is unknown, and the registry says so.

    Paths are whole (a store's root in front) and checked. Folders are made as they are needed. Every error of the client
    leaves as a StorageError with `path` and `backend`, raised `from` the client's own; only `Unavailable` says that it may pass.
    A source that fails (`body.read` raises) leaves nothing behind under the path; the store raises the source's own error.
    Threads may share one. A forked child connects anew.
    """

    name: str
    capabilities: Capabilities

    def read(self, path: str, /) -> BinaryIO:
        """The file, open for reading from its front, in bounded memory. NotFound comes here, not at the first read."""
        ...

    def read_bytes(self, path: str, /) -> bytes:
        """The whole file."""
        ...

    def write(self, path: str, body: Body, how: How, /) -> None:
        """Write a file."""
        ...

    def files(self, folder: str, /, *, recursive: bool) -> Iterator[FileInfo]:
        """The files in a folder ("": the root), or in all folders beneath it; paths are whole. Nothing where it is missing.

        A backend to which sizes and times cost extra may have `paths` too, with the same parameters, which gives paths alone.
        """
        ...

    def folders(self, folder: str, /) -> Iterator[str]:
        """The folders in a folder, one level; paths are whole."""
        ...

    def info(self, path: str, /) -> FileInfo:
        """What is known of a file; NotFound where there is none, also where it is a folder."""
        ...

    def delete(self, path: str, /) -> None:
        """The file is gone; also where there was none, so that it can be tried again."""
        ...

    def move(self, source: str, target: str, /) -> None:
        """What is at source is at target, in place of what was there. They differ."""
        ...

    def copy(self, source: str, target: str, /) -> None:
        """What is at source is at target too, in place of what was there. They differ."""
        ...

    def check(self) -> None:
        """Can it be reached, and is its container there? A StorageError says what is wrong."""
        ...

    def close(self) -> None:
        """Let go of connections. Closing twice is fine."""
        ...
