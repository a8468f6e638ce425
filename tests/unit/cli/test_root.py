"""The command line as a whole: help, examples, exit codes, and one meaning for each option."""

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
from tests.style.prose import MAX_IDIOM, MAX_JOINED, measure
from tests.unit.cli.command import call, run
from tests.unit.cli.typed import problem

DOCS = Path(__file__).parents[3] / "docs" / "reference"
ENDLESS = {
    "work": "Output as JSON lines, same as --log-format json",
    "serve": "Output as one JSON document at the start",
    "watch": "Output as JSON lines, one for each check",
}
"""Commands that run until they are stopped."""
SUMMARY = 45
HEAVY = ("sqlalchemy", "alembic", "fastapi", "starlette", "uvicorn", "jinja2", "rich", "pandas", "pyarrow", "prometheus_client",
         "opentelemetry", "redis", "grpc", "asyncio")  # fmt: skip


class Leaf(NamedTuple):
    """A command that can be run."""

    path: str
    command: Any

    @property
    def options(self) -> dict[str, Any]:
        """Options by their long names."""
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
def test_every_command_of_the_requirements_exists() -> None:
    wanted = """dead list, dead show, dead replay, dead discard, events replay, backfill plan, backfill apply, backfill status,
    backfill pause, backfill resume, backfill cancel, batch giveups, batch reopen, keys show, journal tail, audit list,
    audit verify,
    doctor, layers, state inspect, state history, state explain, state retry, state reprocess, state revalidate, state rollback,
    state failures"""
    assert not {" ".join(path.split()) for path in wanted.split(",")} - LEAVES.keys()
    assert "dlq" in COMMANDS
    assert "--terminal" in LEAVES["state failures"].options


@pytest.mark.parametrize("path", LEAVES)
def test_every_command_has_json_examples_and_exit_codes(path: str) -> None:
    leaf = LEAVES[path]
    assert "--json" in leaf.options, f"{path} has no --json"
    assert leaf.options["--json"].help == ENDLESS.get(path, "Output as one JSON document")
    assert 0 in leaf.command.exit_codes
    assert list(leaf.command.exit_codes) == sorted(leaf.command.exit_codes)
    assert leaf.command.examples
    for example in leaf.command.examples:
        assert example.startswith(f"redrive {path}"), example
        assert problem(example) is None, f"{example}: {problem(example)}"
        assert len(example) <= 120, example


@pytest.mark.parametrize("path", LEAVES)
def test_summaries_are_short_and_options_are_phrases(path: str) -> None:
    leaf = LEAVES[path]
    summary = leaf.command.summary
    assert len(summary) <= SUMMARY, f"{path}: {len(summary)}: {summary}"
    assert re.fullmatch(r"[A-Z][^;:]+[^.]\.", summary), summary
    for name, option in leaf.options.items():
        said = option.help or ""
        assert name == "--help" or (said and said[0].isupper() and not said.endswith(".")), f"{path} {name}: {said}"
        assert "Default:" not in said, f"{path} {name}: write (default: ...)"


def test_help_keeps_the_house_style() -> None:
    texts = [lazy.help for lazy in COMMANDS.values()]
    for leaf in LEAVES.values():
        texts += [" ".join(part.split()) for part in leaf.command.help.split("\n\n")]
        texts += [option.help or "" for option in leaf.command.params]
        texts += leaf.command.exit_codes.values()
    found = measure(dict.fromkeys(re.sub(r",? ?\(?default: .*", "", text) for text in texts))
    assert found.idiom_rate <= MAX_IDIOM, found.idiom
    assert found.joined_rate <= MAX_JOINED, found.joined
    assert not found.long, found.long


@pytest.mark.parametrize("path", LEAVES)
def test_one_option_name_has_one_meaning(path: str) -> None:
    same = {
        "--because": "Reason recorded in the audit log",
        "--actor": "Name recorded in the audit log (default: your user name)",
        "--yes": "No confirmation prompt (needs --max)",
        "--max": "Upper bound with --yes, above which nothing is done",
        "--dry-run": "Plan only, without any change",
        "--limit": "Maximum number of",
        "--kind": "Only this job type",
        "--error": "Only errors that contain this text",
        "--heartbeat-timeout": "Seconds without a heartbeat until a worker is offline",
    }
    options = LEAVES[path].options
    for name in same.keys() & options.keys():
        assert options[name].help.startswith(same[name]), f"{path} {name}: {options[name].help}"
    assert all(re.fullmatch(r"--[a-z]+(-[a-z]+)*", name) for name in options)


