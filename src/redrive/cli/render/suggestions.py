"""Follow-up: commands that are printed for whoever reads on, as they must be typed to reach the same ledger."""

from __future__ import annotations

import os
import re
import shlex
from contextvars import ContextVar

ELSEWHERE = frozenset(("init", "serve", "config", "demo", "layers", "classify"))
"""Commands that are not told their ledger by --ledger."""
WORK = "redrive work module:app"
START_WORKER = "start a worker of the app that has these jobs"
_COMMAND = re.compile(r"`(redrive [^`]+)`")
_given: ContextVar[str | None] = ContextVar("given", default=None)


def given(ledger: str | None) -> str | None:
    """What --ledger said, as it comes: remembered for what is printed afterwards."""
    _given.set(ledger)
    return ledger


def then(command: str, /) -> str:
    """A command as a hint: with the ledger that was named on the command line, because the next command would not find it.

    Secrets in an address are left out, as everywhere. A worker needs an app: if none is known, the hint is words.
    """
    hint = _complete(command)
    return START_WORKER if hint == WORK else hint


def _complete(command: str) -> str:
    ledger, words = _given.get(), command.split()
    if not ledger and command == WORK:
        app = _known_app()
        return command if app is None else command.replace("module:app", shlex.quote(app))
    if not ledger or words[:1] != ["redrive"] or len(words) < 2 or words[1] in ELSEWHERE or "--ledger" in words:
        return command
    if words[1] == "work":
        return command.replace("module:app", shlex.quote(ledger)) if _is_app(ledger) else command
    if words[1] == "storage":
        return f"{command} --config {shlex.quote(ledger)}" if _is_app(ledger) else command
    from ...ops.target import command_for  # noqa: PLC0415  # `redrive --help` does without

    return command_for(command, ledger)


def _is_app(ledger: str) -> bool:
    return "://" not in ledger and not ledger.startswith("sqlite:")


def _known_app() -> str | None:
    """The app that the environment or redrive.toml names."""
    ledger = os.environ.get("REDRIVE_LEDGER", "")
    if ledger and _is_app(ledger):
        return ledger
    from ...ops.settings import known  # noqa: PLC0415  # the same
    from ...ops.user_code import Unreadable  # noqa: PLC0415  # `redrive --help` does without

    try:
        return known().app
    except Unreadable:
        return None


def spelled(text: str, /) -> str:
    """A text with commands in it, between backticks; each with the ledger that was named."""
    return _COMMAND.sub(lambda found: f"`{_complete(found[1])}`", text)
