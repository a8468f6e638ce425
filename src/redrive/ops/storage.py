"""Storage: files of the stores that a configuration names, for whoever is at the terminal."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from ..app import App
from ..errors import StorageError
from .settings import known as known_settings
from .target.imported import Unreadable, imported, meant

if TYPE_CHECKING:
    from ..storage import FileInfo, Registry, Store

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
    """What is in a folder."""

    folders: tuple[str, ...]
    files: tuple[FileInfo, ...]


class Copying(NamedTuple):
    """One file to be copied."""

    source: Place
    target: Place
    size: int


@dataclass(frozen=True, slots=True)
class Checked:
    """How a store was found."""

    store: str
    backend: str
    type: str
    problem: str | None
    """None: it is well."""
    seconds: float
    promises: tuple[str, ...]
    """What its backend can promise."""


@contextmanager
def stores(source: str | None = None, /) -> Iterator[Registry]:
    """The stores of a TOML file, or of `module:app`, for the block. Unreadable says what is wrong with it."""
    from ..storage import Registry, RegistryConfig  # noqa: PLC0415  # not before files are wanted

    found = source or known_settings().storage or DEFAULT
    module, colon, name = found.partition(":")
    if colon and name.isidentifier() and not Path(found).exists():
        app = imported(module, name)
        if not isinstance(app, App):
            raise Unreadable(f"{found} must be an App, not {type(app).__name__}")
        with app.stores as registry:
            yield registry
        return
    try:
        registry = Registry(RegistryConfig.from_toml(found))
    except FileNotFoundError:
        hint = "" if source else f" (pass --config, or set {VARIABLE})"
        raise Unreadable(f"file {found} not found{hint}; create {EXAMPLE}") from None
    except OSError as wrong:
        raise Unreadable(f"{found} cannot be read: {wrong.strerror}") from wrong
    except (TypeError, ValueError) as wrong:
        raise Unreadable(str(wrong)) from wrong
    with registry:
        yield registry


def place(registry: Registry, text: str, /) -> Place:
    """A `STORE:PATH`; the path may be empty, for the root."""
    name, _, path = text.partition(":")
    _known(registry, text)
    try:
        return Place(registry.get_store(name), path)
    except ValueError as wrong:  # a variable that is not set
        raise Unreadable(str(wrong)) from wrong


def _known(registry: Registry, text: str) -> None:
    name, colon, _ = text.partition(":")
    known = list(registry.config.stores)
    if name in known:
        return
    what = f"unknown store {name!r}{meant(name, known)}; use one of: {', '.join(known) or 'none'}"
    hint = (
        ""
        if colon or not text
        else ". A file of a store is written STORE:PATH; `put` copies a file into a store, `cat` prints one"
    )
    raise Unreadable(what + hint)


def listed(where: Place, /, *, recursive: bool) -> Listed:
    """What is in a folder, by name."""
    files = sorted(where.store.list(where.path, recursive=recursive), key=lambda info: info.path)
    folders = () if recursive else tuple(sorted(where.store.folders(where.path)))
    return Listed(folders, tuple(files))


def copies(source: Place, target: Place, /, *, recursive: bool) -> list[Copying]:
    """What a copy is about to do: one file, or all in a folder, which keep their names beneath the target."""
    if not recursive:
        to = target.path or source.path.rpartition("/")[2]
        if target.path.endswith("/"):
            to = target.path + source.path.rpartition("/")[2]
        return [Copying(source, Place(target.store, to), source.store.info(source.path).size)]
    start = f"{source.path}/" if source.path else ""
    under = f"{target.path.rstrip('/')}/" if target.path else ""
    return [
        Copying(Place(source.store, info.path), Place(target.store, under + info.path[len(start) :]), info.size)
        for info in source.store.list(source.path)
    ]


def copy(one: Copying, /, *, how: How, progress: Callable[[int], object] | None = None) -> None:
    """Copy one file, between any two stores."""
    from ..storage import transfer  # noqa: PLC0415

    transfer(one.source.store, one.source.path, one.target.store, one.target.path, how=how, progress=progress)


def check(registry: Registry, names: Sequence[str], /, *, write: bool) -> list[Checked]:
    """Look at these stores, or at all. write: put a file there, read it, take it away."""
    for name in names:
        _known(registry, name)
    return [_checked(registry, name, write) for name in names or registry.config.stores]


def _checked(registry: Registry, name: str, write: bool) -> Checked:
    backend = registry.config.stores[name].backend
    began, problem = time.monotonic(), None
    promises: list[str] = []
    try:
        store = registry.get_store(name)
        promises = [each.replace("_", " ") for each in store.capabilities.__slots__ if getattr(store.capabilities, each)]
        store.check()
        if write:
            _tried(store)
    except (
        StorageError,
        ImportError,
        ValueError,
    ) as error:  # a variable that is not set, say: the others are looked at all the same
        problem = str(error)
    took = round(time.monotonic() - began, 3)
    return Checked(name, backend, registry.config.backends[backend].type, problem, took, tuple(promises))


def _tried(store: Store) -> None:
    path, data = f"redrive-check-{secrets.token_hex(6)}", secrets.token_bytes(1000)
    store.create(path, data)
    try:
        if store.read_bytes(path) != data:
            raise StorageError("the file read differs from the file written", path=path, backend=store.name)
    finally:
        store.delete(path)
