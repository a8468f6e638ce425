"""`redrive state`: partitions: looked at, tried again, steered."""

from __future__ import annotations

from ...command import Commands
from . import inspect, markers, requeue

app = Commands(help="Inspect and control partitions.")
app.command()(inspect.inspect)
app.command()(inspect.history)
app.command()(inspect.explain)
app.command()(inspect.failures)
app.command()(requeue.retry)
app.command()(requeue.reprocess)
app.command()(requeue.revalidate)
app.command()(markers.rollback)
app.command("mark-terminal")(markers.mark_terminal)
app.command("clear-terminal")(markers.clear_terminal)
app.command()(markers.pause)
app.command()(markers.unpause)
