"""The Prometheus sink, with the real library and its parser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from redrive import App, journal, retry
from redrive.journal.metrics import JOBS, MAX_LABEL_VALUES, OTHER, SUBMITTED, Measurement
from redrive.journal.sinks.prometheus import PrometheusExporter, PrometheusSink
from redrive.testing import inject, instant


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def sink(registry: CollectorRegistry) -> Iterator[PrometheusSink]:
    made = journal.prometheus(registry)
    unsubscribe = journal.subscribe(made, inline=True)
    yield made
    unsubscribe()


def samples(registry: CollectorRegistry, *measures: Measurement) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    body, content_type = PrometheusExporter(lambda: measures, registry).text()
    assert content_type.startswith("text/plain")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse(body.decode())
        for sample in family.samples
    }


@pytest.mark.req("J-3")
def test_calls_are_counted_by_outcome(registry: CollectorRegistry, sink: PrometheusSink) -> None:
    @retry(operation="crm.fetch", max_attempts=2)
    def fetch() -> str:
        return "ok"

    with instant(), inject(fetch, ConnectionError("x")):
        fetch()
    fetch()
    with instant(), inject(fetch, ConnectionError("x"), ConnectionError("x")), pytest.raises(ConnectionError):
        fetch()
    found = samples(registry)
    ends = {dict(labels)["outcome"]: value for (name, labels), value in found.items() if name == "redrive_attempts_total"}
    assert ends == {"retry": 2, "recovered": 1, "success": 1, "giveup": 1}
    why = (("layer", "call"), ("operation", "crm.fetch"), ("reason", "attempts"))
    assert found["redrive_giveups_total", why] == 1
    assert found["redrive_attempt_seconds_count", (("layer", "call"), ("operation", "crm.fetch"))] == 5
    assert ("redrive_journal_dropped_total", ()) in found


@pytest.mark.req("J-3")
def test_operations_beyond_the_limit_become_other(registry: CollectorRegistry, sink: PrometheusSink) -> None:
    for number in range(MAX_LABEL_VALUES + 50):
        retry(operation=f"made.up.{number}").call(int)
    names = {dict(labels)["operation"] for (name, labels) in samples(registry) if name == "redrive_attempts_total"}
    assert len(names) == MAX_LABEL_VALUES + 1
    assert OTHER in names


@pytest.mark.req("J-3")
def test_measurements_of_the_scrape_are_exported(registry: CollectorRegistry) -> None:
    measures = (
        Measurement(JOBS, 3, ("mail", "waiting")),
        Measurement(JOBS, 1, ('m"a\nil', "dead")),
        Measurement(SUBMITTED, 9, ("mail",)),
    )
    found = samples(registry, *measures)
    assert found["redrive_jobs", (("kind", "mail"), ("state", "waiting"))] == 3
    assert found["redrive_jobs", (("kind", 'm"a\nil'), ("state", "dead"))] == 1
    assert found["redrive_jobs_submitted_total", (("kind", "mail"),)] == 9


def test_openmetrics_if_the_scraper_accepts_it(registry: CollectorRegistry, sink: PrometheusSink) -> None:
    retry(operation="crm").call(int)
    body, content_type = PrometheusExporter(lambda: [Measurement(SUBMITTED, 9, ("mail",))], registry).text(
        "application/openmetrics-text"
    )
    assert content_type.startswith("application/openmetrics-text")
    assert "redrive_jobs_submitted" in {family.name for family in parse_openmetrics(body.decode())}  # type: ignore[no-untyped-call]


@pytest.mark.req("J-3")
def test_sinks_of_an_app_are_subscribed_until_it_closes(registry: CollectorRegistry) -> None:
    sink = journal.prometheus(registry)
    with App("sqlite://", journal=[sink]):
        assert sink.is_subscribed
        retry(operation="crm").call(int)
        assert journal.flush()
    assert not sink.is_subscribed
    retry(operation="crm").call(int)
    ended = (("layer", "call"), ("operation", "crm"), ("outcome", "success"))
    assert samples(registry)["redrive_attempts_total", ended] == 1


@pytest.mark.req("J-3")
def test_a_registry_has_one_sink_that_is_subscribed_once(registry: CollectorRegistry, sink: PrometheusSink) -> None:
    assert journal.prometheus(registry) is sink
    with pytest.raises(ValueError, match="counted twice"):
        journal.subscribe(sink)
    assert journal.prometheus(CollectorRegistry()) is not sink
