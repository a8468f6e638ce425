"""Rejections on a terminal: partitions that failed, by dataset and by why."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime

from rich.console import Group
from rich.text import Text

from ....ops.partitions.rejections import Rejection
from ....ops.render import ago
from ...render.output import heading
from ...render.suggestions import then
from ...render.table import Column, fitted


def rejected(found: Sequence[Rejection], now: datetime, width: int) -> Group:
    """A table of them, and the command that lists the partitions themselves."""
    columns = [
        Column("failed", number=True),
        Column("gave up", number=True, leave=1),
        Column("readable", number=True, leave=3),
        Column("last", leave=2),
        Column("dataset", least=12),
        Column("reason", least=12),
        Column("example", least=20, wants=28, cut=True, leave=4),
    ]
    rows: list[dict[str, str | Text]] = [
        {
            "failed": Text(f"{one.many:,}{'+' if one.more else ''}", style="yellow"),
            "gave up": Text(f"{one.terminal:,}" if one.terminal else "–", style="red" if one.terminal else ""),
            "readable": f"{one.readable:,}" if one.readable else "–",
            "last": ago(one.last_at, now),
            "dataset": one.name,
            "reason": one.why,
            "example": one.error or one.partition,
        }
        for one in found
    ]
    hint = then(listing(found[0])) if len(found) == 1 else then("redrive state failures")
    return Group(heading("Partitions"), fitted(columns, rows, width), "", Text(f"→ {hint}", style="dim"))


def listing(one: Rejection) -> str:
    """The command that lists these partitions."""
    which = "--terminal" if one.reason is None else f"--reason {shlex.quote(one.reason)}"  # gave up without a verdict
    return f"redrive state failures {shlex.quote(one.name)} {which}"
