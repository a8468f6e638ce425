"""`redrive overview`, `failures`, `workers`, `schedules` and `journal`."""

from __future__ import annotations

import json
import re
from datetime import timedelta

import pytest

from redrive.demo.live import write_history
from redrive.ledger import Ledger, NewJob
from redrive.ledger.jobs.lease_recovery import expire_leases_of_dead_workers
from tests.conformance.partitions.world import World
from tests.unit.cli.command import call
from tests.unit.cli.conftest import LONG, SECRET
from tests.unit.cli.lake import BAD

EVERY = [
    ("overview",), ("activity",), ("failures",), ("failures", "HTTPStatusError", "--kind", LONG), ("workers", "list", "--all"),
    ("schedules", "list"), ("journal", "tail", "-n", "100"),
]  # fmt: skip


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("arguments", EVERY, ids=" ".join)
@pytest.mark.usefixtures("busy")
def test_output_fits_the_terminal_and_has_no_secrets(arguments: tuple[str, ...], width: int) -> None:
    status, printed = call(*arguments, width=width)
    assert status in (0, 1), printed
    assert SECRET not in printed
    assert max(map(len, printed.splitlines())) <= width


@pytest.mark.parametrize("arguments", EVERY, ids=" ".join)
def test_an_empty_ledger_has_an_empty_state(ledger: Ledger, arguments: tuple[str, ...]) -> None:
    assert ledger.counts() == {}
    status, printed = call(*arguments)
    if "HTTPStatusError" in arguments:
        assert (status, "'HTTPStatusError': no group matches" in printed) == (1, True)
    else:
        assert (status, len(printed.splitlines()) <= 6) == (0, True), printed


@pytest.mark.req("O-4")
def test_the_overview_lists_problems_first(busy: Ledger) -> None:
    status, printed = call("overview", width=80)
    assert status == 0, printed  # a few failures are not reported
    assert "1 worker online" in printed
    assert "crm.sync" in printed
    ledger = busy
    ledger.submit_many([NewJob("mail", str(each)) for each in range(12)])
    ledger.settle([lease.dead("x", error="E", signature="E") for lease in ledger.claim({"mail": 12}, worker="w")])
    status, printed = call("overview", width=80)
    assert status == 1
    assert "mail: 12 new dead letters in the last hour (average before: 0/h), rising" in " ".join(printed.split())
    assert "→ redrive failures --kind mail" in printed
    assert printed.index("mail ") < printed.index("crm.sync")
    status, printed = call("overview", "--json")
    found = json.loads(printed)
    assert (found["severity"], found["findings"][0]["kind"], found["kinds"][0]["name"]) == ("warning", "mail", "mail")
    assert found["says"] == "1 worker online; 2 jobs running"


@pytest.mark.req("Q-12")
def test_activity_is_shown_with_sparklines(busy: Ledger) -> None:
    write_history(busy)
    status, printed = call("activity", width=100)
    assert status == 0, printed
    assert re.search(r"All job types, between .* UTC, by 20 min", printed)
    assert re.search(r"queue wait p95 +[0-9.]+ ms +[▁-█]", printed), printed  # the first bar depends on the time of day
    assert re.search(r"crm.sync +[\d,]+", printed)
    assert "Failures by cause" in printed
    found = json.loads(call("activity", "--kind", "crm.sync", "--since", "1h", "--json")[1])
    assert (found["kind"], found["step"], found["kinds"]) == ("crm.sync", 60, [])
    assert found["total"]["done"] == sum(point["done"] for point in found["points"]) > 0


@pytest.mark.req("Q-12")
def test_activity_rejects_an_invalid_range_and_suggests_a_similar_job_type(busy: Ledger) -> None:
    assert busy.counts()
    status, printed = call("activity", "--since", "400d")
    assert (status, "activity is kept for 90 days" in printed) == (2, True)
    assert "did you mean crm.sync?" in call("activity", "--kind", "crm.snyc")[1]


@pytest.mark.req("O-4")
def test_failures_are_grouped_and_one_group_is_shown(busy: Ledger) -> None:
    assert busy.imbalance() == []
    _, printed = call("failures", "--json")
    found = json.loads(printed)
    assert found["partitions"] == []
    assert {(one["kind"], one["pending"]) for one in found["jobs"] if one["signature"] == "HTTPStatusError"} == {
        ("crm.sync", 2),
        (LONG, 5),
    }
    status, printed = call("failures", "HTTPStatus")
    assert status == 1
    assert "'HTTPStatus': 2 groups match; pass --kind, or more of the error" in printed
    status, printed = call("failures", "HTTPStatus", "--kind", "crm.sync")
    assert status == 0
    assert "2 dead letters" in printed
    assert 'redrive dead replay --kind crm.sync --error HTTPStatusError --canary 5 --because "..."' in " ".join(printed.split())
    status, printed = call("failures", "HTTPStatusError", "--kind", "crm.sync", "--json")
    assert [letter["id"] for letter in json.loads(printed)["letters"]] == [5, 4]
    assert call("failures", "--since", "yesterday")[0] == 2


