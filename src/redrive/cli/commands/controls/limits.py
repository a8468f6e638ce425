"""`redrive limits`: concurrency and rate of job types at run time, over all workers."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from rich.text import Text

from ....ops.controls.limits import LimitLine
from ....ops.render import ago
from ...command import CommandGroup
from ...options import Because, ReadOptions, WriteOptions, argument, flag, open_operator, option
from ...render import Column, print_result, print_rows

app = CommandGroup(help="Set limits of job types at run time.")

JobTypeName = Annotated[str, argument("NAME", "Job type, such as crm.sync")]
Concurrency = Annotated[
    int | None, option("--concurrency", "N", "Maximum number of running jobs, over all workers")
]
Rate = Annotated[
    float | None, option("--rate", "N", "Maximum number of starts in a second, over all workers")
]
Force = Annotated[bool, flag("--force", "Accept an unknown job type")]


@app.command("list")
def list_(*, options: ReadOptions) -> None:
    """List limits of job types.

    Shows the limits that workers apply, and the limits in the code beside limits that were set at
    run time. The code is known from --ledger module:app, or from online workers.

    Examples:
        redrive limits list
        redrive limits list --json

    Exit codes:
        0: listed, also when there are none
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with open_operator(options) as ops:
        limits, now = ops.limits.find(), ops.now()
    print_rows(limits, options.as_json, _columns(now), empty="No job type has a limit.")


@app.command("set")
def set_(
    *,
    name: JobTypeName,
    concurrency: Concurrency = None,
    rate: Rate = None,
    because: Because,
    force: Force = False,
    options: WriteOptions,
) -> None:
    """Set a limit of a job type at run time.

    It replaces the value in the code, over all workers, until it is reset. Workers apply it within
    a second, without a restart. An option that is not passed is unchanged.

    Examples:
        redrive limits set crm.sync --concurrency 2 --because "CRM is slow"
        redrive limits set crm.sync --rate 5 --because "new quota"

    Exit codes:
        0: set
        1: unknown job type
        2: invalid option, such as a limit of 0
        3: ledger not reachable, or its schema is from another version
    """
    with open_operator(options) as ops:
        limit = ops.limits.set(
            name, concurrency=concurrency, rate=rate, because=because, force=force
        )
    print_result(limit, options.as_json, _describe)


@app.command()
def reset(*, name: JobTypeName, because: Because, options: WriteOptions) -> None:
    """Reset a job type to the limits in the code.

    Examples:
        redrive limits reset crm.sync --because "CRM is fast again"

    Exit codes:
        0: reset
        1: no limit is set at run time
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with open_operator(options) as ops:
        limit = ops.limits.reset(name, because=because)
    print_result(limit, options.as_json, _describe)


def _describe(limit: LimitLine) -> str:
    concurrency = _in_words(limit.set_concurrency, limit.code_concurrency, "")
    rate = _in_words(limit.set_rate, limit.code_rate, "/s")
    return f"{limit.kind}: concurrency {concurrency}, rate {rate}"


def _in_words(at_run_time: float | None, in_code: float | None, unit: str) -> str:
    if at_run_time is not None:
        return f"{_number(at_run_time)}{unit} (code: {_number(in_code)})"
    # Without an online worker or app, the code is not known: do not call it unlimited.
    return "as in the code" if in_code is None else f"as in the code ({_number(in_code)}{unit})"


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _columns(now: datetime) -> list[Column[LimitLine]]:
    def applied(value: float | None, in_code: float | None, is_set: bool) -> Text:
        if not is_set:
            return Text(_number(value))
        return Text(f"{_number(value)} (code: {_number(in_code)})", style="yellow")

    return [
        Column("job type", lambda limit: limit.kind, min_width=14),
        Column(
            "concurrency",
            lambda limit: applied(
                limit.concurrency, limit.code_concurrency, limit.set_concurrency is not None
            ),
        ),
        Column(
            "rate/s", lambda limit: applied(limit.rate, limit.code_rate, limit.set_rate is not None)
        ),
        Column("set by", lambda limit: limit.actor),
        Column("set", lambda limit: ago(limit.updated_at, now) if limit.is_set else None),
        Column("because", lambda limit: limit.because, min_width=12, truncate=True),
    ]
