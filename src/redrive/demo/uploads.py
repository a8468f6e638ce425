"""A batch with one damaged item meets an outage: the outage is charged to nobody, and the damaged item alone gives up."""

from __future__ import annotations

from collections import Counter

from redrive import App, RetryPolicy
from redrive.batch import Items, ItemStatus, Report, retrying
from redrive.journal import Record, subscribe

from .scene import Figures, Scene
from .stage import Stage

ITEMS = 60
DAMAGED = "t17"
DOWN = 2
"""Passes in which the other side is overloaded."""
ATTEMPTS = 3


class Uploader:
    """Sends what is pending to somebody who is overloaded at first, and never takes a damaged item."""

    def __init__(self, items: Items) -> None:
        self.items = items
        self.received: Counter[str] = Counter()
        self.arrived: set[str] = set()

    def send_pending(self) -> Report:
        """Report on each."""
        waiting = [f"t{number}" for number in range(ITEMS) if f"t{number}" not in self.arrived]
        said = [self._send(item) for item in sorted(self.items.pending(waiting))]
        rejected = sum(item.status == "rejected" for item in said)
        return Report("success" if not rejected else "failure" if rejected == len(said) else "partial", said)

    def _send(self, item: str) -> ItemStatus:
        self.received[item] += 1
        if item == DAMAGED:
            return ItemStatus(item, "rejected", "checksum mismatch")
        if self.received[item] <= DOWN:
            return ItemStatus(item, "rejected", "503 overloaded")
        self.arrived.add(item)
        return ItemStatus(item, "acknowledged")


def _play(stage: Stage) -> Figures:
    def hear(record: Record) -> None:
        told = record.fields
        if record.kind == "batch_outage":
            stage.line(
                f"{told['items']} rejected for one reason ({told['reason']}): an outage, which counts as no attempt", "yellow"
            )
        elif record.kind == "batch_retry":
            stage.line(f"retry {told['retry']} in {told['wait']:.1f} s, {told['pending']} pending")
        elif record.kind == "giveup":
            stage.line(f"{told['item']} is given up after {told['attempts']} rejections: {told['reason']}", "red")

    stage.line(f"{ITEMS} items in one batch, one of them damaged. The receiver is overloaded at first.")
    with App("sqlite://") as app:
        items = app.items("tiles")
        inner = Uploader(items)
        stage.bar("sent", inner.received.total)
        stage.bar("arrived", lambda: len(inner.arrived))
        unsubscribe = subscribe(hear, inline=True)
        try:
            policy = RetryPolicy(max_attempts=4, backoff_base=0.3, jitter=0)
            report = retrying(inner, items=items, retry=policy, item_attempts=ATTEMPTS).send_pending()
        finally:
            unsubscribe()
    stage.line(
        f"{report.count('acknowledged')} arrived, {report.count('giveup')} given up, {report.count('pending')} pending", "green"
    )
    return {
        "items": ITEMS,
        "sent": inner.received.total(),
        "arrived": report.count("acknowledged"),
        "given_up": report.count("giveup"),
        "pending": report.count("pending"),
    }


UPLOADS = Scene(
    "uploads",
    "A damaged item is given up, an outage gives up none",
    _play,
    lambda figures: (
        f"{figures['items']} items, rejected {DOWN} times in an outage: {figures['arrived']} arrived, "
        f"{figures['given_up']} damaged one given up"
    ),
    "docs/how-to/data/batches.md",
)
