"""Every command stands in docs/reference/cli.md, with its options and its exit status."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from redrive.cli.root import app
from tests.unit.cli.command import call


def commands(group: Any, *names: str) -> list[tuple[str, ...]]:
    """Every command there is, by its words."""
    found: list[tuple[str, ...]] = []
    for name in group.commands:
        command = group.get_command(None, name)  # loaded now
        inside = getattr(command, "commands", None)
        found += commands(command, *names, name) if inside else [(*names, name)]
    return found


EVERY = commands(typer.main.get_command(app))


def test_every_command_is_documented_with_its_exit_status() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    for command in EVERY:
        if command[0] == "dlq":
            continue
        section = page.partition(f"### redrive {' '.join(command)}\n")[2].partition("\n### ")[0]
        assert section, f"docs/reference/cli.md has no section for redrive {' '.join(command)}"
        status, printed = call(*command, "--help")
        said = " ".join(printed.split())
        assert (status, "Exit status: 0, " in said) == (0, True), command
        statuses = {word.rstrip(",") for word in said.partition("Exit status:")[2].split() if word.rstrip(",").isdigit()}
        for number in statuses & {"0", "1", "2", "3", "4", "130"}:
            assert f"| {number} |" in section, f"{command}: {number} is not in the table of its exit statuses"
        for option in ("--json", "--because", "--yes", "--max", "--anchor", "--force", "--quiet"):
            assert (option in section) == (option in said.partition("Options:")[2]), f"{command}: {option}"
