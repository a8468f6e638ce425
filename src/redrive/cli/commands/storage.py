"""`redrive storage`: list, read, write, copy and check files of the configured stores."""

from __future__ import annotations

import base64
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from ...core.text import pluralise
from ...errors import AlreadyExists, PathInvalid, StorageError, Unavailable
from ...ops import storage as ops
from ...ops.project.user_code import Unreadable
from ...ops.render import ago, utc
from ..command import CommandGroup
from ..errors import BAD_INPUT, INTERRUPTED, NOT_DONE, complain, fail
from ..options import AsJson, argument, flag, option
from ..render import Column, dim, indent, print_json, print_rows, print_table, show
from ..render.progress import byte_progress

app = CommandGroup(help="List, read, write and copy stored files.")

BACKEND_UNREACHABLE = 3
COPY_BYTES = 1024 * 1024
Config = Annotated[
    str | None,
    option(
        "--config", "FILE", f"TOML file or module:app (default: ${ops.VARIABLE}, {ops.DEFAULT})"
    ),
]
FilePath = Annotated[str, typer.Argument(metavar="STORE:PATH", help="File in a store")]
Recursive = Annotated[bool, typer.Option("--recursive", "-r", help="Include all subfolders")]
IfAbsent = Annotated[bool, flag("--if-absent", "Only if the file does not exist")]


@contextmanager
def open_stores(config: str | None) -> Iterator[Any]:
    """Open the configured stores. An expected error is one line and an exit code."""
    try:
        with ops.stores(config) as registry:
            yield registry
    except Unavailable as error:
        fail(BACKEND_UNREACHABLE, str(error))
    except (Unreadable, PathInvalid, ImportError) as error:
        fail(BAD_INPUT, str(error))
    except StorageError as error:
        fail(NOT_DONE, str(error))
    except KeyboardInterrupt:
        fail(INTERRUPTED, "interrupted; completed files stay, and no file is incomplete")


