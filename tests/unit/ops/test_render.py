"""Reports as JSON documents."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import NamedTuple

from redrive.ops.render import document


class Pair(NamedTuple):
    one: int
    other: datetime


@dataclass(frozen=True, slots=True)
class Report:
    pair: Pair
    some: tuple[int, ...]
    by: dict[int, timedelta]


def test_records_become_documents() -> None:
    moment = datetime(2026, 1, 31, 14, 30, tzinfo=timezone(timedelta(hours=2)))
    found = document([Report(Pair(1, moment), (1, 2), {7: timedelta(minutes=1)})])
    assert found == [{"pair": {"one": 1, "other": "2026-01-31T12:30:00Z"}, "some": [1, 2], "by": {"7": 60.0}}]
    assert json.loads(json.dumps(found)) == found
