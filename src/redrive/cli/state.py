"""`redrive state`: partitions: looked at, tried again, steered."""

from __future__ import annotations

from . import looks, requeue, steer
from .command import Commands

app = Commands(help="Inspect and control partitions.")
app.command()(looks.inspect)
app.command()(looks.history)
app.command()(looks.explain)
app.command()(looks.failures)
app.command()(requeue.retry)
app.command()(requeue.reprocess)
app.command()(requeue.revalidate)
app.command()(steer.rollback)
app.command("mark-terminal")(steer.mark_terminal)
app.command("clear-terminal")(steer.clear_terminal)
app.command()(steer.pause)
app.command()(steer.unpause)
