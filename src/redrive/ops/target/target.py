"""Where the ledger is: its address, or an app in the user's code."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from ...app.ledger_opener import DEFAULT, VARIABLE
from ...errors import LedgerError
from ...journal.redaction import redact_text
from ...journal.redaction.addresses import redact_address, strip_address_secrets
from ...journal.redaction.values import keep_address_secret
from ...ledger.db.address import parse
from ...ledger.open import open_ledger
from ..settings import known
from .imported import Unreadable, imported

if TYPE_CHECKING:
    from ...app import App
    from ...ledger.ledger import Ledger

Operated: TypeAlias = "App | Ledger"
"""What an operator looks after."""

_IMPORTABLE = re.compile(r"[\w.]+:[\w.]+")
DATABASES = frozenset(("sqlalchemy", "sqlite3", "psycopg", "alembic"))
"""Packages whose errors are about the database, not about our code."""


def source_of(given: str | None, /) -> str:
    """What was given; or the ledger that the environment or redrive.toml names, or the app that they name; or the default."""
    if given or os.environ.get(VARIABLE):
        return given or os.environ[VARIABLE]
    found = known()
    return found.ledger or found.app or DEFAULT


def printable(address: str, /) -> str:
    """An address, or `module:app`, without the password that may be in it."""
    return redact_address(address)


def command_for(command: str, ledger: str, /) -> str:
    """A command of ours with the ledger that was named, an address or `module:app`. It runs as it is printed."""
    return f"{command} --ledger {shlex.quote(strip_address_secrets(ledger))}"


@contextmanager
def opened(given: str | None = None, /, *, migrate: bool = False, create: bool = False) -> Iterator[Ledger]:
    """The ledger at an address, or of `module:app`, for the block.

    LedgerError: it cannot be reached, or is not as this code needs it. Unreadable: what was named is no ledger. Neither
    repeats a password.
    """
    with operated(given, migrate=migrate, create=create) as app:
        yield ledger_of(app)


@contextmanager
def operated(
    given: str | None = None, /, *, migrate: bool = False, app_first: bool = False, create: bool = False
) -> Iterator[Operated]:
    """The app that was named, which knows more than its ledger does, or the ledger; errors as `opened` has them.

    app_first: where nothing was said and settings name both an app and a ledger, the app.
    create: an app may create or upgrade its ledger, as it does at first use. Commands that only read leave it as it is.
    """
    source = source_of(given)
    if app_first and not given and VARIABLE not in os.environ:
        source = known().app or source
    try:
        with _found(source, migrate, create) as found:
            yield found
    except LedgerError as problem:
        if given is None and source == DEFAULT:
            problem.add_note(f"set the ledger with --ledger, {VARIABLE} or redrive.toml (default: {DEFAULT})")
        raise
    except Exception as problem:
        if type(problem).__module__.partition(".")[0] in DATABASES:
            first = str(problem).strip().partition("\n")[0]
            raise LedgerError(f"the database failed: {redact_text(first)}") from problem
        raise


@contextmanager
def _found(source: str, migrate: bool, create: bool) -> Iterator[Operated]:
    keep_address_secret(source)
    module, colon, name = source.partition(":")
    if "://" in source or module == "sqlite":
        try:
            parse(source)
        except LedgerError as wrong:
            raise Unreadable(str(wrong)) from None
        with open_ledger(source, migrate=migrate) as ledger:
            yield ledger
        return
    if not colon or not module or not name or not _IMPORTABLE.fullmatch(source):
        shown = printable(source)
        raise Unreadable(
            f"{shown!r} is not a ledger; pass its address ({DEFAULT}, postgresql://user@host/database), or module:app"
        )
    from ...app import App  # noqa: PLC0415  # only where an app is named

    found = imported(module, name)
    if not isinstance(found, App) and not hasattr(found, "dead_letters"):
        raise Unreadable(f"{source} must be an App or a Ledger, not {type(found).__name__}")
    with found:
        if migrate:
            found.migrate()
        if isinstance(found, App) and not create:
            found.opener.open_existing()
        ledger_of(found)  # what cannot be opened is said now
        yield found


def ledger_of(app: App | Ledger, /) -> Ledger:
    """The ledger of an app, or the ledger that it is."""
    from ...ledger.ledger import Ledger  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

    return app if isinstance(app, Ledger) else app.ledger
