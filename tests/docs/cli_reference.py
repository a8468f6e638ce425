"""Writes docs/reference/cli.md from the commands: `python -m tests.docs.cli_reference`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from redrive.cli.command import CliCommand, option_names, param_help
from redrive.cli.root import COMMANDS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
COMMON = ("--ledger", "--json", "--actor", "--help")
"""Options that the page explains once."""
HEAD = """\
# Command line

<!-- Generated from the commands by `python -m tests.docs.cli_reference`. Edit the docstrings in src/redrive/cli. -->

Install the `redrive` command with `pip install ".[cli,ledger]"`. A Postgres ledger also needs the extra `postgres`. `redrive COMMAND --help`
prints what this page says about a command.

## Options of many commands

| option | meaning |
| --- | --- |
| `--ledger URL` | The ledger, as `sqlite:///file.db`, `postgresql://user@host/database`, or `module:app` for an `App` in your code. The default is `REDRIVE_LEDGER`, then [redrive.toml](configuration.md), then `sqlite:///redrive.db`. |
| `--json` | Output as one JSON document. Its fields do not change with the words of the output. |
| `--because TEXT` | The reason for a change. It is required, and is recorded in the audit log in the transaction of the change. |
| `--actor NAME` | The name that the audit log records. The default is your user name. |
| `--yes --max N` | Replaces the confirmation prompt in scripts. Nothing is done if more than N match, or more than `--limit`. |
| `--dry-run` | Prints the plan and changes nothing. |
| `--install-completion` | Installs completion for bash, zsh or fish, with `redrive --install-completion`. |

Times are printed as an age and in UTC. At a terminal the output fits the width, from 60 columns on. In a pipe or a file it is not cut, regardless of `COLUMNS`, and has no colours.
`NO_COLOR` switches colours off. Passwords in addresses are never printed. Payloads, headers, responses and errors are printed without secrets.
A printed command runs as printed. It repeats the `--ledger` that you passed.

An option that takes one value may be passed once. A second `--kind` is an error, because the command would act on another selection than you expect.
Options that are marked as repeatable may be passed several times. `--status` and `--state` take the words that are printed, such as `accepted` or
`"gave up"`, and also the names in JSON, such as `success` or `terminal`. Case, hyphens and underscores do not matter.

`--follow` redraws the progress at a terminal. In a pipe or a file it prints a line for each change, and with `--json` each line is one document.
Ctrl+C ends only the watching.

Errors are one line on standard error. `REDRIVE_DEBUG=1` adds the traceback of an internal error.

## Exit codes

| code | meaning |
| --- | --- |
| 0 | Done, or no problems found. |
| 1 | Not done completely, because something was not found, skipped, refused or not confirmed. For `doctor` and `overview`, warnings. |
| 2 | Invalid input, such as an unknown option, or no selection or reason. Nothing was changed. |
| 3 | The ledger is not reachable, or its schema is from another version. For `storage`, a backend is not reachable. |
| 4 | The data changed since the plan, and nothing was done. For `doctor` and `overview`, critical problems. |
| 70 | Internal error. |
| 130 | Interrupted by Ctrl+C. Completed steps stay, and are in the audit log. |
| 141 | The reader of the output closed the pipe. |
| 143 | A worker was stopped immediately by a second SIGTERM. |

The sections below list the codes of each command.
"""


def page() -> str:
    """The whole page."""
    sections: dict[str, list[str]] = {}
    for name, lazy in COMMANDS.items():
        if not lazy.is_alias:
            sections.setdefault(lazy.section, []).append(name)
    parts = [HEAD]
    for title, names in sections.items():
        parts.append(f"\n## {title}\n")
        for name in names:
            parts += [section(path, command) for path, command in leaves(COMMANDS[name].load(name), name)]
    return "".join(parts)


def leaves(command: Any, path: str, /) -> Iterator[tuple[str, CliCommand]]:
    """The commands that can be run, in the order of the help."""
    if isinstance(command, TyperGroup):
        for name in command.commands:
            yield from leaves(command.commands[name], f"{path} {name}")
    else:
        yield path, command


def section(path: str, command: CliCommand, /) -> str:
    """One command: usage, description, options, examples, exit codes."""
    context = typer.Context(command, info_name=f"redrive {path}")
    usage = " ".join([f"redrive {path}", *command.collect_usage_pieces(context)])
    lines = ["", f"### redrive {path}", "", f"`{usage}`", "", *_paragraphs(command.help or "")]
    rows = [(_name(param, context), param_help(param)) for param in command.params if _is_shown(param)]
    if rows:
        lines += ["| option | meaning | default |", "| --- | --- | --- |"]
        lines += [f"| `{_escape(name)}` | {' | '.join(_with_default(said))} |" for name, said in rows]
        lines.append("")
    lines += ["```console", *(f"$ {example}" for example in command.examples), "```", "", "Exit codes:", ""]
    lines += [f"- {code}: {_quote_options(means)}" for code, means in command.exit_codes.items()]
    return "\n".join(lines) + "\n"


def _paragraphs(text: str) -> Iterator[str]:
    for block in text.split("\n\n"):
        yield _quote_options(" ".join(block.split()))
        yield ""


def _is_shown(param: Any) -> bool:
    return not getattr(param, "hidden", False) and not set(param.opts) & set(COMMON)


def _name(param: Any, context: Any) -> str:
    return (param.metavar or str(param.name).upper()) if param.param_type_name == "argument" else option_names(param, context)


def _with_default(said: str) -> tuple[str, str]:
    """The meaning, and the default in a column of its own."""
    found = re.search(r" \((?:(.*), )?(?:default: (.*)|(required.*))\)$", said)
    if found is None:
        return _quote_options(said), ""
    more = f" ({found[1]})" if found[1] else ""
    return _quote_options(said[: found.start()] + more), _quote_options(found[2] or found[3])


def _quote_options(text: str) -> str:
    """Options as code."""
    return _escape(re.sub(r"(?<![`\w-])(--[a-z][a-z-]*)", r"`\1`", text))


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
