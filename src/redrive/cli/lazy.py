"""Lazy: commands whose modules are loaded when they run. `redrive --help` and completion load none of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from .command import Command


class Lazy(NamedTuple):
    """A command that is not loaded yet."""

    module: str
    """Of this package. It has a Typer named `app`, or a function of the module's name."""
    help: str
    """The summary, without a full stop."""
    section: str = "Commands"
    """Of `redrive --help`."""

    def loaded(self, name: str, /) -> Any:
        """The command itself."""
        module = import_module(f".{self.module}", __package__)
        function = self.module.rpartition(".")[2]
        group = getattr(module, "app", None)
        if isinstance(group, typer.Typer):
            group.rich_markup_mode = None
            command: Any = typer.main.get_group(group)
        else:
            alone = typer.Typer(add_completion=False, rich_markup_mode=None)
            alone.command(name, cls=Command)(getattr(module, function))
            command = typer.main.get_command(alone)
        command.name = name
        if function not in (name, "app"):  # an alias
            command.help = self.help
        return command


class LazyGroup(TyperGroup):
    """A group that knows its commands by name, and loads one when it runs. Belongs to one run of the command line."""

    table: ClassVar[Mapping[str, Lazy]] = {}

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = {name: TyperCommand(name, help=lazy.help) for name, lazy in self.table.items()}
        self._listing = False

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Load a command, unless only names and summaries are needed; None: there is none of this name."""
        lazy = self.table.get(cmd_name)
        return None if lazy is None else self.commands[cmd_name] if self._listing else lazy.loaded(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Names and summaries from the table, by section."""
        sections: dict[str, list[tuple[str, str]]] = {}
        longest = max(map(len, self.table))
        for name, lazy in self.table.items():
            sections.setdefault(lazy.section, []).append((name.ljust(longest), lazy.help))
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Complete names from the table."""
        with self._names():
            return super().shell_complete(ctx, incomplete)

    @contextmanager
    def _names(self) -> Iterator[None]:
        self._listing = True
        try:
            yield
        finally:
            self._listing = False
