"""Orders of 200 customers, every night, with a backfill of three years and a consumer, as users write it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import date, timedelta
from typing import Any, BinaryIO, assert_type

from redrive import App, backoff, http, retry
from redrive.partitions import (
    Check,
    Dataset,
    File,
    Finding,
    Gap,
    Partition,
    Raw,
    Reading,
    Sink,
    drop,
    freshness,
    not_null,
    row_count,
    schema,
    unique,
)
from redrive.storage import Store

app = App("postgresql://localhost/lake", stores={"raw": {"type": "s3", "options": {"bucket": "lake"}}})
crm = http.Client("https://crm.example.com", auth="…")


def customers() -> list[str]:
    return crm.get("/customers", into=list[str])


def no_future_orders(raw: Raw) -> bool:
    return all(row["placed_on"] <= str(raw.partition.logical_date) for row in raw.rows())


def half_at_least(raw: Raw) -> Finding:
    before = raw.previous
    return Finding(before is None or raw.row_count * 2 >= before.row_count, value=raw.row_count, detail="half of it is gone")


CHECKS: Sequence[Check] = [
    not_null("a"),
    schema({"a": int, "b": str | None}),
    freshness("at", within=60),
    drop(max=0.3),
    half_at_least,
]


@app.dataset(
    "crm", "orders", raw="raw", customers=customers, cron="15 2 * * *",
    checks=[row_count(min=1), unique("order_id"), no_future_orders],
    retry=retry(max_attempts=6, backoff=backoff.steps(300, 1800, 7200)), max_age=timedelta(days=3), concurrency=10,
)  # fmt: skip
def orders(partition: Partition, out: Sink) -> None:
    def pages() -> Iterator[dict[str, Any]]:
        path: str | None = f"/customers/{partition.customer_id}/orders?on={partition.logical_date}"
        while path:
            page = crm.get(path, into=dict[str, Any])
            yield from page["orders"]
            path = page["next"]

    assert_type(out.rows(pages()), int)
    with out.open("raw.bin", rows=3) as file:
        assert_type(file, BinaryIO)


def fetched(store: Store) -> Dataset:
    @app.dataset("crm", "visits", raw=store, customers=["acme"], checks=CHECKS, max_age=None, source_concurrency=4, version="2")
    async def visits(partition: Partition, out: Sink) -> None:
        async def pages() -> AsyncIterator[dict[str, Any]]:
            yield {"on": partition.logical_date}

        assert_type(await out.arows(pages()), int)

    return visits


def consumer() -> None:
    assert_type(orders, Dataset)
    reading = orders.read("acme", "2026-01-01", date(2026, 1, 31))
    assert_type(reading.complete(), Reading)
    for gap in reading.missing:
        assert_type(gap, Gap)
        print(gap.partition.logical_date, gap.why, gap.detail)
    for file in reading.files:
        assert_type(file, File)
        assert_type(file.open(), BinaryIO)
    assert_type(list(reading.rows()), list[dict[str, Any]])


async def later() -> None:
    assert_type(await orders.aread("acme", "2026-01-01"), Reading)


def misuse() -> None:
    orders.retry("acme")  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]  # an operator's, not a reader's
    orders.read("acme")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    app.dataset("crm", "x", raw="raw", customers=["a"], checks=[3])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
