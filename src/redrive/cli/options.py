"""Options that many commands share, and the operator that they open."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, TypedDict

import typer

from ..ops.context import user
from ..ops.operator import Operator
from ..ops.project.target import open_target
from ..ops.render import moment as parse_time
from .errors import exit_on_error, refuse_option
from .suggestions import remember_ledger


def option(name: str, metavar: str, help_: str, **settings: Any) -> Any:
    """Declare an option with a value. The help text names its default, if it has one."""
    return typer.Option(name, metavar=metavar, help=help_, show_default=False, **settings)


def argument(metavar: str, help_: str) -> Any:
    """Declare an argument. The help text names its default, if it has one."""
    return typer.Argument(metavar=metavar, help=help_, show_default=False)


def flag(name: str, help_: str) -> Any:
    """Declare an option without a value."""
    return typer.Option(name, help=help_)


def limit_option(things: str) -> Any:
    """Declare `--limit N` for a list of these things."""
    return typer.Option("--limit", min=1, metavar="N", help=f"Maximum number of {things}")


def _check_ledger(address: str | None) -> str | None:
    # An empty value, such as an unset variable, would silently mean the default ledger.
    if address is not None and not address.strip():
        raise typer.BadParameter("empty; pass an address or module:app, or leave the option out")
    return remember_ledger(address)


LedgerAddress = Annotated[
    str | None,
    option(
        "--ledger",
        "URL",
        "Ledger, as sqlite:///file.db, postgresql://user@host/db or module:app "
        "(default: $REDRIVE_LEDGER, redrive.toml, sqlite:///redrive.db)",
        callback=_check_ledger,
        is_eager=True,
    ),
]
AppArgument = Annotated[
    str | None, argument("MODULE:APP", "App in your code, or address of its ledger")
]
AsJson = Annotated[bool, flag("--json", "Output as one JSON document")]
Actor = Annotated[
    str | None,
    option("--actor", "NAME", "Name recorded in the audit log (default: your user name)"),
]
Because = Annotated[str, option("--because", "TEXT", "Reason recorded in the audit log")]
RawBecause = Annotated[
    str | None, option("--because", "TEXT", "Reason recorded in the audit log, with --raw")
]
HeartbeatTimeout = Annotated[
    float,
    typer.Option(
        "--heartbeat-timeout",
        min=1,
        metavar="SECONDS",
        help="Seconds without a heartbeat until a worker is offline",
    ),
]
Kind = Annotated[str | None, option("--kind", "NAME", "Only this job type")]
Error = Annotated[str | None, option("--error", "TEXT", "Only errors that contain this text")]
Reason = Annotated[
    str | None, option("--reason", "NAME", "Only this reason, such as attempts or not_retryable")
]
Since = Annotated[
    str | None,
    option(
        "--since", "WHEN", "Only since this time, such as 30min, 12h, 7d or 2026-01-31T12:30 (UTC)"
    ),
]
Until = Annotated[
    str | None, option("--until", "WHEN", "Only before this time, in the same forms as --since")
]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The last options of a command that changes nothing."""

    target: LedgerAddress = None
    as_json: AsJson = False


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The last options of a command that changes something."""

    actor: Actor = None
    target: LedgerAddress = None
    as_json: AsJson = False


@contextmanager
def open_operator(
    options: ReadOptions | WriteOptions,
    *,
    app_first: bool = False,
    create: bool = False,
    changes: bool | None = None,
) -> Iterator[Operator]:
    """Open the operator of a ledger. An expected error is one line and an exit code.

    Args:
        options: The ledger, and who acts.
        app_first: Prefer the app of the configuration, which knows the datasets.
        create: Create the tables if they are missing.
        changes: Whether the command may change something (default: if it takes WriteOptions).
    """
    if changes is None:
        changes = isinstance(options, WriteOptions)
    actor = options.actor if isinstance(options, WriteOptions) else None
    with (
        exit_on_error(changes=changes),
        open_target(options.target, app_first=app_first, create=create) as app,
    ):
        account = user()
        name = account if actor is None else actor
        yield Operator(app, actor=name, via=f"account {account}")


def choose_target(app: str | None, target: str | None) -> str | None:
    """Return the ledger that an argument or --ledger names, and remember it for hints."""
    if app and target and app != target:
        refuse_option("MODULE:APP", "pass the ledger once: as an argument or as --ledger")
    return remember_ledger(app or target)


def require_reason_for_raw(raw: bool, because: str | None) -> None:
    """Refuse --raw without --because, and the reverse."""
    if raw != (because is not None):
        refuse_option("--raw, --because", "pass both or neither")


def time_of(text: str | None, option_name: str = "--since") -> datetime | None:
    """Return the time that an option names."""
    try:
        return None if text is None else parse_time(text)
    except ValueError as error:
        refuse_option(option_name, str(error))


class TimeRange(TypedDict):
    """The times of --since and --until, as keyword arguments."""

    since: datetime | None
    until: datetime | None


def time_range(since: str | None, until: str | None) -> TimeRange:
    """Return the times of --since and --until. Refuse a range that ends before it begins."""
    first, last = time_of(since), time_of(until, "--until")
    if first is not None and last is not None and last <= first:
        refuse_option("--until", f"{until} is not after --since {since}")
    return {"since": first, "until": last}


# --- States

PARTITION_STATES = {
    "pending": "pending",
    "accepted": "success",
    "newer run rejected": "refresh_failed",
    "failed": "failed",
    "gave up": "terminal",
}
JOB_STATES = {
    "queued": "queued",
    "running": "running",
    "retry scheduled": "retry_wait",
    "done": "done",
    "blocked": "blocked",
    "dead": "dlq",
    "replaying": "replaying",
    "discarded": "discarded",
    "waiting": "waiting",
    "cancelled": "cancelled",
}
DEAD_LETTER_STATES = {
    word: word for word in ("pending", "replaying", "replayed", "discarded", "all")
}
KEY_STATES = {word: word for word in ("processing", "completed", "failed")}
EVENT_STATES = {"failed": "failed"}
"""At least one handler of the event has a dead letter."""
SYNONYMS = {"given up": "gave up", "retrying": "retry scheduled", "in progress": "processing"}
"""Other words for these states in the CLI, the console and the documentation."""


MAX_CHOICES_CHARS = 70
"""Longer lists of choices are a part of the help text, which is wrapped."""


def state_option(
    name: str, states: Mapping[str, str], help_: str, *, show_default: bool = False
) -> Any:
    """Declare an option that takes a state, by its printed word or its stored name.

    Args:
        name: Name of the option.
        states: Printed words, each with its stored name.
        help_: Help text.
        show_default: Whether the help names the default.
    """
    words = list(states)
    choices = f"[{'|'.join(words)}]"
    is_wide = len(choices) > MAX_CHOICES_CHARS
    return typer.Option(
        name,
        metavar="STATE" if is_wide else choices,
        help=f"{help_}: {', '.join(words)}" if is_wide else help_,
        show_default=show_default,
        parser=state_parser(states),
        autocompletion=lambda: words,
    )


def state_parser(states: Mapping[str, str], /) -> Callable[[str], str]:
    """Return a parser for any word of a state. Case, hyphens and underscores do not matter."""
    known = {_normalise(word): stored for word, stored in states.items()}
    known |= {_normalise(stored): stored for stored in states.values()}
    known |= {_normalise(word): states[same] for word, same in SYNONYMS.items() if same in states}

    def parse(text: str) -> str:
        stored = known.get(_normalise(text))
        if stored is None:
            *first, last = (repr(word) if " " in word else word for word in states)
            words = f"{', '.join(first)} or {last}" if first else last
            raise typer.BadParameter(f"unknown state {text!r}; use {words}")
        return stored

    return parse


def _normalise(word: str) -> str:
    return re.sub(r"[\s_-]+", " ", word.strip().casefold())