@app.command()
def ls(
    *,
    folder: Annotated[
        str | None, argument("STORE[:FOLDER]", "Store or folder (default: all stores)")
    ] = None,
    recursive: Recursive = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List stores or the files of a store.

    Without STORE the configured stores are listed.

    Examples:
        redrive storage ls
        redrive storage ls raw:crm/2026 --recursive

    Exit codes:
        0: listed, also when there are none
        1: access denied
        2: invalid option, unknown store, or no configuration
        3: backend not reachable
    """
    with open_stores(config) as registry:
        if folder is None:
            _list_stores(registry, as_json)
            return
        listing = ops.listed(ops.place(registry, folder), recursive=recursive)
    if as_json:
        print_json(listing)
    elif listing.folders or listing.files:
        now = datetime.now(timezone.utc)
        rows = [("", "", "", f"{name}/") for name in listing.folders]
        rows += [
            (f"{file.size:,}", ago(file.modified_at, now), utc(file.modified_at), file.path)
            for file in listing.files
        ]
        print_table(FILE_COLUMNS, rows)
    else:
        show("No files.")


FILE_COLUMNS: list[Column[tuple[str, str, str, str]]] = [
    Column("size", lambda row: row[0], is_number=True),
    Column("changed", lambda row: row[1], drop_order=1),
    Column("UTC", lambda row: row[2], drop_order=2),
    Column("path", lambda row: row[3], min_width=20),
]
STORE_COLUMNS: list[Column[dict[str, str]]] = [
    Column("store", lambda store: store["store"], min_width=12),
    Column("type", lambda store: store["type"]),
    Column("backend", lambda store: store["backend"], drop_order=1),
    Column("root", lambda store: store["root"], drop_order=2),
]


def _list_stores(registry: Any, as_json: bool) -> None:
    stores = [
        {
            "store": name,
            "type": registry.config.backends[profile.backend].type,
            "backend": profile.backend,
            "root": profile.root_path,
        }
        for name, profile in registry.config.stores.items()
    ]
    print_rows(stores, as_json, STORE_COLUMNS, empty="No stores configured.")


@app.command()
def cat(*, path: FilePath, config: Config = None, as_json: AsJson = False) -> None:
    """Print a stored file.

    The file is written to standard output, byte for byte.

    Examples:
        redrive storage cat raw:crm/orders.json
        redrive storage cat raw:crm/orders.json > orders.json

    Exit codes:
        0: printed
        1: no such file, or access denied
        2: invalid option, unknown store, no path, or no configuration
        3: backend not reachable
    """
    with open_stores(config) as registry:
        place = ops.place(registry, path)
        if not as_json:
            with place.store.read(place.path) as file:
                shutil.copyfileobj(file, sys.stdout.buffer, COPY_BYTES)
            sys.stdout.buffer.flush()
            return
        data = place.store.read_bytes(place.path)
        try:
            content = {"text": data.decode()}
        except UnicodeDecodeError:
            content = {"base64": base64.b64encode(data).decode()}
        print_json({"path": place.path, "size": len(data), **content})


@app.command()
def put(
    *,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Local file (-: standard input)")],
    path: FilePath,
    if_absent: IfAbsent = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Write a local file into a store.

    The file is written completely or not at all.

    Examples:
        redrive storage put orders.json raw:crm/orders.json
        redrive storage put - raw:crm/orders.json --if-absent

    Exit codes:
        0: written
        1: the file exists (--if-absent), or access denied
        2: invalid option, unknown file or store, no path, or no configuration
        3: backend not reachable
        130: interrupted; nothing was changed
    """
    with open_stores(config) as registry:
        place = ops.place(registry, path)
        if path.endswith(("/", ":")):
            place = place._replace(path=place.path + Path(file).name)
        write = place.store.create if if_absent else place.store.write_atomic
        written = 0
        with _open_local(file) as (data, size), byte_progress(place.path, size) as advance:

            def count(chunk_bytes: int) -> None:
                nonlocal written
                written += chunk_bytes
                advance(chunk_bytes)

            write(place.path, data, progress=count)
    _show_written([{"path": str(place), "size": written}], as_json)


@contextmanager
def _open_local(file: str) -> Iterator[tuple[BinaryIO, int | None]]:
    if file == "-":
        yield sys.stdin.buffer, None
        return
    try:
        with Path(file).open("rb") as data:
            yield data, Path(file).stat().st_size
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise Unreadable(f"{file}: cannot be read ({error.strerror})") from error


@app.command()
def cp(
    *,
    source: FilePath,
    target: Annotated[
        str, typer.Argument(metavar="STORE:PATH", help="Target file, or folder if it ends with /")
    ],
    recursive: Recursive = False,
    if_absent: IfAbsent = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Copy files between stores.

    Each file is written completely or not at all. After an error the files copied so far stay.
    --recursive --if-absent continues with the others.

    Examples:
        redrive storage cp raw:crm/orders.json archive:crm/orders.json
        redrive storage cp raw:crm/ archive:crm/ --recursive --if-absent

    Exit codes:
        0: all copied
        1: no such file, the file exists (--if-absent with one file), or access denied
        2: invalid option, unknown store, no path, or no configuration
        3: backend not reachable
        130: interrupted
    """
    copied: list[dict[str, Any]] = []
    plan: list[ops.Copying] = []
    try:
        with open_stores(config) as registry:
            places = ops.place(registry, source), ops.place(registry, target)
            plan += ops.copies(*places, recursive=recursive)
            if not plan:
                fail(NOT_DONE, f"{source}: no files")
            name = source if recursive else plan[0].target.path
            with byte_progress(name, sum(file.size for file in plan)) as advance:
                for file in plan:
                    is_new = _copy(file, advance, if_absent=if_absent, is_single=not recursive)
                    paths = {"from": str(file.source), "path": str(file.target)}
                    copied.append({**paths, "size": file.size, "copied": is_new})
    except typer.Exit:
        if len(plan) > 1:
            count = f"{len(copied):,} of {len(plan):,} files copied"
            complain(f"{count}; --recursive --if-absent continues with the others")
        raise
    _show_written(copied, as_json)


def _copy(
    file: ops.Copying, advance: Callable[[int], object], *, if_absent: bool, is_single: bool
) -> bool:
    """Copy a file. Return False if it exists and --if-absent skips it."""
    try:
        ops.copy(file, how="create" if if_absent else "atomic", progress=advance)
    except AlreadyExists:
        if is_single:
            raise
        advance(file.size)
        return False
    return True


def _show_written(files: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(files)
        return
    new = [file for file in files if file.get("copied", True)]
    name = files[0]["path"] if len(files) == 1 else pluralise(len(new), "file")
    size = pluralise(sum(file["size"] for file in new), "byte")
    existing = len(files) - len(new)
    show(f"{name}: {size} written" + (f"; {existing:,} existed already" if existing else ""))


@app.command()
def check(
    *,
    names: Annotated[list[str] | None, argument("STORE", "Names of stores (default: all)")] = None,
    write: Annotated[
        bool, flag("--write", "Include a test file, which is written, read and deleted")
    ] = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Check whether stores are reachable.

    Also shows the guarantees of each backend. Changes nothing, unless --write is set.

    Examples:
        redrive storage check
        redrive storage check raw --write

    Exit codes:
        0: all reachable
        1: at least one problem
        2: invalid option, unknown store, or no configuration
    """
    with open_stores(config) as registry:
        checks = ops.check(registry, names or [], write=write)
    if as_json:
        print_json(checks)
    else:
        parts: list[RenderableType] = []
        for store in checks:
            is_ok = store.problem is None
            state = Text("ok", style="green") if is_ok else Text("failed", style="bold red")
            seconds = Text(f", {store.seconds:.3f} s", style="dim")
            guarantees = dim(f"guarantees: {', '.join(store.promises)}")
            parts.append(Text(f"{store.store} ({store.type}): ") + state + seconds)
            parts.append(indent(guarantees if is_ok else Text(str(store.problem))))
        show(Group(*parts) if parts else "No stores configured.")
    raise typer.Exit(0 if all(store.problem is None for store in checks) else NOT_DONE)
