"""Ctrl+C during a wait, in a real process: it exits immediately, and the next call continues."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sqlalchemy import Engine

from redrive import App
from tests.conformance.batch.world import tiles, upload

PROGRAM = """
import sys
from redrive import App, RetryPolicy
from redrive.batch import retrying
from redrive.journal import subscribe
from tests.conformance.batch.world import Tiles, engine_at, table_items

url, store = sys.argv[1:]
engine, slow = engine_at(url), RetryPolicy(4, 600, 600, 0)
with App(url) as app:
    items = app.items("tiles") if store == "ledger" else table_items(engine)
    subscribe(lambda record: record.kind == "batch_retry" and print("waiting", flush=True), inline=True)
    sender = retrying(Tiles(engine, items, lambda tile: "checksum" if tile in ("t3", "t7") else ""), items=items, retry=slow)
    try:
        sender.send_pending()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


@pytest.mark.req("B-14")
@pytest.mark.parametrize("store", ["table", "ledger"])
def test_ctrl_c_during_a_wait_loses_no_count(app: App, url: str, engine: Engine, store: str) -> None:
    command = [sys.executable, "-W", "error", "-c", PROGRAM, url, store]
    root = Path(__file__).parents[3]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(root)}) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "waiting\n"
        time.sleep(0.05)
        began = time.monotonic()
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline() == "interrupted\n"
        assert time.monotonic() - began < 60  # and not after the ten minutes of the wait
        child.wait(60)
    counted = {tile for tile, row in tiles(engine).items() if row[1]} if store == "table" else _waiting(app)
    assert counted == {"t3", "t7"}
    report = upload(url, store, ("t3", "t7"))
    assert [item.id for item in report.items] == ["t3", "t7"]
    assert {row[0] for tile, row in tiles(engine).items() if tile not in counted} == {"uploaded"}


def _waiting(app: App) -> set[str]:
    from sqlalchemy import select

    from redrive.ledger.db.tables import item

    with app.ledger.reading() as connection:
        return set(connection.execute(select(item.c.item).where(item.c.attempts == 1, item.c.status == "open")).scalars())
