"""How a command reports an error: one line on standard error and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer

from ..errors import Drift, LedgerError, NotAllowed
from ..ops.project.user_code import Unreadable
from ..ops.sign_in.hashes import without_secrets
from .render.output import CONTROL_CHARACTERS
from .suggestions import complete_command, expand_commands

NOT_DONE = 1
"""Not done completely, or not found."""
BAD_INPUT = 2
NO_LEDGER = 3
"""The ledger is not reachable, or its schema is from another version."""
DRIFTED = 4
"""The data changed since the plan. Nothing was done."""
INTERRUPTED = 130

CREATE_HINT = "; create it with "
"""Separates the problem of a missing ledger from the command that creates it."""
CREATE_IN_CODE = ", or open_ledger(..., migrate=True)"
"""The end of that message. It is for programs, not for a terminal."""


def complain(message: str, /, *hints: str) -> None:
    """Print one line on standard error, and a line for each hint, which may be a command."""
    _print_error(f"redrive: {expand_commands(message)}")
    for hint in hints:
        _print_error(f"  {complete_command(expand_commands(hint))}")


def _print_error(line: str) -> None:
    print(CONTROL_CHARACTERS.sub("", without_secrets(line)), file=sys.stderr)


def fail(code: int, message: str, /, *hints: str) -> NoReturn:
    """Print an error and end the command with this exit code."""
    complain(message, *hints)
    raise typer.Exit(code) from None


def refuse_option(name: str, problem: str, /) -> NoReturn:
    """End the command because of the value of an option."""
    raise typer.BadParameter(problem, param_hint=name) from None


def fail_without_ledger(error: LedgerError, /) -> NoReturn:
    """Print an error of the ledger with its notes, and end the command."""
    message, create, command = str(error).removesuffix(CREATE_IN_CODE).partition(CREATE_HINT)
    notes = getattr(error, "__notes__", ())
    if create:  # A missing ledger is often a wrong address.
        message = f"{message}; check the address (`redrive config`)"
        notes = (f"for a new ledger: {command}", *notes)
    fail(NO_LEDGER, message, *notes)


@contextmanager
def exit_on_error(*, changes: bool = False) -> Iterator[None]:
    """Turn every expected error into one line and an exit code.

    Args:
        changes: Whether the command may have changed something before Ctrl+C.
    """
    try:
        yield
    except LedgerError as error:
        fail_without_ledger(error)
    except Drift as error:
        fail(DRIFTED, str(error))
    except NotAllowed as error:
        fail(NOT_DONE, str(error))
    except UnicodeEncodeError as error:
        fail(BAD_INPUT, f"{error.object!r}: not valid UTF-8 at {error.object[error.start]!r}")
    except (Unreadable, ValueError) as error:
        fail(BAD_INPUT, str(error))
    except KeyboardInterrupt:
        done = "; completed steps stay, and are in the audit log" if changes else ""
        fail(INTERRUPTED, f"interrupted{done}")
