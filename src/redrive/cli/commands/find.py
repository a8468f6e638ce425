"""`redrive find`: find jobs and dead letters by words."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Annotated

import typer

from ...core.text import pluralise
from ...ops.dead_letters.model import Letter
from ...ops.jobs import JobLine
from ...ops.render import ago
from ...ops.search import FIELDS
from ..errors import NOT_DONE, refuse_option
from ..options import ReadOptions, argument, limit_option, open_operator
from ..render import Column, first_line, print_json, print_table, show, state_name
from ..suggestions import expand_commands


def find(
    *,
    words: Annotated[
        list[str] | None, argument("WORD", "Words of the search, such as type:crm.sync")
    ] = None,
    limit: Annotated[int, limit_option("jobs, and of dead letters")] = 50,
    options: ReadOptions,
) -> None:
    """Find jobs and dead letters.

    A word is NAME:VALUE. Names are id, key, user, correlation, type, state, error, since, until,
    worker, tenant, and the tags that commands declare. A key that ends with * is a prefix. All
    words must match. A number without a name is an id. Other text without a name is searched in
    keys, tags, correlation ids, users and errors.

    Examples:
        redrive find order_id:17
        redrive find type:crm.sync state:dead error:timeout since:2h
        redrive find "user:ann state:dead"
        redrive find "key:shop:ann*"

    Exit codes:
        0: found
        1: nothing matches
        2: invalid option or word
        3: ledger not reachable, or its schema is from another version
    """
    if not words:
        refuse_option("WORD", "missing; write a word such as type:crm.sync, or a text")
    with open_operator(options) as ops:
        names = {*FIELDS, *ops.jobs.tag_names()}
        text = " ".join(_quote(word, names) for word in words)
        result = ops.jobs.search(text, limit=limit)
    if options.as_json:
        print_json(result)
    elif result.jobs or result.letters:
        _show_jobs(result.jobs, result.now)
        _show_letters(result.letters, result.now)
        if result.is_cut:
            show("There may be more. Add a word, or pass a higher --limit.", style="yellow")
    else:
        show("Nothing matches.")
    if not result.jobs and not result.letters:
        raise typer.Exit(NOT_DONE)


def _quote(word: str, names: Collection[str]) -> str:
    """Return a word with the quotes that the shell has removed.

    An argument with several words, as the console prints it, stays as it is.
    """
    later = [part.partition(":") for part in word.split()[1:]]
    has_words = any(colon and value and name in names for name, colon, value in later)
    if " " not in word or '"' in word or has_words:
        return word
    name, colon, value = word.partition(":")
    return f'{name}:"{value}"' if colon and " " not in name else f'"{word}"'


def _show_jobs(jobs: tuple[JobLine, ...], now: datetime) -> None:
    if not jobs:
        return
    columns: list[Column[JobLine]] = [
        Column("id", lambda job: str(job.id), is_number=True),
        Column("job type", lambda job: job.kind, min_width=14),
        Column("state", lambda job: state_name(job.state)),
        Column("submitted", lambda job: ago(job.created_at, now)),
        Column("job key", lambda job: job.key, min_width=12, wanted_width=32, truncate=True),
        Column(
            "error",
            lambda job: None if job.state == "done" else first_line(job.error),
            min_width=14,
            wanted_width=24,
            truncate=True,
            drop_order=1,
        ),
    ]
    hint = expand_commands("`redrive jobs show ID` shows one of them.")
    print_table(columns, jobs, above=pluralise(len(jobs), "job"), below=[hint])


def _show_letters(letters: tuple[Letter, ...], now: datetime) -> None:
    if not letters:
        return
    columns: list[Column[Letter]] = [
        Column("id", lambda letter: str(letter.id), is_number=True),
        Column("job type", lambda letter: letter.kind, min_width=14),
        Column("status", lambda letter: letter.status),
        Column("reason", lambda letter: letter.reason),
        Column("dead since", lambda letter: ago(letter.died_at, now)),
        Column(
            "error",
            lambda letter: first_line(letter.error),
            min_width=14,
            wanted_width=28,
            truncate=True,
            drop_order=1,
        ),
    ]
    hint = expand_commands("`redrive dead show ID` shows one of them.")
    print_table(columns, letters, above=pluralise(len(letters), "dead letter"), below=[hint])