def test_commands_that_take_a_reason_take_an_actor() -> None:
    acting = {path for path, leaf in LEAVES.items() if "--actor" in leaf.options}
    assert {path for path, leaf in LEAVES.items() if "--because" in leaf.options} <= acting
    assert {"dead replay", "dead discard", "keys release", "batch reopen", "erase"} <= acting


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_has_the_summary_of_each_command(name: str) -> None:
    lazy = COMMANDS[name]
    summary = (lazy.load(name).help or "").partition("\n\n")[0]
    assert " ".join(summary.split()).rstrip(".") == lazy.help
    assert len(lazy.help) <= SUMMARY


@pytest.mark.parametrize("path", ["", "state", *LEAVES])
def test_help_fits_80_columns(path: str) -> None:
    status, printed = call(*path.split(), "--help", width=80)
    assert status == 0
    described = printed.partition("\nExamples:")[0]
    assert all(len(line) <= 80 for line in described.splitlines()), described
    assert not re.search(r"\w\.\.\.$", described, re.MULTILINE), "a summary is cut"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("workers list --quiet 5", "workers list --heartbeat-timeout 5"),
        ("state failures --error row_count", "state failures --reason row_count"),
    ],
)
def test_old_names_of_options_still_work_and_are_not_shown(old: str, new: str, url: str) -> None:
    assert call(*old.split()) == call(*new.split())
    name = old.split()[2]
    assert f"{name} " not in call(*old.split()[:2], "--help")[1].partition("Options:")[2].partition("Examples:")[0]


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


def test_a_misspelt_command_gets_a_suggestion() -> None:
    done = run("wrok")
    assert done.returncode == 2
    assert "No such command 'wrok'. Did you mean 'work'?" in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_lists_commands_and_subcommands(shell: str) -> None:
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


@pytest.mark.usefixtures("ledger")
@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("dead", "replay", "--kind", "a", "--kind", "b", "--because", "x"), "--kind"),
        (("jobs", "list", "--limit", "5", "--limit=7"), "--limit"),
        (("journal", "tail", "-n", "5", "--limit", "7"), "--limit' / '-n"),
        (("state", "failures", "--error", "a", "--reason", "b"), "--reason"),  # the old name of the same option
    ],
)
def test_an_option_with_one_value_is_passed_once(arguments: tuple[str, ...], name: str) -> None:
    status, printed = call(*arguments)
    assert status == 2
    assert f"Invalid value for '{name}': passed 2 times; pass it once" in " ".join(printed.split())


@pytest.mark.usefixtures("ledger")
def test_repeatable_options_and_flags_may_be_repeated() -> None:
    assert call("journal", "tail", "--event", "failed", "--event", "dead")[0] == 0
    assert call("jobs", "list", "--json", "--json") == (0, "[]\n")


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("dead", "discard", "--error", "", "--yes", "--max", "100", "--because", "x"), "--error"),
        (("dead", "replay", "--kind=", "--because", "x"), "--kind"),
        (("state", "retry", "", "--because", "x"), "WHICH"),
        (("jobs", "show", ""), "ID"),
        (("dead", "replay", "10", "--because", ""), "--because"),
    ],
)
def test_an_empty_value_is_rejected(arguments: tuple[str, ...], name: str) -> None:
    """It comes from an unset shell variable, and would select more than intended."""
    status, printed = call(*arguments)
    assert status == 2
    fix = {"ID": "pass a value", "--because": "pass a reason"}.get(name, "leave it out")
    assert f"Invalid value for '{name}': empty value; {fix}, or check the shell variable" in " ".join(printed.split())


@pytest.mark.parametrize("ledger", ["shop:app", "sqlite:///shop.db"])
def test_a_ledger_as_an_argument_is_named_as_an_option(ledger: str) -> None:
    status, printed = call("overview", ledger)
    assert status == 2
    assert f"({ledger}); pass the ledger as --ledger {ledger}" in " ".join(printed.split())
