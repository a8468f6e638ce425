"""Transfer: a file from one store to another, in bounded memory."""

from __future__ import annotations

from .backend import How
from .body import Progress
from .store import Store


def transfer(
    source: Store, path: str, target: Store, to: str | None = None, /, *, how: How = "atomic", progress: Progress | None = None
) -> None:
    """Copy a file between two stores. Within one backend, its own copy is used.

    Args:
        source: Store of the file.
        path: Its path.
        target: Store of the copy.
        to: Path of the copy. Default: the same.
        how: `"replace"`, `"atomic"` or `"create"`.
        progress: Function that gets the number of bytes just copied.
    """
    to = path if to is None else to
    if source.backend is target.backend and how != "create" and source.capabilities.native_copy:
        size = source.info(path).size
        Store(source.backend).copy(source.whole(path), target.whole(to))
        if progress is not None:
            progress(size)
        return
    write = {"replace": target.write, "atomic": target.write_atomic, "create": target.create}[how]
    with source.read(path) as file:
        write(to, file, progress=progress)
