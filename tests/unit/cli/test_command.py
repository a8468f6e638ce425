"""Groups of options: a dataclass stands for the options of its fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from redrive.cli.command import CommandGroup, expand_option_groups

Name = Annotated[str, typer.Option("--name")]


@dataclass(frozen=True, slots=True)
class Shared:
    """Options that two commands share."""

    name: Name = "ann"
    count: Annotated[int, typer.Option("--count")] = 1


@dataclass(frozen=True, slots=True)
class Renamed(Shared):
    """The same with another default."""

    name: Name = "bob"


app = CommandGroup(help="Commands for the test.")


@app.command()
def first(*, word: Annotated[str, typer.Argument()], shared: Shared) -> None:
    """Print the options."""
    print(word, shared.name, shared.count)


@app.command()
def second(*, shared: Renamed) -> None:
    """Print the options."""
    print(shared.name, shared.count)


def test_a_command_receives_its_group_of_options() -> None:
    run = CliRunner().invoke
    assert run(app, ["first", "hi", "--count", "3"]).output == "hi ann 3\n"
    assert run(app, ["second"]).output == "bob 1\n"


def test_a_function_without_groups_is_unchanged() -> None:
    def plain(word: str) -> None: ...

    assert expand_option_groups(plain) is plain
