"""A worker with datasets: extracts and validates, sync and async, several at a time."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest

from redrive import App, RetryPolicy, current, journal, retry
from redrive.errors import Again
from redrive.journal import Record
from redrive.partitions import Finding, Partition, Raw, Sink
from redrive.partitions.control.plane import ControlPlane
from redrive.partitions.model import PartitionFilter
from redrive.partitions.queries import PartitionQueries
from tests.acceptance.partitions.world import SINCE, UNTIL, backfill, counts, dataset_options, until, work_counts


@pytest.mark.req("P-1", "P-11")
def test_two_workers_run_sync_and_async_extractions(app: App) -> None:
    seen: list[tuple[str, Partition, str]] = []

    @app.dataset("crm", "orders", **dataset_options())
    def orders(partition: Partition, out: Sink) -> None:
        seen.append(("orders", partition, out.run_id))
        out.rows([{"customer": partition.customer_id, "attempt": current().number, "operation": current().operation}])

    @app.dataset("crm", "visits", **dataset_options())
    async def visits(partition: Partition, out: Sink) -> None:
        async def pages() -> AsyncIterator[dict[str, Any]]:
            for number in range(3):
                await asyncio.sleep(0)
                yield {"customer": partition.customer_id, "number": number}

        seen.append(("visits", partition, out.run_id))
        await out.arows(pages())

    backfill(app, "orders", "visits")
    with app.worker(threads=4), app.worker(threads=2):
        until(lambda: counts(app) == counts(app, "visits") == {"success": 12})
    assert len({run_id for *_, run_id in seen}) == len(seen) == 24, "each was extracted once"
    reading = orders.read("acme", SINCE, UNTIL).complete()
    assert list(reading.rows()) == [{"customer": "acme", "attempt": 1, "operation": "crm/orders"}] * 4
    assert len(list(asyncio.run(visits.aread("globex", SINCE, UNTIL)).complete().rows())) == 12


@pytest.mark.req("P-9")
def test_a_failing_partition_is_retried_until_its_attempts_are_used_up(app: App) -> None:
    tried: Counter[str] = Counter()
    records: list[Record] = []

    @app.dataset("crm", "orders", **dataset_options())
    def orders(partition: Partition, out: Sink) -> None:
        tried[partition.customer_id] += 1
        if partition.customer_id == "globex" and tried["globex"] < 3:
            raise ConnectionError("no answer, password=hunter2")
        out.rows([] if partition.customer_id == "initech" else [{"n": 1}])

    backfill(app, "orders", until=SINCE)
    unsubscribe = journal.subscribe(records.append, every=True, inline=True)
    with app.worker(threads=2):
        until(lambda: counts(app) == {"success": 2, "terminal": 1})
    unsubscribe()
    assert tried == {"acme": 1, "globex": 3, "initech": 3}
    assert [gap.why for gap in orders.read("initech", SINCE).missing] == ["terminal"]
    kinds = Counter(
        (record.fields["customer_id"], record.kind) for record in records if record.fields.get("operation") == "crm/orders"
    )
    assert kinds == {
        ("acme", "success"): 1, ("globex", "retry"): 2, ("globex", "recovered"): 1,
        ("initech", "retry"): 2, ("initech", "giveup"): 1,
    }  # fmt: skip
    last = next(record for record in records if record.kind == "giveup")
    assert (last.fields["reason"], last.fields["rejected"], last.fields["attempt"]) == ("attempts", "row_count", 3)
    assert "hunter2" not in str(records)
    history = PartitionQueries(app.ledger).history(Partition("crm", "globex", "orders", SINCE))  # type: ignore[arg-type]
    assert [run.state for run in history] == ["accepted", "rejected", "rejected"]
    assert "hunter2" not in str(history)


def test_an_attempt_has_a_timeout(app: App) -> None:
    @app.dataset("crm", "orders", **dataset_options(retry=retry(max_attempts=1, attempt_timeout=0.05)))
    def orders(partition: Partition, out: Sink) -> None:
        assert (current().remaining or 0) <= 0.05
        time.sleep(0.06)
        out.rows([{"n": 1}])

    @app.dataset("crm", "visits", **dataset_options(retry=retry(max_attempts=1, attempt_timeout=0.05)))
    async def visits(partition: Partition, out: Sink) -> None:
        await asyncio.sleep(30)

    backfill(app, "orders", "visits", customers=("acme",), until=SINCE)
    with app.worker(threads=2):
        until(lambda: counts(app) == counts(app, "visits") == {"terminal": 1})
    for query in ("orders", "visits"):
        facts = PartitionQueries(app.ledger).get(Partition("crm", "acme", query, SINCE))  # type: ignore[arg-type]
        assert facts is not None
        assert facts.reason == "AttemptTimeout"


def test_invalid_extractions_are_explained(app: App) -> None:
    def writes_nothing(partition: Partition, out: Sink) -> None:
        pass

    def writes_twice(partition: Partition, out: Sink) -> None:
        out.rows([{"n": 1}])
        out.rows([{"n": 2}])

    def returns_a_generator(partition: Partition, out: Sink) -> Any:
        return ({"n": n} for n in range(3))

    def raises_in_the_middle(partition: Partition, out: Sink) -> None:
        def rows() -> Iterator[dict[str, Any]]:
            yield {"n": 1}
            raise ConnectionError("page 2")

        out.rows(rows())

    def mumbles(partition: Partition, out: Sink) -> None:
        raise ValueError("nul \x00 and half \ud800 of a character")

    def exits(partition: Partition, out: Sink) -> None:
        raise SystemExit(3)

    functions = (writes_nothing, writes_twice, returns_a_generator, raises_in_the_middle, mumbles, exits)
    for fn in functions:
        app.dataset("crm", fn.__name__, **dataset_options(retry=RetryPolicy.disabled(), customers=["a,b/é"]))(fn)
    backfill(app, *(fn.__name__ for fn in functions), customers=("a,b/é",), until=SINCE)
    with app.worker(threads=4):
        until(lambda: all(counts(app, fn.__name__) == {"terminal": 1} for fn in functions))
    said = {}
    for fn in functions:
        facts = PartitionQueries(app.ledger).get(Partition("crm", "a,b/é", fn.__name__, SINCE))  # type: ignore[arg-type]
        assert facts is not None
        said[fn.__name__] = facts.error or ""
    assert "wrote no file" in said["writes_nothing"]
    assert "'rows.jsonl' was written by this run already" in said["writes_twice"]
    assert "returned generator, which is not written; use out.rows(...)" in said["returns_a_generator"]
    assert "page 2" in said["raises_in_the_middle"]
    assert "and half" in said["mumbles"]
    assert "SystemExit" in said["exits"]
    stored = sorted(path.rpartition("/")[2] for path in app.stores.get_store("raw").files())
    assert stored == ["rows.jsonl"], "of the one that wrote twice; without a manifest it does not count"


@pytest.mark.req("P-5")
def test_a_failed_reprocessing_keeps_the_data_readable(app: App) -> None:
    good = [True]

    @app.dataset("crm", "orders", **dataset_options())
    def orders(partition: Partition, out: Sink) -> None:
        out.rows([{"n": 1}] if good else [])

    backfill(app, "orders", customers=("acme",), until=SINCE)
    with app.worker(threads=1):
        until(lambda: counts(app) == {"success": 1})
        good.clear()
        register, control = PartitionQueries(app.ledger), ControlPlane(app.ledger, [one.limits for one in app.datasets])
        control.begin_requeue(register.freeze("reprocess", PartitionFilter(source="crm")), actor="ann", because="restated")
        until(lambda: counts(app) == {"refresh_failed": 1} and work_counts(app) == (0, 0))
        assert list(orders.read("acme", SINCE).complete().rows()) == [{"n": 1}]


@pytest.mark.req("P-6")
def test_revalidation_of_the_same_data(app: App) -> None:
    strict = [True]
    extracted: list[str] = []

    def judge(raw: Raw) -> Finding:
        return Finding(not strict, value="\x00", limit=float("nan"), detail="nul \x00 and half \ud800 of a character")

    @app.dataset("crm", "orders", **dataset_options(checks=[judge], retry=RetryPolicy.disabled()))
    def orders(partition: Partition, out: Sink) -> None:
        extracted.append(out.run_id)
        out.rows([{"n": 1}])

    backfill(app, "orders", customers=("acme",), until=SINCE)
    with app.worker(threads=1):
        until(lambda: counts(app) == {"terminal": 1})
        strict.clear()
        register, control = PartitionQueries(app.ledger), ControlPlane(app.ledger, [one.limits for one in app.datasets])
        picked = register.freeze("revalidate", PartitionFilter(source="crm"), clear_terminal=True)
        control.begin_requeue(picked, actor="ann", because="the check is fixed", clear_terminal=True)
        until(lambda: counts(app) == {"success": 1})
    assert len(extracted) == 1
    facts = register.get(Partition("crm", "acme", "orders", SINCE))  # type: ignore[arg-type]
    assert facts is not None
    assert (facts.attempt_count, facts.current_raw_id) == (2, extracted[0])
    assert facts.current_run_id != extracted[0]
    assert list(orders.read("acme", SINCE).complete().rows()) == [{"n": 1}]


@pytest.mark.req("P-11")
def test_deleted_raw_data_is_reported(app: App) -> None:
    @app.dataset("crm", "orders", **dataset_options())
    def orders(partition: Partition, out: Sink) -> None:
        out.rows([{"n": 1}])

    backfill(app, "orders", customers=("acme",))
    with app.worker(threads=2):
        until(lambda: counts(app) == {"success": 4})
    store = app.stores.get_store("raw")
    paths = sorted(store.files())
    store.delete(next(path for path in paths if "2026-01-02" in path and path.endswith("manifest.json")))
    store.delete(next(path for path in paths if "2026-01-03" in path and path.endswith("rows.jsonl")))
    store.write(next(path for path in paths if "2026-01-04" in path and path.endswith("manifest.json")), b"{")
    first = next(path for path in paths if "2026-01-01" in path and path.endswith("manifest.json"))
    kept = store.read_bytes(first)
    store.write(first, kept.replace(b'"rows": 1', b'"rows": 2'))
    assert "2 rows, but 1 was accepted" in orders.read("acme", SINCE).missing[0].detail
    store.write(first, kept)
    reading = orders.read("acme", SINCE, UNTIL)
    assert [(str(gap.partition.logical_date), gap.why) for gap in reading.missing] == [
        ("2026-01-02", "lost"), ("2026-01-03", "lost"), ("2026-01-04", "lost"),
    ]  # fmt: skip
    assert "has no manifest" in reading.missing[0].detail
    assert "is missing in the store" in reading.missing[1].detail
    assert "cannot be read" in reading.missing[2].detail
    assert list(reading.rows()) == [{"n": 1}]


def test_a_source_that_is_not_ready_is_not_charged(app: App) -> None:
    calls: list[int] = []

    @app.dataset("crm", "orders", **dataset_options())
    def orders(partition: Partition, out: Sink) -> None:
        calls.append(current().number)
        if len(calls) < 3:
            raise Again("the report is not there yet", after=timedelta(milliseconds=1), free=True)
        out.rows([{"n": 1}])

    backfill(app, "orders", customers=("acme",), until=SINCE)
    with app.worker(threads=1):
        until(lambda: counts(app) == {"success": 1})
    assert calls == [1, 1, 1]
    facts = PartitionQueries(app.ledger).get(Partition("crm", "acme", "orders", SINCE))  # type: ignore[arg-type]
    assert facts is not None
    assert (facts.attempt_count, facts.dispatch_count) == (1, 3)


@pytest.mark.parametrize(
    ("since", "until_", "says"),
    [
        ("2026-02-30", None, "since='2026-02-30' is not a valid date"),
        ("2026-01-31", "2026-01-01", "the range is reversed"),
        ("2026-1-1", None, "since"),
        ("0001-01-01", "9999-12-31", "more than a hundred years"),
    ],
)
def test_invalid_dates_are_rejected(app: App, since: str, until_: str | None, says: str) -> None:
    orders = app.dataset("crm", "orders", **dataset_options())(lambda partition, out: None)
    with pytest.raises(ValueError, match=says):
        orders.read("acme", since, until_)
    with pytest.raises(TypeError, match="customer must be text"):
        orders.read(7, "2026-01-01")  # type: ignore[arg-type]
