"""`redrive backfill`: plan, start, watch and control backfills."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from ....ops import Sweep
from ....ops.operator import Operator
from ....ops.partitions.selection import parse_day
from ....ops.plans.plan import Plan
from ....ops.plans.stored import load_plan
from ....ops.render import document
from ....ops.sweeps import PARTITIONED
from ...apply.confirm import ApplyOptions, Confirmation, Max, Yes
from ...apply.dead_letters import Canary, Rate
from ...apply.partitions import AcceptDrift, ClearTerminal, HaltOn, apply_plan
from ...command import CommandGroup
from ...errors import NOT_DONE, fail
from ...options import Because, ReadOptions, WriteOptions, flag, limit_option, open_operator, option
from ...render import print_result
from ...suggestions import expand_commands
from ..sweeps import confirm_without_canary, print_progress, print_sweeps
from .plan import apply_stored
from .render import progress_follower, sweep_title
from .selection import Customers

app = CommandGroup(help="Plan and run backfills.")

NO_BACKFILLS = (
    "No backfills. Plan one with `redrive backfill plan DATASET --since DAY --until DAY`."
)
SweepId = Annotated[int, typer.Argument(metavar="ID", help="ID of the backfill")]


@dataclass(frozen=True, slots=True)
class BackfillOptions:
    """The options of a new backfill."""

    customers: Customers = None
    share: Annotated[
        float | None,
        option(
            "--share", "PART", "Share of worker capacity while other work is queued (default: 0.15)"
        ),
    ] = None
    order: Annotated[
        Literal["newest", "oldest"], typer.Option("--order", help="Day to start with")
    ] = "newest"
    include_accepted: Annotated[
        bool, flag("--again", "Include accepted partitions, which stay readable")
    ] = False
    clear_terminal: ClearTerminal = False

    def plan(self, ops: Operator, dataset: str, since: str, until: str) -> Plan:
        """Plan the backfill of a dataset."""
        return ops.backfills.plan(
            dataset,
            parse_day("--since", since),
            parse_day("--until", until),
            customers=self.customers or None,
            share=self.share,
            newest=self.order == "newest",
            again=self.include_accepted,
            clear_terminal=self.clear_terminal,
        )


@app.command()
def plan(
    *,
    dataset: Annotated[
        str, typer.Argument(metavar="DATASET", help="source/query, such as crm/orders")
    ],
    since: Annotated[str, option("--since", "DAY", "First day, such as 2026-06-01")],
    until: Annotated[str, option("--until", "DAY", "Last day, inclusive (at most today)")],
    backfill: BackfillOptions,
    file: Annotated[
        str | None,
        option("--out", "FILE", "File for the plan (default: kept for 30 minutes under its ID)"),
    ] = None,
    options: WriteOptions,
) -> None:
    """Plan a backfill.

    Prints the partitions that the backfill would extract, and saves the plan for `redrive backfill
    apply`. Changes nothing and records nothing.

    Examples:
        redrive backfill plan crm/orders --since 2026-06-01 --until 2026-06-30
        redrive backfill plan crm/orders --since 2026-06-01 --until 2026-06-30 --customer-id acme --out plan.json

    Exit codes:
        0: planned; without an app, the plan lists customers that have no partitions so far
        1: refused, because another backfill includes some of these partitions
        2: invalid option or date, unknown dataset or customer, or no list of customers
        3: ledger not reachable, or its schema is from another version
    """  # noqa: E501
    with open_operator(options, app_first=True, create=True, changes=False) as ops:
        planned = backfill.plan(ops, dataset, since, until)
        apply = ApplyOptions(None, Confirmation(), options.as_json, save=True, file=file)
        apply_plan(ops, planned, apply)


@app.command()
def apply(
    *,
    name: Annotated[
        str,
        typer.Argument(
            metavar="PLAN", help="ID or file of a plan, or a dataset with --since and --until"
        ),
    ],
    because: Because,
    since: Annotated[str | None, option("--since", "DAY", "With a dataset")] = None,
    until: Annotated[str | None, option("--until", "DAY", "With a dataset")] = None,
    backfill: BackfillOptions,
    rate: Rate = None,
    canary: Canary = 0,
    halt_on: HaltOn = None,
    accept_drift: AcceptDrift = None,
    yes: Yes = False,
    max_count: Max = None,
    options: WriteOptions,
) -> None:
    """Start a backfill.

    Starts a saved plan, or a dataset with --since and --until. Workers extract the partitions.
    Confirmation works as in `redrive state retry`.

    Examples:
        redrive backfill apply PLAN --because "new customer"
        redrive backfill apply crm/orders --since 2026-06-01 --until 2026-06-30 --yes --max 500 --because "new customer"

    Exit codes:
        0: started
        1: refused, or not confirmed
        2: invalid option, unknown plan or customer, or no interactive shell to confirm
        3: ledger not reachable, or its schema is from another version
        4: the plan has expired, or is for another ledger
    """  # noqa: E501
    with open_operator(options, app_first=True, create=True) as ops:
        settings = ApplyOptions(because, Confirmation(yes, max_count), options.as_json)
        limits = {"rate": rate, "canary": canary, "halt_on": halt_on}
        if since is None and until is None:
            stored = load_plan(name)
            if stored.plan.act != "backfill":
                problem = f"plan {stored.id}: not a backfill, but a {stored.plan.act}"
                command = f'redrive plan apply {name} --because "..."'
                raise ValueError(f"{problem}; use `{command}`")
            apply_stored(ops, stored, settings, accept_drift, **limits)
        if since is None or until is None:
            raise ValueError("dataset: needs both --since and --until")
        apply_plan(ops, backfill.plan(ops, name, since, until), settings, **limits)


@app.command("list")
def list_(
    *,
    limit: Annotated[int, limit_option("backfills")] = 20,
    include_others: Annotated[
        bool, flag("--all", "Include retries, reprocessing and scheduled runs")
    ] = False,
    options: ReadOptions,
) -> None:
    """List backfills.

    Newest first.

    Examples:
        redrive backfill list
        redrive backfill list --all

    Exit codes:
        0: listed, also when there are none
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with open_operator(options, app_first=True) as ops:
        acts = PARTITIONED if include_others else ("backfill",)
        sweeps = ops.backfills.find(limit=limit, acts=acts)
        total = ops.backfills.count(acts=acts) if len(sweeps) == limit else None
        print_sweeps(ops, sweeps, total, options.as_json, empty=expand_commands(NO_BACKFILLS))


