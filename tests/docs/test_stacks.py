"""The page for FastAPI: the programs run on Postgres."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import blocks

DOCS = Path(__file__).parents[2] / "docs" / "how-to"
TRY_IT = """
from fastapi.testclient import TestClient
import shop

shop.Base.metadata.create_all(shop.engine)
shop.app.migrate()
client = TestClient(shop.api)
first = client.post("/orders", json={"id": "o-1", "user": "ann"}, headers={"Idempotency-Key": '"o-1"'})
again = client.post("/orders", json={"id": "o-1", "user": "ann"}, headers={"Idempotency-Key": '"o-1"'})
assert first.status_code == 201 and again.json() == first.json(), (first.text, again.text)
with shop.app.worker():
    assert shop.send_receipt.job(first.json()["job"]).result(30).startswith("mail to ann")
shop.app.close()
shop.engine.dispose()
"""


def test_the_fastapi_service_runs_on_postgres(postgres_db: str, tmp_path: Path) -> None:
    page = (DOCS / "jobs" / "fastapi.md").read_text(encoding="utf-8")
    (program,) = (block.source for block in blocks(page) if block.file == "shop.py")
    (tmp_path / "shop.py").write_text(program)
    address = postgres_db.replace("postgresql://", "postgresql+psycopg://")
    done = subprocess.run(
        [sys.executable, "-c", TRY_IT], cwd=tmp_path, env=os.environ | {"DATABASE_URL": address}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


TRY_ASYNC = """
from fastapi.testclient import TestClient
import shop

shop.Base.metadata.create_all(shop.engine)
shop.app.migrate()
with TestClient(shop.api) as client:  # one event loop for the connections of all requests
    orders = [
        client.post("/orders", json={"id": "o-1", "user": "ann"}, headers={"Idempotency-Key": key})
        for key in ('"first"', '"second"')
    ]
    assert [order.status_code for order in orders] == [201, 201], [order.text for order in orders]
    assert orders[0].json() == orders[1].json(), "one order and one job"
    assert client.post("/orders", json={"id": "o-1", "user": "bob"}).status_code == 409
    client.portal.call(shop.async_engine.dispose)
with shop.app.worker():
    assert shop.send_receipt.job(orders[0].json()["job"]).result(30) == "mail to ann: Your order o-1"
shop.app.close()
shop.engine.dispose()
"""


def test_the_async_endpoint_of_the_fastapi_page_runs_on_postgres(postgres_db: str, tmp_path: Path) -> None:
    pytest.importorskip("greenlet", reason="SQLAlchemy's asyncio needs it")
    page = (DOCS / "jobs" / "fastapi.md").read_text(encoding="utf-8")
    (program,) = (block.source for block in blocks(page) if block.file == "shop.py")
    (endpoint,) = (block.source for block in blocks(page) if "create_async_engine" in block.source)
    place_order = re.compile(r'^@api\.post\("/orders".*?(?=^@api\.get\("/jobs)', re.DOTALL | re.MULTILINE)
    program, replaced = place_order.subn(lambda _: f"{endpoint}\n\n", program)
    assert replaced == 1
    (tmp_path / "shop.py").write_text(program)
    address = postgres_db.replace("postgresql://", "postgresql+psycopg://")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", TRY_ASYNC],
        cwd=tmp_path,
        env=os.environ | {"DATABASE_URL": address},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


ORDERS = """
import asyncio

async def main():
    {call}

app.migrate()
with app.worker():
    job_id = asyncio.run(main())
    send_receipt.job(job_id).result(30)
    {more}
app.close()
"""
CALLS = {
    "create_async_engine": ("job = await place_order('o-1'); await async_engine.dispose(); return job", ""),
    "import asyncpg": ("async with asyncpg.create_pool(app.url, min_size=1) as pool: return await place_order(pool, 'o-1')", ""),
    "import psycopg2": ("return await place_order('o-1')", "send_receipt.job(place_order_with_psycopg2('o-2')).result(30)"),
}


@pytest.mark.req("X-1")
@pytest.mark.parametrize("name", CALLS)
def test_the_async_examples_of_the_page_of_transactions_run_on_postgres(postgres_db: str, tmp_path: Path, name: str) -> None:
    page = (DOCS / "jobs" / "transactions.md").read_text(encoding="utf-8")
    (setup,) = (block.source for block in blocks(page) if "app = App(" in block.source)
    (example,) = (block.source for block in blocks(page) if name in block.source)
    setup = setup.replace('"sqlite:///shop.db"', repr(postgres_db))
    call, more = CALLS[name]
    program = "\n".join([setup, example, ORDERS.format(call=call, more=more)])
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
