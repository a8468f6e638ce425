"""`redrive storage`: files of the configured stores."""

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
from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from ...core.text import pluralise
from ...errors import AlreadyExists, PathInvalid, StorageError, Unavailable
from ...ops import storage as ops
from ...ops.render import document
from ...ops.target.imported import Unreadable
from ..command import Commands
from ..options import INTERRUPTED, NOT_DONE, AsJson, option
from ..render.moments import ago, utc
from ..render.output import BAD_INPUT, complain, console, print_json, show
from ..render.progress import bar
from ..render.table import Column, fitted

app = Commands(help="List, read, write and copy stored files.")

NOT_REACHED = 3
SOURCES = f"TOML file or module:app (default: ${ops.VARIABLE}, {ops.DEFAULT})"
Config = Annotated[str | None, option("--config", "FILE", SOURCES)]
FilePath = Annotated[str, typer.Argument(metavar="STORE:PATH", help="File in a store")]
Recursive = Annotated[bool, typer.Option("--recursive", "-r", help="Include all subfolders")]
IfAbsent = Annotated[bool, typer.Option("--if-absent", help="Only if the file does not exist")]


@contextmanager
def opened(config: str | None) -> Iterator[Any]:
    """The stores. What goes wrong is one line and an exit status, never a traceback."""
    try:
        with ops.stores(config) as registry:
            yield registry
    except Unavailable as problem:
        complain(str(problem))
        raise typer.Exit(NOT_REACHED) from None
    except (Unreadable, PathInvalid, ImportError) as wrong:
        complain(str(wrong))
        raise typer.Exit(BAD_INPUT) from None
    except StorageError as problem:
        complain(str(problem))
        raise typer.Exit(NOT_DONE) from None
    except KeyboardInterrupt:
        complain("interrupted; completed files stay, and no file is incomplete")
        raise typer.Exit(INTERRUPTED) from None


@app.command()
def ls(
    where: Annotated[
        str | None, typer.Argument(metavar="STORE[:FOLDER]", help="Store or folder (default: all stores)", show_default=False)
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
    with opened(config) as registry:
        if where is None:
            _stores(registry, as_json)
            return
        found = ops.listed(ops.place(registry, where), recursive=recursive)
        if as_json:
            print_json(document(found))
            return
        out = console()
        now = datetime.now(timezone.utc)
        rows: list[dict[str, str | Text]] = [{"size": "", "changed": "", "UTC": "", "path": f"{name}/"} for name in found.folders]
        rows += [
            {"size": f"{info.size:,}", "changed": ago(info.modified_at, now), "UTC": utc(info.modified_at), "path": info.path}
            for info in found.files
        ]
        columns = [Column("size", number=True), Column("changed", leave=1), Column("UTC", leave=2), Column("path", least=20)]
        show(out, fitted(columns, rows, out.width) if rows else Text("No files."))


def _stores(registry: Any, as_json: bool) -> None:
    found = [
        {
            "store": name,
            "type": registry.config.backends[profile.backend].type,
            "backend": profile.backend,
            "root": profile.root_path,
        }
        for name, profile in registry.config.stores.items()
    ]
    if as_json:
        print_json(found)
        return
    out = console()
    columns = [Column("store", least=12), Column("type"), Column("backend", leave=1), Column("root", leave=2)]
    show(out, fitted(columns, found, out.width) if found else Text("No stores configured."))


@app.command()
def cat(where: FilePath, config: Config = None, as_json: AsJson = False) -> None:
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
    with opened(config) as registry:
        place = ops.place(registry, where)
        if not as_json:
            with place.store.read(place.path) as file:
                shutil.copyfileobj(file, sys.stdout.buffer, 1024 * 1024)
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
    file: Annotated[str, typer.Argument(metavar="FILE", help="Local file (-: standard input)")],
    where: FilePath,
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
    with opened(config) as registry:
        place = ops.place(registry, where)
        if where.endswith(("/", ":")):
            place = place._replace(path=place.path + Path(file).name)
        write = place.store.create if if_absent else place.store.write_atomic
        with _source(file) as (data, size), bar(place.path, size) as progress:
            moved = 0

            def count(many: int) -> None:
                nonlocal moved
                moved += many
                progress(many)

            write(place.path, data, progress=count)
    _said([{"path": str(place), "size": moved}], as_json)


@contextmanager
def _source(file: str) -> Iterator[tuple[BinaryIO, int | None]]:
    if file == "-":
        yield sys.stdin.buffer, None
        return
    try:
        with Path(file).open("rb") as opened_:
            yield opened_, Path(file).stat().st_size
    except (FileNotFoundError, IsADirectoryError, PermissionError) as wrong:
        raise Unreadable(f"{file}: cannot be read ({wrong.strerror})") from wrong


@app.command()
def cp(
    source: FilePath,
    target: Annotated[str, typer.Argument(metavar="STORE:PATH", help="Target file, or folder if it ends with /")],
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
    done: list[dict[str, Any]] = []
    with _so_far(done) as planned, opened(config) as registry:
        plan = ops.copies(ops.place(registry, source), ops.place(registry, target), recursive=recursive)
        planned(len(plan))
        if not plan:
            complain(f"{source}: no files")
            raise typer.Exit(NOT_DONE)
        with bar(source if recursive else plan[0].target.path, sum(one.size for one in plan)) as progress:
            for one in plan:
                copied = _copied(one, progress, if_absent=if_absent, alone=not recursive)
                done.append({"from": str(one.source), "path": str(one.target), "size": one.size, "copied": copied})
    _said(done, as_json)


def _copied(one: ops.Copying, progress: Callable[[int], object], *, if_absent: bool, alone: bool) -> bool:
    try:
        ops.copy(one, how="create" if if_absent else "atomic", progress=progress)
    except AlreadyExists:
        if alone:
            raise
        progress(one.size)
        return False
    return True


@contextmanager
def _so_far(done: list[dict[str, Any]]) -> Iterator[Callable[[int], None]]:
    """Gives a function that is told how many there are; where it ends before the last of many, say how far it came."""
    planned = 0

    def told(many: int) -> None:
        nonlocal planned
        planned = many

    try:
        yield told
    except typer.Exit:
        if planned > 1:
            complain(f"{len(done):,} of {planned:,} files copied; --recursive --if-absent continues with the others")
        raise


def _said(done: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(done)
        return
    new = [one for one in done if one.get("copied", True)]
    what = done[0]["path"] if len(done) == 1 else pluralise(len(new), "file")
    left = f"; {len(done) - len(new):,} existed already" if len(new) < len(done) else ""
    show(console(), Text(f"{what}: {pluralise(sum(one['size'] for one in new), 'byte')} written{left}"))


@app.command()
def check(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="STORE", help="Names of stores (default: all)", show_default=False)
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Include a test file, which is written, read and deleted")] = False,
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
    with opened(config) as registry:
        found = ops.check(registry, names or [], write=write)
    well = all(each.problem is None for each in found)
    if as_json:
        print_json(document(found))
        raise typer.Exit(0 if well else NOT_DONE)
    shown: list[Any] = []
    for each in found:
        state = Text("ok", style="green") if each.problem is None else Text("failed", style="bold red")
        shown.append(Text(f"{each.store} ({each.type}): ") + state + Text(f", {each.seconds:.3f} s", style="dim"))
        said = f"guarantees: {', '.join(each.promises)}" if each.problem is None else each.problem
        shown.append(Padding(Text(said, style="dim" if each.problem is None else ""), (0, 0, 0, 2), expand=False))
    show(console(), Group(*shown) if shown else Text("No stores configured."))
    raise typer.Exit(0 if well else NOT_DONE)
