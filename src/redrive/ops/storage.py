"""Operations on the files of configured stores."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from ..app import App
from ..core.lazy import deferred
from ..errors import StorageError
from .project.settings import known as known_settings
from .project.user_code import Unreadable, import_object, suggest

if TYPE_CHECKING:
    from .. import storage
    from ..storage import FileInfo, Registry, Store
else:  # not before files are wanted
    (storage,) = deferred("redrive", "storage")

VARIABLE = "REDRIVE_STORAGE"
DEFAULT = "storage.toml"
EXAMPLE = 'a TOML file with [stores.NAME] type = "local" options = { root = "data" }'
How: TypeAlias = Literal["atomic", "create"]


class Place(NamedTuple):
    """A file or folder of a store."""

    store: Store
    path: str

    def __str__(self) -> str:
        return f"{self.store.name}:{self.path}"


class Listed(NamedTuple):
    """The contents of a folder."""

    folders: tuple[str, ...]
    files: tuple[FileInfo, ...]


class Copying(NamedTuple):
    """A file to copy."""

    source: Place
    target: Place
    size: int


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of checking a store."""

    store: str
    backend: str
    type: str
    problem: str | None
    """None: no problem was found."""
    seconds: float
    promises: tuple[str, ...]
    """Capabilities of its backend."""


@contextmanager
def stores(source: str | None = None, /) -> Iterator[Registry]:
    """Open the stores of a TOML file, or of `module:app`, for the block.

    Raises:
        Unreadable: The source is not found, or not valid.
    """
    config = source or known_settings().storage or DEFAULT
    if config.partition(":")[2].isidentifier() and not Path(config).exists():
        app = import_object(config)
        if not isinstance(app, App):
            raise Unreadable(f"{config} must be an App, not {type(app).__name__}")
        with app.stores as registry:
            yield registry
        return
    try:
        registry = storage.Registry(storage.RegistryConfig.from_toml(config))
    except FileNotFoundError:
        hint = "" if source else f" (pass --config, or set {VARIABLE})"
        raise Unreadable(f"file {config} not found{hint}; create {EXAMPLE}") from None
    except OSError as wrong:
        raise Unreadable(f"{config} cannot be read: {wrong.strerror}") from wrong
    except (TypeError, ValueError) as wrong:
        raise Unreadable(str(wrong)) from wrong
    with registry:
        yield registry


def place(registry: Registry, text: str, /) -> Place:
    """Parse `STORE:PATH`. An empty path is the root."""
    name, _, path = text.partition(":")
    _check_known(registry, text)
    try:
        return Place(registry.get_store(name), path)
    except ValueError as wrong:  # A variable is not set.
        raise Unreadable(str(wrong)) from wrong


def _check_known(registry: Registry, text: str) -> None:
    name, colon, _ = text.partition(":")
    known = list(registry.config.stores)
    if name in known:
        return
    problem = (
        f"unknown store {name!r}{suggest(name, known)}; use one of: {', '.join(known) or 'none'}"
    )
    if text and not colon:
        problem += (
            ". A file of a store is written STORE:PATH; `put` copies a file into a store, `cat` "
            "prints one"
        )
    raise Unreadable(problem)


def listed(where: Place, /, *, recursive: bool) -> Listed:
    """Return the contents of a folder, by name."""
    files = sorted(where.store.list(where.path, recursive=recursive), key=lambda info: info.path)
    folders = () if recursive else tuple(sorted(where.store.folders(where.path)))
    return Listed(folders, tuple(files))


def copies(source: Place, target: Place, /, *, recursive: bool) -> list[Copying]:
    """Plan a copy: one file, or all files of a folder, which keep their paths below the target."""
    if not recursive:
        to = target.path or source.path.rpartition("/")[2]
        if target.path.endswith("/"):
            to = target.path + source.path.rpartition("/")[2]
        return [Copying(source, Place(target.store, to), source.store.info(source.path).size)]
    start = f"{source.path}/" if source.path else ""
    under = f"{target.path.rstrip('/')}/" if target.path else ""
    return [
        Copying(
            Place(source.store, info.path),
            Place(target.store, under + info.path[len(start) :]),
            info.size,
        )
        for info in source.store.list(source.path)
    ]


def copy(file: Copying, /, *, how: How, progress: Callable[[int], object] | None = None) -> None:
    """Copy a file between any two stores."""
    source, target = file.source, file.target
    storage.transfer(
        source.store, source.path, target.store, target.path, how=how, progress=progress
    )


def check(registry: Registry, names: Sequence[str], /, *, write: bool) -> list[Checked]:
    """Check these stores, or all. `write`: also write, read and delete a file."""
    for name in names:
        _check_known(registry, name)
    return [_check_store(registry, name, write) for name in names or registry.config.stores]


def _check_store(registry: Registry, name: str, write: bool) -> Checked:
    backend = registry.config.stores[name].backend
    start, problem = time.monotonic(), None
    promises: list[str] = []
    try:
        store = registry.get_store(name)
        promises = [
            each.replace("_", " ")
            for each in store.capabilities.__slots__
            if getattr(store.capabilities, each)
        ]
        store.check()
        if write:
            _check_write(store)
    except (StorageError, ImportError, ValueError) as error:  # Such as a variable that is not set.
        problem = str(error)
    seconds = round(time.monotonic() - start, 3)
    type_ = registry.config.backends[backend].type
    return Checked(name, backend, type_, problem, seconds, tuple(promises))


def _check_write(store: Store) -> None:
    path, data = f"redrive-check-{secrets.token_hex(6)}", secrets.token_bytes(1000)
    store.create(path, data)
    try:
        if store.read_bytes(path) != data:
            raise StorageError(
                "the file read differs from the file written", path=path, backend=store.name
            )
    finally:
        store.delete(path)
