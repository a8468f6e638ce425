"""The query of the KEDA scaler, as the chart renders it, on a real Postgres: it returns the age of the backlog."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from redrive.ledger import Ledger, NewJob, open_ledger
from redrive.ledger.jobs import parking
from redrive.ledger.model import PRIORITIES, QUARANTINE
from redrive.ops.metrics import LedgerGauges
from redrive.ops.operator import Operator
from tests.acceptance.kubernetes.chart import PRODUCTION, get, objects, template
from tests.conformance.ledger.conftest import postgres_ledger, postgres_made  # noqa: F401  # created once for the session
from tests.conformance.ledger.world import pass_time

pytestmark = pytest.mark.req("X-7")


def query(**values: object) -> str:
    """The query of the trigger in the rendered chart."""
    scaled = get(tuple(objects(template(*PRODUCTION, **values))), "ScaledObject", "shop-redrive-worker")
    text: str = scaled["spec"]["triggers"][0]["metadata"]["query"]
    return text


@pytest.fixture(scope="module")
def standard() -> str:
    return query()


@pytest.fixture
def url(postgres_ledger: str) -> str:  # noqa: F811  # the fixture
    return postgres_ledger


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    with open_ledger(url) as opened:
        yield opened


def age(url: str, sql: str) -> int:
    with psycopg.connect(url) as connection:
        (row,) = connection.execute(sql.encode()).fetchall()
    assert isinstance(row[0], int)
    return row[0]


def test_the_age_is_that_of_the_oldest_due_job(url: str, ledger: Ledger, standard: str) -> None:
    assert age(url, standard) == 0
    ledger.submit(NewJob("mail", "later", delay=100_000))
    assert age(url, standard) == 0
    ledger.submit(NewJob("crm.sync", "a", priority=-2))
    pass_time(ledger, 6_000)
    ledger.submit_many([NewJob("mail", f"b{each}", priority=each) for each in PRIORITIES])
    pass_time(ledger, 3_000)
    measured = age(url, standard)
    assert 9_000 <= measured < 10_000
    exported = {each.labels: each.value for each in LedgerGauges(ledger)() if each.metric.name == "redrive_oldest_due_seconds"}
    assert measured == pytest.approx(exported["crm.sync",], abs=1_000)
    assert ledger.claim({"crm.sync": 1}, worker="w1")
    assert 3_000 <= age(url, standard) < 4_000


def test_a_job_in_quarantine_counts(url: str, ledger: Ledger, standard: str) -> None:
    ledger.submit(NewJob("mail", "a"))
    with ledger.begin() as tx:
        tx.exec_driver_sql(f"UPDATE redrive_job SET priority = {QUARANTINE}")
    pass_time(ledger, 5_000)
    assert 5_000 <= age(url, standard) < 6_000


def test_paused_job_types_ask_for_no_worker_and_parked_ones_for_one(url: str, ledger: Ledger, standard: str) -> None:
    ann = Operator(ledger, actor="ann")
    ledger.submit(NewJob("mail", "a"))
    pass_time(ledger, 100)
    ann.pauses.pause("job type", "mail", because="a test")
    assert age(url, standard) == 0
    ann.pauses.resume("job type", "mail", because="a test")
    ann.pauses.pause("app", because="a test")
    assert age(url, standard) == 0
    ann.pauses.resume("app", because="a test")
    assert age(url, standard) >= 100
    with ledger.connections.write.use() as session:
        parking.park(session, "mail", reason="503", signature="503", seconds=60)
    assert age(url, standard) == 1


def test_an_expired_lease_asks_for_one_worker(url: str, ledger: Ledger, standard: str) -> None:
    ledger.submit(NewJob("mail", "a"))
    ledger.claim({"mail": 1}, worker="w1", lease=1_000)
    assert age(url, standard) == 0
    pass_time(ledger, 2_000)
    assert age(url, standard) == 1


def test_only_the_job_types_of_these_workers_count(url: str, ledger: Ledger) -> None:
    ledger.submit_many([NewJob("mail", "a"), NewJob("it's slow", "b")])
    pass_time(ledger, 10_000)
    ledger.submit(NewJob("crm.sync", "c"))
    pass_time(ledger, 1_000)
    assert 1_000 <= age(url, query(worker__only=["crm.sync", "reports"])) < 2_000
    assert 1_000 <= age(url, query(autoscaling__exclude=["mail", "it's slow"])) < 2_000
    assert age(url, query(worker__only=["it's slow"])) >= 11_000


def test_the_tables_may_be_in_another_schema(postgres_db: str) -> None:
    with psycopg.connect(postgres_db, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA jobs")
    address = f"{postgres_db}{'&' if '?' in postgres_db else '?'}options=-csearch_path%3Djobs"
    with open_ledger(address, migrate=True) as ledger:
        ledger.submit(NewJob("mail", "a"))
        pass_time(ledger, 100)
    assert age(postgres_db, query(autoscaling__schema="jobs")) >= 100


def test_the_query_reads_the_index_at_any_backlog(url: str, ledger: Ledger, standard: str) -> None:
    ledger.submit_many([NewJob(f"kind.{each % 5}", f"k{each}", delay=60 * (each % 3)) for each in range(6000)])
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ANALYZE redrive_job")
        plan = "\n".join(row[0] for row in connection.execute(f"EXPLAIN {standard}".encode()))
    assert "Seq Scan on redrive_job" not in plan, plan
    assert "redrive_job_ready" in plan
