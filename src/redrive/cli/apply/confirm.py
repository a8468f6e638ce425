"""Confirm: many at once need the typed number, or --yes --max N."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Protocol

import typer

from ..options import INTERRUPTED, NOT_DONE
from ..render.output import BAD_INPUT, complain

ASKED, TYPED = 20, 100
"""Of partitions, which come back by themselves: more than this are asked for; more than that are typed."""


class Countable(Protocol):
    """A plan: of dead letters, of items, of partitions."""

    @property
    def act(self) -> str:
        """What is to be done."""

    @property
    def count(self) -> int:
        """To how many."""


def agreed(plan: Countable, *, yes: bool, most: int | None) -> None:
    """The same where few are done without a word, and some for a yes."""
    if not yes and plan.count <= ASKED:
        return
    if yes or plan.count > TYPED or not sys.stdin.isatty():
        confirmed(plan, yes=yes, most=most)
    elif not _asked(typer.confirm, f"{plan.act.replace('_', ' ').capitalize()} {plan.count} partitions?", err=True):
        complain("not confirmed; nothing was done")
        raise typer.Exit(NOT_DONE)


def confirmed(plan: Countable, *, yes: bool, most: int | None) -> None:
    """Go on, or leave with an exit status. On a terminal the number is typed; scripts say `--yes --max N`."""
    if yes:
        if most is None:
            complain(f"--yes: needs --max N, the most to {plan.act}")
            raise typer.Exit(BAD_INPUT)
        if plan.count > most:
            complain(f"--max {most}: {plan.count:,} match; nothing was done")
            raise typer.Exit(NOT_DONE)
        return
    if not sys.stdin.isatty():
        complain(f"confirmation: no terminal; pass --yes --max {plan.count} to {plan.act} {plan.count:,}. Nothing was done")
        raise typer.Exit(BAD_INPUT)
    question = f"Type {plan.count} to {plan.act} {'it' if plan.count == 1 else 'them'}"
    typed = _asked(typer.prompt, question, default="", show_default=False, err=True)
    if typed.strip().replace(",", "") != str(plan.count):
        complain("not confirmed; nothing was done")
        raise typer.Exit(NOT_DONE)


def _asked(prompt: Callable[..., Any], question: str, **options: Any) -> Any:
    """The response to a question. Ctrl+C and the end of the input change nothing."""
    try:
        return prompt(question, **options)
    except typer.Abort:
        complain("interrupted; nothing was changed")
        raise typer.Exit(INTERRUPTED) from None
