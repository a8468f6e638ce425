"""docs/tutorial/cluster.md: the same two files on SQLite, on Postgres with JetStream, and on Temporal."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.servers.nats import nats_server
from tests.servers.nats_admin import NatsAdmin
from tests.servers.temporal import temporal_server

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorial" / "cluster.md").read_text(encoding="utf-8")
SHOP, BUY = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
BUYS = dict(re.findall(r"\$ python buy\.py (o-\d) ann\n(.*)", PAGE))


@pytest.fixture
def buy(tmp_path: Path) -> Callable[..., str]:
    """Start a worker as on the page, submit an order, and return the output."""
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "buy.py").write_text(BUY)

    def run(order: str, **addresses: str) -> str:
        env = {**os.environ, **addresses, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{tmp_path}"}
        worker = subprocess.Popen(
            [sys.executable, "-m", "redrive", "work", "shop:app"],
            cwd=tmp_path, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            bought = subprocess.run(
                [sys.executable, "buy.py", order, "ann"],
                cwd=tmp_path, env=env, capture_output=True, text=True, timeout=90,
            )  # fmt: skip
        finally:
            worker.terminate()
            _, errors = worker.communicate(timeout=40)
        assert bought.returncode == 0, (bought.stderr, errors)
        return bought.stdout

    return run


@pytest.mark.req("E-9")
def test_the_same_files_run_on_every_engine(buy: Callable[..., str], postgres_db: str) -> None:
    assert buy("o-1") == f"{BUYS['o-1']}\n"
    # Separate servers, because the page uses the names of other pages.
    with nats_server() as nats, temporal_server() as temporal:
        with NatsAdmin(nats) as admin:
            admin.create_stream("orders", subjects=["orders.>"])
        addresses = {"SHOP_LEDGER": postgres_db, "SHOP_NATS": nats}
        assert buy("o-2", **addresses) == f"{BUYS['o-2']}\n"
        assert buy("o-3", SHOP_TEMPORAL=temporal, **addresses) == f"{BUYS['o-3']}\n"
