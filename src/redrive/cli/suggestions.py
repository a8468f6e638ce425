"""Commands that the output suggests, with the options that they need to reach the same ledger."""

from __future__ import annotations

import os
import re
import shlex
from contextvars import ContextVar

WITHOUT_LEDGER_OPTION = frozenset(("init", "serve", "config", "demo", "layers", "classify"))
WORK = "redrive work module:app"
START_WORKER = "start a worker of the app that has these jobs"
_COMMAND = re.compile(r"`(redrive [^`]+)`")
_ledger_option: ContextVar[str | None] = ContextVar("ledger_option", default=None)


def remember_ledger(ledger: str | None) -> str | None:
    """Remember the value of --ledger for suggested commands, and return it."""
    _ledger_option.set(ledger)
    return ledger


def complete_command(command: str, /) -> str:
    """Add the ledger of this command line to a suggested command.

    Secrets in an address are left out. A worker needs an app: without a known one, return words.
    """
    complete = _with_ledger(command)
    return START_WORKER if complete == WORK else complete


def expand_commands(text: str, /) -> str:
    """Complete every command between backticks in a text."""
    return _COMMAND.sub(lambda match: f"`{_with_ledger(match[1])}`", text)


def _with_ledger(command: str) -> str:
    ledger, words = _ledger_option.get(), command.split()
    if not ledger and command == WORK:
        app = _configured_app()
        return command if app is None else command.replace("module:app", shlex.quote(app))
    if not ledger or words[:1] != ["redrive"] or len(words) < 2 or "--ledger" in words:
        return command
    name = words[1]
    if name in WITHOUT_LEDGER_OPTION:
        return command
    if name == "work":
        app = shlex.quote(ledger)
        return command.replace("module:app", app) if _is_app(ledger) else command
    if name == "storage":
        return f"{command} --config {shlex.quote(ledger)}" if _is_app(ledger) else command
    from ..ops.project.target import command_for  # noqa: PLC0415  # `--help` does not load it

    return command_for(command, ledger)


def _is_app(ledger: str) -> bool:
    return "://" not in ledger and not ledger.startswith("sqlite:")


def _configured_app() -> str | None:
    """Return the app that the environment or redrive.toml names."""
    ledger = os.environ.get("REDRIVE_LEDGER", "")
    if ledger and _is_app(ledger):
        return ledger
    from ..ops.project.settings import known  # noqa: PLC0415  # `--help` does not load it
    from ..ops.project.user_code import Unreadable  # noqa: PLC0415  # the same

    try:
        return known().app
    except Unreadable:
        return None


def quote_argument(text: str, /) -> str:
    """Quote an argument for a shell. Letters of any script need no quotes."""
    is_plain = all(char.isalnum() or char in "/-_.%:@" for char in text)
    return text if is_plain else "'" + text.replace("'", "'\\''") + "'"
