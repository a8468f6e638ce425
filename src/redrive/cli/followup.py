"""Follow-up: commands that are printed for whoever reads on, as they must be typed to reach the same ledger."""

from __future__ import annotations

import re
import shlex
from contextvars import ContextVar

ELSEWHERE = frozenset(("init", "serve", "config", "demo", "layers", "classify"))
"""Commands that are not told their ledger by --ledger."""
_COMMAND = re.compile(r"`(redrive [^`]+)`")
_given: ContextVar[str | None] = ContextVar("given", default=None)


def given(ledger: str | None) -> str | None:
    """What --ledger said, as it comes: remembered for what is printed afterwards."""
    _given.set(ledger)
    return ledger


def then(command: str, /) -> str:
    """A command, with the ledger that was named on the command line: what is typed next would not find it by itself.

    Secrets in an address are left out, as everywhere.
    """
    ledger, words = _given.get(), command.split()
    if not ledger and words[:3] == ["redrive", "work", "module:app"]:
        return command.replace(" module:app", "") if _has_app() else command
    if not ledger or words[:1] != ["redrive"] or len(words) < 2 or words[1] in ELSEWHERE or "--ledger" in words:
        return command
    an_app = "://" not in ledger and not ledger.startswith("sqlite:")
    if words[1] == "work":
        return command.replace("module:app", shlex.quote(ledger)) if an_app else command
    if words[1] == "storage":
        return f"{command} --config {shlex.quote(ledger)}" if an_app else command
    from ..ops.source import command_for  # noqa: PLC0415  # `redrive --help` does without

    return command_for(command, ledger)


def _has_app() -> bool:
    """Whether the environment or redrive.toml names the app, so that `redrive work` finds it."""
    from ..ops.imported import Unreadable  # noqa: PLC0415  # `redrive --help` does without
    from ..ops.settings import known  # noqa: PLC0415  # the same

    try:
        return known().app is not None
    except Unreadable:
        return False


def spelled(text: str, /) -> str:
    """A text with commands in it, between backticks; each as `then` has it."""
    return _COMMAND.sub(lambda found: f"`{then(found[1])}`", text)