@app.command()
def status(
    *,
    sweep_id: SweepId,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", "--watch", help="Progress until the backfill ends")
    ] = False,
    options: ReadOptions,
) -> None:
    """Show the progress of a backfill.

    Shows progress, failures and the time left. Also takes the number of a retry, a reprocessing or
    a revalidation. In a pipe or a file, --follow prints a line for each change, and with --json
    each line is one document. Ctrl+C ends only --follow, and the backfill continues.

    Examples:
        redrive backfill status 7
        redrive backfill status 7 --follow

    Exit codes:
        0: shown; with --follow, done
        1: no backfill with this ID; with --follow, not ended as done
        2: invalid option
        3: ledger not reachable, or its schema is from another version
        130: --follow was interrupted; the backfill continues
    """
    with open_operator(options, app_first=True) as ops:
        _require_sweep(ops, sweep_id)
        report = ops.backfills.progress(sweep_id)
        assert report is not None
        follower = progress_follower(ops, sweep_id)
        stop = f'to stop it: `redrive backfill pause {sweep_id} --because "..."`'
        hints = (f"redrive backfill status {sweep_id} --follow", stop)
        print_progress(ops, report, follower, hints, follow=follow, as_json=options.as_json)


@app.command()
def pause(*, sweep_id: SweepId, because: Because, options: WriteOptions) -> None:
    """Pause a backfill.

    No further partition starts. Running partitions continue.

    Examples:
        redrive backfill pause 7 --because "source is slow"

    Exit codes:
        0: paused
        1: not running, or no backfill with this ID
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with open_operator(options, app_first=True) as ops:
        _require_sweep(ops, sweep_id)
        _show_state(ops.sweeps.pause(sweep_id, because=because), options.as_json)


@app.command()
def resume(
    *,
    sweep_id: SweepId,
    because: Because,
    yes: Yes = False,
    max_count: Max = None,
    options: WriteOptions,
) -> None:
    """Resume a backfill.

    Resumes a backfill that was paused or halted. After a failed canary, the rest starts without
    another canary, so the command asks for a confirmation. To run a canary again, cancel the
    backfill and start a new one with --canary.

    Examples:
        redrive backfill resume 7 --because "source is back"
        redrive backfill resume 7 --yes --max 50 --because "only these days were empty"

    Exit codes:
        0: running
        1: already ended, not confirmed, or no backfill with this ID
        2: invalid option, or no interactive shell to confirm
        3: ledger not reachable, or its schema is from another version
    """
    with open_operator(options, app_first=True) as ops:
        _require_sweep(ops, sweep_id)
        accepted = confirm_without_canary(ops, sweep_id, Confirmation(yes, max_count))
        sweep = ops.sweeps.resume(sweep_id, because=because, accept_failed_canary=accepted)
        _show_state(sweep, options.as_json)


@app.command()
def cancel(*, sweep_id: SweepId, because: Because, options: WriteOptions) -> None:
    """Cancel the rest of a backfill.

    Accepted partitions stay. Running partitions continue.

    Examples:
        redrive backfill cancel 7 --because "wrong range"

    Exit codes:
        0: cancelled
        1: already ended, or no backfill with this ID
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with open_operator(options, app_first=True) as ops:
        _require_sweep(ops, sweep_id)
        _show_state(ops.sweeps.cancel(sweep_id, because=because), options.as_json)


@app.command()
def share(
    *,
    sweep_id: SweepId,
    new_share: Annotated[
        float, typer.Argument(metavar="PART", help="Share of capacity, such as 0.3")
    ],
    because: Because,
    options: WriteOptions,
) -> None:
    """Change a backfill's share of capacity.

    Takes effect at the next claim of a worker.

    Examples:
        redrive backfill share 7 0.3 --because "finish today"

    Exit codes:
        0: changed
        1: already ended, or no backfill with this ID
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with open_operator(options, app_first=True) as ops:
        _require_sweep(ops, sweep_id)
        sweep = ops.backfills.set_share(sweep_id, new_share, because=because)
    text = f"{sweep_title(sweep)}: share {new_share:.0%} while other work is queued"
    print_result(document(sweep) | {"share": new_share}, options.as_json, lambda _sweep: text)


def _require_sweep(ops: Operator, sweep_id: int) -> None:
    if ops.sweeps.get(sweep_id, limit=1) is None:
        lists = "`redrive backfill list --all` lists all"
        fail(NOT_DONE, f"backfill {sweep_id}: not found; {lists}")


def _show_state(sweep: Sweep, as_json: bool) -> None:
    rest = f"{sweep.left:,} of {sweep.total:,} not started"
    print_result(sweep, as_json, lambda sweep: f"{sweep_title(sweep)} is {sweep.state}: {rest}")
