"""`redrive state`: the table of its commands."""

from __future__ import annotations

from ...command import CommandGroup
from . import inspect, markers, requeue

app = CommandGroup(help="Inspect and control partitions.")
for _function in (
    inspect.inspect,
    inspect.customers,
    inspect.history,
    inspect.explain,
    inspect.failures,
    requeue.retry,
    requeue.reprocess,
    requeue.revalidate,
    markers.rollback,
    markers.mark_terminal,
    markers.clear_terminal,
    markers.pause,
    markers.unpause,
):
    app.command(_function.__name__.replace("_", "-"))(_function)