def test_stopped_workers_are_listed_with_all(busy: Ledger) -> None:
    busy.maintenance.deregister_worker("web-7f9c:1201")
    assert call("workers", "list") == (0, "No worker is online; 1 stopped in the last week (--all).\n")
    status, printed = call("workers", "list", "--all")
    assert (status, "○ stopped" in printed) == (0, True)
    assert json.loads(call("workers", "list", "--all", "--json")[1])[0]["presence"] == "ended"


@pytest.mark.req("O-4")
def test_a_killed_worker_is_listed_as_lost(busy: Ledger) -> None:
    with busy.connections.write.use() as session:
        expire_leases_of_dead_workers(session, ["web-7f9c:1201"])
    status, printed = call("workers", "list")
    assert (status, "✗ lost" in printed) == (0, True), printed


@pytest.mark.req("O-3", "O-4")
@pytest.mark.usefixtures("busy", "lake")
def test_failures_and_journal_include_partitions() -> None:
    status, printed = call("failures", width=120)
    assert (status, printed.count("crm/orders"), "→ redrive state failures" in printed) == (0, 3, True), printed
    _, printed = call("failures", "--kind", "crm/orders", "--json")
    found = json.loads(printed)
    assert (found["jobs"], {(one["reason"], one["many"]) for one in found["partitions"]}) == (
        [], {("row_count", 3), ("TimeoutError", 1), ("ConnectError", 1)},
    )  # fmt: skip
    status, printed = call("failures", "ConnectError", "--kind", "crm/orders", width=120)
    assert (status, "→ redrive state failures crm/orders --reason ConnectError" in printed) == (0, True), printed
    status, printed = call("failures", "too few")
    assert (status, "crm/orders: row_count" in printed, "'too few': 3 groups match" in printed) == (1, True, True)
    status, printed = call("journal", "tail", "--event", "rejected", width=120)
    assert (status, len(printed.splitlines())) == (0, 5)
    assert f"rejected  {BAD} attempt 1: row_count: too few" in printed


@pytest.mark.req("O-3")
@pytest.mark.usefixtures("busy")
def test_the_journal_prints_lines_and_json_lines() -> None:
    status, printed = call("journal", "tail", "--event", "decided", "--event", "dead", "-n", "100")
    assert status == 0
    assert {line.split()[2] for line in printed.splitlines()} >= {"dead", "dead.replay", "dead.discard"}
    assert "by ann: the CRM is back, INC-77" in printed
    status, printed = call("journal", "tail", "--json", "-n", "7")
    found = [json.loads(line) for line in printed.splitlines()]
    assert (len(found), [one["at"] for one in found]) == (7, sorted(one["at"] for one in found))
    status, printed = call("journal", "tail", "--event", "faild")
    assert (status, "did you mean 'failed'" in printed) == (2, True)


@pytest.mark.usefixtures("busy")
def test_an_argument_that_is_not_utf_8_is_rejected() -> None:
    """Input of a terminal in an encoding other than UTF-8."""
    for arguments in (("failures", "--kind", "caf\udce9"), ("jobs", "list", "--kind", "caf\udce9")):
        status, printed = call(*arguments)
        assert (status, "'caf\\udce9': not valid UTF-8 at '\\udce9'" in printed) == (2, True), printed


@pytest.mark.req("O-4", "P-10")
def test_schedules_of_datasets_are_listed(lake: World) -> None:
    now = lake.ledger.now()
    lake.control.start_schedule_at("crm", "orders", now, cron="0 2 * * * Europe/Prague")
    status, printed = call("schedules", "list", width=120)
    assert (status, "crm/orders" in printed) == (0, True)
    assert "0 2 * * * Europe/Prague" in printed
    assert ", no worker online" in printed
    lake.ledger.maintenance.heartbeat("w1")
    day = now.date() - timedelta(days=1)
    lake.control.enqueue_scheduled("crm", "orders", now + timedelta(seconds=1), ["c0"], [day], cron="0 2 * * * Europe/Prague")
    status, printed = call("schedules", "list", width=120)
    assert "no worker online" not in printed
    assert re.search(r"running +– +sweep \d+", printed)
    (one,) = json.loads(call("schedules", "list", "--json")[1])
    assert (one["kind"], one["of"], one["last_state"], one["last_job"]) == ("crm/orders", "dataset", "running", None)
