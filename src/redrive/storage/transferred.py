"""Transfer: a file from one store to another, in bounded memory."""

from __future__ import annotations

from .backend import How
from .body import Progress
from .store import Store


def transfer(
    source: Store, path: str, target: Store, to: str | None = None, /, *, how: How = "atomic", progress: Progress | None = None
) -> None:
    """Copy a file between any two stores; within one backend by its own copy, where it has one.

    to: the path in the target (default: the same). how: "replace", "atomic" or "create". progress: called with the number of
    bytes that have just been moved.
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
