"""Print a plan and confirm it: by a yes, the typed number, or `--yes --max N`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

import typer

from ..errors import BAD_INPUT, INTERRUPTED, NOT_DONE, fail
from ..options import flag, option
from ..render import show

MAX_UNCONFIRMED, MAX_YES = 20, 100
"""Partitions up to which a plan needs no confirmation, and up to which a yes is enough."""
MAX_LISTED = 10
"""Outcomes that are listed one by one."""
NARROW_SELECTION = "without a prompt the plan must include all matches; narrow the selection"
NOT_CONFIRMED = "not confirmed; nothing was changed"

Yes = Annotated[bool, flag("--yes", "No confirmation prompt (needs --max)")]
Max = Annotated[
    int | None, option("--max", "N", "Upper bound with --yes, above which nothing is done", min=0)
]


class Countable(Protocol):
    """A plan for dead letters, batch items or partitions."""

    @property
    def act(self) -> str:
        """The verb, such as `replay`."""

    @property
    def count(self) -> int:
        """The number of items."""


class SelectedPlan(Countable, Protocol):
    """A plan for selected items."""

    @property
    def skipped(self) -> Mapping[Any, str]:
        """Selected items that cannot be changed, each with the reason."""

    @property
    def matched(self) -> int:
        """The number of items that match, including those beyond the limit."""


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The options that replace the prompt."""

    yes: Yes = False
    max_count: Max = None
    dry_run: Annotated[bool, flag("--dry-run", "Plan only, without any change")] = False

    def require(
        self, plan: Countable, /, *, ledger: str | None = None, matched: int | None = None
    ) -> None:
        """End the command unless the number of items is typed, or `--yes --max N` allows it.

        Args:
            plan: The plan.
            ledger: Address of the ledger, for the prompt.
            matched: Number of items that match, if the plan has a limit. Without a prompt the
                plan must include all of them, because a script does not read that more match.
        """
        act = plan.act.replace("_", " ")
        matched = plan.count if matched is None else matched
        limit = f" --limit {matched}" if matched > plan.count else ""
        if self.yes:
            if self.max_count is None:
                fail(BAD_INPUT, f"--yes: needs --max N, the most to {act}")
            if matched > self.max_count:
                problem = f"--max {self.max_count}: {matched:,} match; nothing was changed"
                fail(NOT_DONE, f"{problem}; {NARROW_SELECTION}" if limit else problem)
            if limit:
                hint = f"pass{limit}, or narrow the selection"
                fail(
                    NOT_DONE,
                    f"--limit {plan.count}: {matched:,} match; nothing was changed; {hint}",
                )
            return
        if not sys.stdin.isatty():
            options = f"pass --yes --max {matched}{limit} to {act} {matched:,}"
            if limit:
                options = f"{matched:,} match, not {plan.count:,}; {NARROW_SELECTION}, or {options}"
            fail(BAD_INPUT, f"confirmation: no interactive shell; {options}. Nothing was changed")
        question = f"Type {plan.count} to {act} {'it' if plan.count == 1 else 'them'}"
        question += " permanently" if plan.act == "discard" else ""
        question += f" (ledger {ledger})" if ledger else ""
        typed = _ask(typer.prompt, question, default="", show_default=False, err=True)
        if typed.strip().replace(",", "") != str(plan.count):
            fail(NOT_DONE, NOT_CONFIRMED)

    def require_for_partitions(self, plan: Countable, /) -> None:
        """Confirm a plan for partitions.

        No prompt up to 20, yes or no up to 100, above that the typed number.
        Partitions are retried on their own, so a mistake with a few of them is cheap.
        """
        if not self.yes and plan.count <= MAX_UNCONFIRMED:
            return
        if self.yes or plan.count > MAX_YES or not sys.stdin.isatty():
            self.require(plan)
            return
        question = f"{plan.act.replace('_', ' ').capitalize()} {plan.count} partitions?"
        if not _ask(typer.confirm, question, err=True):
            fail(NOT_DONE, NOT_CONFIRMED)


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """How a plan is applied.

    Args:
        because: The reason for the audit log.
        confirmation: Options that replace the prompt.
        as_json: Print JSON.
        detach: Leave the sweep to workers.
        is_by_id: The items were named by their IDs, so no confirmation is needed.
        save: Save the plan instead of applying it.
        file: File for the saved plan.
    """

    because: str | None
    confirmation: Confirmation
    as_json: bool
    detach: bool = False
    is_by_id: bool = False
    save: bool = False
    file: str | None = None

    def require_reason(self) -> None:
        """Refuse an empty reason before the prompt."""
        require_reason(self.because)


def show_plan(plan: SelectedPlan, /, summary: str, *, empty: str) -> None:
    """Print the items of a plan and those that it skips."""
    if plan.count:
        show(f"To {plan.act.replace('_', ' ')}: {summary}")
    elif not plan.skipped:
        show(empty)
    if plan.matched > plan.count:
        more = f"{plan.matched:,} match; only the oldest {plan.count:,} are included"
        show(f"{more}. Use --limit {plan.matched} for all of them.", style="yellow")
    show_skipped(plan.skipped)


def show_done(lines: Sequence[str], /, *, summary: str) -> None:
    """Print a line for each outcome, or the summary if there are many."""
    for line in lines if len(lines) <= MAX_LISTED else [summary]:
        show(line)


def show_skipped(skipped: Mapping[Any, str], /) -> None:
    """Print the skipped items, each with the reason."""
    for item, reason in skipped.items():
        show(f"Skipped {item}: {reason}", style="yellow")


def require_reason(because: str | None, /) -> None:
    """Raise ValueError if the reason is missing or blank."""
    if not (because or "").strip():
        raise ValueError("--because: pass a reason")


def _ask(prompt: Callable[..., Any], question: str, **settings: Any) -> Any:
    try:
        return prompt(question, **settings)
    except typer.Abort:  # Ctrl+C, or the end of the input
        fail(INTERRUPTED, "interrupted; nothing was changed")
