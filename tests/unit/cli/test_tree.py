"""The command line as one whole: every command has --json, says its exit statuses, and is in the reference."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

from redrive.cli.root import COMMANDS, app
from redrive.settings import KEYS
from tests.unit.cli.command import run

DOCS = Path(__file__).parents[3] / "docs" / "reference"
ENDLESS = {"work": "Print one JSON document a line.", "serve": "Print one JSON document when it is there."}
"""They don't end by themselves."""
HEAVY = ("sqlalchemy", "alembic", "fastapi", "starlette", "uvicorn", "jinja2", "rich", "pandas", "pyarrow", "prometheus_client",
         "opentelemetry", "redis", "grpc", "asyncio")  # fmt: skip


class Leaf(NamedTuple):
    """A command that can be run."""

    path: str
    command: Any

    @property
    def options(self) -> dict[str, Any]:
        """By their long names."""
        return {name: one for one in self.command.params for name in one.opts if name.startswith("--")}


def leaves() -> list[Leaf]:
    def below(command: Any, path: str) -> Iterator[Leaf]:
        inner = getattr(command, "commands", None)
        if inner is None:
            yield Leaf(path, command)
            return
        for name in inner:
            yield from below(command.get_command(None, name), f"{path} {name}".strip())

    return list(below(typer.main.get_command(app), ""))


LEAVES = {leaf.path: leaf for leaf in leaves() if not leaf.path.startswith("dlq")}


@pytest.mark.req("O-1", "O-3")
def test_what_the_requirements_name_is_there() -> None:
    wanted = """dead list, dead show, dead replay, dead discard, events replay, backfill plan, backfill apply, backfill status,
    backfill pause, backfill resume, backfill cancel, batch giveups, batch reopen, keys show, journal tail, audit list,
    audit verify,
    doctor, layers, state inspect, state history, state explain, state retry, state reprocess, state revalidate, state rollback,
    state failures"""
    assert not {" ".join(path.split()) for path in wanted.split(",")} - LEAVES.keys()
    assert "dlq" in COMMANDS
    assert "--terminal" in LEAVES["state failures"].options


@pytest.mark.parametrize("path", LEAVES)
def test_every_command_has_json_and_says_how_it_ends(path: str) -> None:
    leaf = LEAVES[path]
    assert "--json" in leaf.options, f"{path} has no --json"
    assert re.search(r"Exit status: 0, ", leaf.command.help or ""), f"{path} does not say its exit statuses"
    said = leaf.options["--json"].help
    assert said == ENDLESS.get(path, "Print one JSON document instead.")


@pytest.mark.parametrize("path", LEAVES)
def test_one_name_means_one_thing(path: str) -> None:
    """The same words, the same help, wherever an option is."""
    same = {
        "--because": ("Why", "With --raw: why"),
        "--actor": "Who does this, for the audit. Default: you.",
        "--yes": "Don't ask; needs --max.",
        "--max": "With --yes: do nothing if there are more.",
        "--dry-run": "Say what would be done, and do nothing.",
        "--limit": ("At most so many", "So many"),
        "--kind": "Only this kind.",
    }
    options = LEAVES[path].options
    for name in same.keys() & options.keys():
        assert options[name].help.startswith(same[name]), f"{path} {name}: {options[name].help}"
    assert all(re.fullmatch(r"--[a-z]+(-[a-z]+)*", name) for name in options)
    assert all((one.help or "").endswith(".") for one in options.values()), path


def test_what_changes_something_says_why() -> None:
    acting = {path for path, leaf in LEAVES.items() if "--actor" in leaf.options}
    assert {path for path, leaf in LEAVES.items() if "--because" in leaf.options} <= acting
    assert {"dead replay", "dead discard", "keys release", "batch reopen", "erase"} <= acting


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_says_what_the_command_says(name: str) -> None:
    lazy = COMMANDS[name]
    said = (lazy.loaded(name).help or "").partition("\n\n")[0]
    assert " ".join(said.split()) == lazy.help


def test_the_reference_has_every_command_every_option_and_every_status() -> None:
    page = (DOCS / "cli.md").read_text()
    parts = {part.partition("\n")[0].strip(): part for part in page.split("\n### redrive ")[1:]}
    assert parts.keys() == LEAVES.keys()
    wrong = []
    for path, leaf in LEAVES.items():
        part = parts[path].partition("\n## ")[0]
        above = page.partition(f"### redrive {path}\n")[0].rpartition("\n## ")[2]  # what is said once for a whole chapter
        flags = [name for name in leaf.options if name not in ("--help", "--json", "--ledger", "--actor")]
        wrong += [f"redrive {path}: {name} is missing" for name in flags if name not in part and name not in above]
        told = re.search(r"Exit status: (.*)", " ".join((leaf.command.help or "").split()))
        assert told is not None
        statuses = set(re.findall(r"^\| (\d+) \|", part, re.MULTILINE))
        if statuses != set(re.findall(r"(?:^|; |or )(\d+)(?=,| or)", told[1])):
            wrong.append(f"redrive {path}: {sorted(statuses)} there, and --help says: {told[1]}")
    assert not wrong, "\n".join(wrong)


def test_the_reference_has_every_setting() -> None:
    page = (DOCS / "configuration.md").read_text()
    for key in KEYS:
        row = rf"^\| `{re.escape(key.name)}` \| `{key.variable}` \|.*\| {re.escape(key.says)} \|$"
        assert re.search(row, page, re.MULTILINE), key


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys; sys.argv = ['redrive', '--help']\n"
        "from redrive.cli import main\n"
        "try: main()\n"
        f"except SystemExit: print('LOADED', *sorted(set({HEAVY!r}) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "LOADED"
    assert all(f"\n  {name} " in done.stdout for name in COMMANDS)


def test_a_misspelt_command_is_told_its_name() -> None:
    done = run("wrok")
    assert done.returncode == 2
    assert "No such command 'wrok'. Did you mean 'work'?" in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    script = run(_REDRIVE_COMPLETE=f"source_{shell}")
    assert (script.returncode, script.stderr) == (0, "")
    assert "redrive" in script.stdout
    assert f"complete_{shell}" in script.stdout
    asked = {
        "bash": {"COMP_WORDS": "redrive dea", "COMP_CWORD": "1"},
        "zsh": {"_TYPER_COMPLETE_ARGS": "redrive dea"},
        "fish": {"_TYPER_COMPLETE_ARGS": "redrive dea", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    names = run(_REDRIVE_COMPLETE=f"complete_{shell}", **asked)
    assert names.returncode == 0
    assert "dead" in names.stdout
    assert "storage" not in names.stdout
    deeper = {name: text.replace("redrive dea", "redrive dead re") for name, text in asked.items()}
    if "COMP_CWORD" in deeper:
        deeper["COMP_CWORD"] = "2"
    assert "replay" in run(_REDRIVE_COMPLETE=f"complete_{shell}", **deeper).stdout
