"""Lazy: commands whose modules are loaded when they are run: `redrive --help` and completion of names need none of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup


class Lazy(NamedTuple):
    """A command that is not loaded yet."""

    module: str
    """Of this package. It has a Typer named `app`, or a function of the module's name."""
    help: str

    def loaded(self, name: str, /) -> Any:
        """The command itself."""
        module = import_module(f".{self.module}", __package__)
        group = getattr(module, "app", None)
        if isinstance(group, typer.Typer):
            group.rich_markup_mode = None
            command: Any = typer.main.get_group(group)
        else:
            alone = typer.Typer(add_completion=False, rich_markup_mode=None)
            alone.command(name)(getattr(module, self.module))
            command = typer.main.get_command(alone)
        command.name = name
        if self.module != name:  # another name for the same
            command.help = self.help
        return command


class LazyGroup(TyperGroup):
    """A group that knows its commands by their names, and loads one when it is run. Belongs to one run of the command line."""

    table: ClassVar[Mapping[str, Lazy]] = {}

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = {name: TyperCommand(name, help=lazy.help) for name, lazy in self.table.items()}
        self._listing = False

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Loaded now, unless only its name and its help are wanted; None: there is none of that name."""
        lazy = self.table.get(cmd_name)
        return None if lazy is None else self.commands[cmd_name] if self._listing else lazy.loaded(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Names and help, from the table."""
        with self._names():
            super().format_commands(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Likewise."""
        with self._names():
            return super().shell_complete(ctx, incomplete)

    @contextmanager
    def _names(self) -> Iterator[None]:
        self._listing = True
        try:
            yield
        finally:
            self._listing = False
