"""A later pass raises: the report, the rows and the job for the rest agree, on both databases."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from redrive import App, outcome
from redrive.batch import Items, Report, retrying
from redrive.testing import instant
from tests.conformance.batch.world import Tiles, table_items, tiles


class LosesConnection(Tiles):
    """The first pass works. Later passes raise until the connection is back."""

    passes = 0
    is_back = False

    def send_pending(self, flight: str = "f-1") -> Report:
        self.passes += 1
        if self.passes > 1 and not self.is_back:
            raise ConnectionError("gone")
        return super().send_pending()


@pytest.mark.req("B-6", "B-7", "B-8")
@pytest.mark.parametrize("store", ["table", "ledger"])
def test_a_lost_connection_leaves_a_job_for_the_pending_items(app: App, engine: Engine, store: str) -> None:
    items: Items = app.items("tiles") if store == "ledger" else table_items(engine)
    busy = {"t3", "t7"}
    inner = LosesConnection(engine, items, lambda tile: "busy" if tile in busy else "")

    @app.command("tiles.later", key="tiles::{flight}:upload:v1")
    def later(flight: str) -> None: ...

    sender = retrying(inner, items=items, spill=later)
    with instant(), pytest.raises(ConnectionError) as raised:
        sender.send_pending("f-1")
    report: Report = raised.value.redrive_report  # type: ignore[attr-defined]
    assert {item.id for item in report.items if item.status == "pending"} == busy
    assert {tile for tile, row in tiles(engine).items() if row[0] == "pending"} == busy
    assert report.count("acknowledged") == 8
    ended = outcome(raised.value)
    assert ended is not None
    assert ended.job_id == report.job_id is not None
    job = app.ledger.get(int(report.job_id))
    assert job is not None
    assert (job.kind, job.payload, job.shown) == ("tiles.later", b'{"flight":"f-1"}', "queued")
    assert job.due_at == report.next_retry_at == ended.retry_at
    # When the connection is back, the next call sends only the rest.
    inner.is_back = True
    busy.clear()
    with instant():
        rest = sender.send_pending("f-1")
    assert (rest.outcome, sorted(item.id for item in rest.items)) == ("success", ["t3", "t7"])
    assert {row[0] for row in tiles(engine).values()} == {"uploaded"}
