"""A simulated day before the demo, so that its charts are filled from the start."""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random

from redrive.ledger.ledger import Ledger
from redrive.ledger.stats import activity
from redrive.ledger.stats.activity import ALL_KINDS, SUMMED, ActivityRow, minute_of
from redrive.ledger.stats.histogram import bucket_of, merge

KINDS = {"orders.charge": 0.35, "crm.sync": 0.9, "labels.print": 0.12, "analytics": 0.05}
"""Job types of the shop, with the median of their run times in seconds."""
DAY_MINUTES, FINE_MINUTES = 1440, 160
"""Length of the history, and the part of it that is kept by the minute."""
OUTAGE = range(520, 580)
"""Minutes before now in which the CRM was down."""
MICROS = 1_000_000


def write_history(ledger: Ledger, /, *, seed: int = 7) -> None:
    """Write the activity of one simulated day, in one transaction.

    Args:
        ledger: The ledger of the demo.
        seed: Of the random numbers.
    """
    now = minute_of(ledger.now())
    with ledger.connections.write.use() as session:
        activity.write(session, SUMMED, list(_rows(now, Random(seed))))


def _rows(now: int, random: Random) -> Iterator[ActivityRow]:
    start = (now - DAY_MINUTES) // 10 * 10
    fine = (now - FINE_MINUTES) // 10 * 10
    slots = [(slot, 10) for slot in range(start, fine, 10)]
    slots += [(slot, 1) for slot in range(fine, now - 1)]
    for slot, span in slots:
        rows = [_row(kind, slot, span, now, random) for kind in KINDS]
        yield from rows
        yield activity.total(ALL_KINDS, slot, span, rows)


def _row(kind: str, slot: int, span: int, now: int, random: Random) -> ActivityRow:
    # Twice as many orders by day as by night.
    busy = 1.5 + math.sin((slot % DAY_MINUTES) / DAY_MINUTES * 2 * math.pi - math.pi / 2)
    count = max(1, round(span * busy * random.uniform(2, 4)))
    is_down = kind == "crm.sync" and now - slot in OUTAGE
    failed = count if is_down else sum(random.random() < 0.02 for _ in range(count))
    dead = failed // 4 if is_down else int(failed > 2 and kind == "labels.print")
    done = 0 if is_down else count
    slow = 6.0 if is_down else 1.0
    waits = [_bucket(random, 0.02 * slow * slow * busy) for _ in range(count)]
    runs = [_bucket(random, KINDS[kind] * slow) for _ in range(count)]
    wait, run = merge({each: 1} for each in waits), merge({each: 1} for each in runs)
    return ActivityRow(kind, slot, span, done, failed, dead, 0, wait, run)


def _bucket(random: Random, median: float) -> int:
    return bucket_of(median * random.lognormvariate(0, 0.6) * MICROS)
