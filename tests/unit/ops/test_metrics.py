"""Metrics of a ledger, and the metrics server of a worker."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import timedelta

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from redrive import App
from redrive.journal.bus import subscribe
from redrive.journal.metrics import (
    JOBS,
    LEDGER_METRICS,
    MAX_LABEL_VALUES,
    OLDEST,
    OTHER,
    PARKED,
    PARTITIONS,
    SUBMITTED,
    LabelLimiter,
    Measurement,
)
from redrive.journal.sinks.prometheus import PrometheusExporter, prometheus
from redrive.ledger import NewJob
from redrive.ops.metrics import LedgerGauges, MetricsServer, fold_labels, prometheus_endpoint
from redrive.ops.project.user_code import Unreadable
from redrive.testing import sandbox


@pytest.fixture
def app() -> Iterator[App]:
    with App("sqlite://") as made:
        yield made


@pytest.fixture
def sink() -> Iterator[None]:
    """Subscribe the Prometheus sink for one test. An endpoint would leave its own subscribed."""
    unsubscribe = subscribe(prometheus())
    yield
    unsubscribe()


def values(app: App) -> dict[tuple[str, ...], float]:
    return {(one.metric.name, *one.labels): one.value for one in LedgerGauges(app)()}


@pytest.mark.req("J-3")
def test_jobs_are_counted_by_job_type_and_state(app: App) -> None:
    with sandbox(app) as box:
        app.ledger.submit(NewJob("mail", "mail:ann:1:send:v1"))
        app.ledger.submit(NewJob("mail", "mail:ann:2:send:v1"))
        app.ledger.submit(NewJob("tiles", "tiles:ann:1:cut:v1", delay=3600))
        (lease,) = app.ledger.claim({"mail": 1}, worker="w1")
        box.clock.advance(timedelta(seconds=90))
        app.ledger.maintenance.heartbeat("w1", {})
        app.ledger.maintenance.heartbeat("w2", {})
        found = values(app)
        assert found["redrive_ledger_up",] == 1
        assert (found["redrive_jobs", "mail", "waiting"], found["redrive_jobs", "mail", "running"]) == (1, 1)
        assert found["redrive_jobs", "tiles", "waiting"] == 1
        assert found["redrive_oldest_due_seconds", "mail"] == pytest.approx(90, abs=1)
        assert found["redrive_oldest_due_seconds", "tiles"] == 0
        assert found["redrive_jobs_submitted_total", "mail"] == 2
        assert (found["redrive_workers", "alive"], found["redrive_workers", "silent"]) == (2, 0)
        box.clock.advance(timedelta(seconds=61))
        app.ledger.settle(lease.dead("because"))
        later = values(app)
        assert (later["redrive_jobs", "mail", "dead"], later["redrive_jobs", "mail", "running"]) == (1, 0)
        assert (later["redrive_workers", "alive"], later["redrive_workers", "silent"]) == (0, 2)


@pytest.mark.req("J-3")
def test_an_offline_ledger_has_a_metric() -> None:
    with App("sqlite:///nowhere/at/all.db") as app:
        assert values(app) == {("redrive_ledger_up",): 0}


@pytest.mark.req("J-3")
def test_job_types_beyond_the_limit_are_merged() -> None:
    kinds = [f"k{number}" for number in range(MAX_LABEL_VALUES + 3)]
    measures = [Measurement(metric, 2, (kind,)) for kind in kinds for metric in (SUBMITTED, OLDEST, PARKED)]
    found = {(one.metric, one.labels): one.value for one in fold_labels(iter(measures), LabelLimiter())}
    assert found[SUBMITTED, (OTHER,)] == 6
    assert found[OLDEST, (OTHER,)] == found[PARKED, (OTHER,)] == 2
    assert len(found) == 3 * (MAX_LABEL_VALUES + 1)


@pytest.mark.req("J-3")
@pytest.mark.usefixtures("sink")
def test_a_scrape_has_the_metrics_of_the_ledger_and_of_the_process(app: App) -> None:
    app.ledger.submit(NewJob("mail", "mail:ann:1:send:v1"))
    body, _ = prometheus_endpoint(app).text()
    families = {family.name for family in parse(body.decode())}
    assert {metric.name.removesuffix("_total") for metric in LEDGER_METRICS if metric is not PARTITIONS} <= families
    assert "redrive_attempts" in families


@pytest.mark.req("J-3")
def test_the_metrics_server_serves_metrics_and_health() -> None:
    state = {"well": True}
    exposure = MetricsServer(PrometheusExporter(lambda: [Measurement(JOBS, 1, ("mail", "dead"))]), lambda: state["well"])
    with exposure:
        url = f"http://{exposure.address}"

        def ask(path: str) -> tuple[int, str]:
            try:
                with urllib.request.urlopen(url + path, timeout=30) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as refused:
                with refused:
                    return refused.code, refused.read().decode()

        status, text = ask("/metrics?name=x")
        assert (status, 'redrive_jobs{kind="mail",state="dead"} 1.0' in text) == (200, True)
        assert (ask("/health")[0], json.loads(ask("/health")[1])) == (200, {"status": "ok"})
        state["well"] = False
        assert ask("/health")[0] == 503
        assert ask("/")[0] == 404
        with pytest.raises(Unreadable, match=r"metrics cannot be served at 127\.0\.0\.1:\d+: "):
            MetricsServer(PrometheusExporter(list), lambda: True, port=int(exposure.address.rpartition(":")[2]))
