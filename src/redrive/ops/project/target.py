"""Target: the ledger, or the app of the user, that an operator works on."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ...app.ledger_opener import DEFAULT, VARIABLE
from ...core.lazy import deferred
from ...errors import LedgerError
from ...journal.redaction import redact_text
from ...journal.redaction.secrets import keep_address_secret, redact_address, strip_address_secrets
from ...ledger.db.address import parse
from ...ledger.open import open_ledger
from .settings import known
from .user_code import Unreadable, import_object, names_object, search_current_folder

if TYPE_CHECKING:
    from ... import app as apps
    from ...app import App
    from ...commands.spec import CommandSpec
    from ...ledger import ledger as ledgers
    from ...ledger.ledger import Ledger
    from ...partitions.datasets.dataset import Extraction
    from ...worker.job_type import JobType
else:  # SQLAlchemy, and all that an app has: not before a ledger or an app is open
    apps, ledgers = deferred("redrive", "app", "ledger.ledger")

Operated: TypeAlias = "App | Ledger"
"""An app knows more than its ledger: its commands, handlers and datasets."""
DATABASES = frozenset(("sqlalchemy", "sqlite3", "psycopg", "alembic"))
"""Packages whose errors are about the database, not about our code."""
_IMPORTABLE = re.compile(r"[\w.]+:[\w.]+")


def source_of(given: str | None, /) -> str:
    """Return the ledger that is passed, or else the one in the settings, or else the default."""
    if given or os.environ.get(VARIABLE):
        return given or os.environ[VARIABLE]
    settings = known()
    return settings.ledger or settings.app or DEFAULT


def command_for(command: str, ledger: str, /) -> str:
    """Return a command with the ledger, an address or `module:app`. It runs as it is printed."""
    return f"{command} --ledger {shlex.quote(strip_address_secrets(ledger))}"


@contextmanager
def open_target_ledger(
    given: str | None = None, /, *, migrate: bool = False, create: bool = False
) -> Iterator[Ledger]:
    """Open the ledger at an address, or of `module:app`, for the block. Raises as `open_target`."""
    with open_target(given, migrate=migrate, create=create) as app:
        yield ledger_of(app)


@contextmanager
def open_target(
    given: str | None = None,
    /,
    *,
    migrate: bool = False,
    app_first: bool = False,
    create: bool = False,
) -> Iterator[Operated]:
    """Open the app or the ledger that is named, for the block.

    Args:
        given: Address of a ledger, or `module:app`. None: the settings decide.
        migrate: Create or upgrade the tables.
        app_first: If nothing is passed, and settings name an app and a ledger, open the app.
        create: Let an app create or upgrade its ledger, as at its first use. Commands that only
            read leave the ledger as it is.

    Raises:
        LedgerError: The ledger is not reachable, or its schema is from another version.
        Unreadable: The name is not an app or a ledger. No message repeats a password.
    """
    source = source_of(given)
    if app_first and not given and VARIABLE not in os.environ:
        source = known().app or source
    try:
        with _open(source, migrate, create) as target:
            yield target
    except LedgerError as problem:
        if given is None and source == DEFAULT:
            problem.add_note(
                f"set the ledger with --ledger, {VARIABLE} or redrive.toml (default: {DEFAULT})"
            )
        raise
    except Exception as problem:
        if type(problem).__module__.partition(".")[0] in DATABASES:
            first_line = str(problem).strip().partition("\n")[0]
            raise LedgerError(f"the database failed: {redact_text(first_line)}") from problem
        raise


@contextmanager
def open_served(given: str | None = None, /) -> Iterator[Operated]:
    """Open the app or the ledger that the console serves, for the block. Raises as `open_target`.

    An app comes first, and is loaded with all its modules. Its ledger is opened before the block,
    so that a problem is reported at the start and not on the first page.
    """
    source = given or known().app or source_of(None)
    app = None if Path(source).exists() else _served_app(source)
    if app is None:
        with open_target_ledger(source) as ledger:
            yield ledger
        return
    try:
        app.registrations.load()
    except ImportError as missing:
        raise Unreadable(f"{source}: {missing}") from missing
    with open_target_ledger(source, create=True):
        yield app


def ledger_of(app: Operated, /) -> Ledger:
    """Return the ledger of an app, or the ledger itself."""
    return app if isinstance(app, ledgers.Ledger) else app.ledger


def check_operated(app: object, /) -> None:
    """Raise TypeError if this is neither an app nor an open ledger."""
    if not isinstance(app, (apps.App, ledgers.Ledger)):
        raise TypeError(
            f"console: pass an App or an open ledger, not {type(app).__name__}; "
            'for an address: App("sqlite:///redrive.db")'
        )


def extractions(app: Operated, /) -> list[Extraction]:
    """Return the datasets that an app has registered. A bare ledger has none."""
    if not isinstance(app, apps.App):
        return []
    app.registrations.load()
    return list(app.datasets)


def is_app(app: Operated, /) -> bool:
    """Return whether the commands and handlers are known. Those of a bare ledger are not."""
    return isinstance(app, apps.App)


def job_types(app: Operated, /) -> list[JobType]:
    """Return the job types of an app. A bare ledger has none."""
    if not isinstance(app, apps.App):
        return []
    try:
        return app.registrations.job_types()
    except ValueError:  # nothing is registered
        return []


def job_type_names(app: Operated, /) -> list[str]:
    """Return the names of the job types of an app. A bare ledger has none."""
    return [job_type.name for job_type in job_types(app)]


def scheduled_commands(app: Operated, /) -> list[CommandSpec]:
    """Return the commands of an app that have a schedule. A bare ledger has none."""
    if not isinstance(app, apps.App):
        return []
    app.registrations.load()
    return app.commands.scheduled


def source_names(app: Operated, /) -> list[str]:
    """Return the names of the event sources of an app. A bare ledger has none."""
    if not isinstance(app, apps.App):
        return []
    return [source.name for source in app.registrations.sources]


def payload_problem(app: Operated, kind: str, payload: bytes, /) -> str | None:
    """Return why a payload does not fit the command of an app.

    None: it fits, or the command is not known. A bare ledger knows none.
    """
    return app.registrations.payload_problem(kind, payload) if isinstance(app, apps.App) else None


@contextmanager
def _open(source: str, migrate: bool, create: bool) -> Iterator[Operated]:
    keep_address_secret(source)
    if _is_address(source):
        try:
            parse(source)
        except LedgerError as wrong:
            raise Unreadable(str(wrong)) from None
        with open_ledger(source, migrate=migrate) as ledger:
            yield ledger
        return
    if not names_object(source) or not _IMPORTABLE.fullmatch(source):
        if source.endswith((".db", ".sqlite", ".sqlite3")) and not set(":@?") & set(source):
            problem = "is a file, not an address"
            raise Unreadable(f"{source!r} {problem}; did you mean sqlite:///{source}?")
        raise Unreadable(
            f"{redact_address(source)!r} is not a ledger; pass its address "
            f"({DEFAULT}, postgresql://user@host/database), or module:app"
        )
    target = import_object(source)
    if not isinstance(target, apps.App) and not hasattr(target, "dead_letters"):
        raise Unreadable(f"{source} must be an App or a Ledger, not {type(target).__name__}")
    with target:
        if migrate:
            target.migrate()
        if isinstance(target, apps.App) and not create:
            target.opener.open_existing()
        ledger_of(target)  # Report a ledger that cannot be opened now.
        yield target


def _served_app(source: str) -> App | None:
    """Import the app of `module:app`. None: the source is not an app."""
    if _is_address(source) or not names_object(source):
        return None
    search_current_folder()
    target = import_object(source)
    return target if isinstance(target, apps.App) else None


def _is_address(source: str) -> bool:
    return "://" in source or source.partition(":")[0] == "sqlite"
