"""Erasing a user of any name leaves the rows of all others readable, and under the same identities."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from datetime import date, datetime, timezone
from typing import Any

import pytest
from sqlalchemy import Table, insert, select

from redrive import App, Event, Stop, correlate, retry
from redrive.ledger import Ledger
from redrive.ledger.db import access_tables, job_tables
from redrive.ledger.db import partition_tables as parts
from redrive.ledger.db.tables import METADATA, audit, hidden_name, job, kind, worker
from redrive.ops import Operator

NOW = datetime(2026, 1, 31, 12, 42, 1, tzinfo=timezone.utc)
USERS = ("42", "1")
OTHERS = ("bob", "42.5", "ann.smith", "a1", "nullable")
COMMON = (*USERS, "a", "null", "true", "0", ".*", "%", "[", '"', "2026", "12")
WORDS = ("ann", "mail", "redrive", "lost_worker", "running")
"""Names that also are words of Redrive or of errors, or begin another name."""

JSON_COLUMNS = {
    "redrive_job": ("ids", "headers"),
    "redrive_dead": ("ids", "headers"),
    "redrive_event": ("ids", "headers"),
    "redrive_audit": ("what",),
    "redrive_worker": ("info",),
    "redrive_key": ("error",),
    "redrive_sweep": ("selection",),
    "redrive_partition_verdict": ("checks",),
    "redrive_partition_range": ("datasets", "customers", "skips"),
}
TEXT_COLUMNS = {"error", "reason", "actor", "because", "note", "message", "signature"}
"""Columns in which a mention is replaced. All others of other users' rows stay as they are."""


def dpo(ledger: Ledger) -> Operator:
    """The data protection officer."""
    return Operator(ledger, actor="dpo")


@pytest.fixture
def app(ledger: Ledger) -> Iterator[App]:
    """A ledger with rows in every table, of users with common names and of others that mention these names."""
    made = App(ledger)

    @made.command("mail", key="shop:{user}:{order}:mail:v1", retry=retry(max_attempts=1))
    def mail(order: str, user: str) -> str:
        if order == "bad":
            raise Stop(f"status 404 for a mail of {user}: 42 is not true, 1 is null")
        return user

    @made.command("42", key="shop:{user}:{order}:count:v1")
    def count(order: str, user: str) -> int:
        return 42

    @made.on("order.placed", name="stock")
    def stock(event: Event[dict[str, str]]) -> None: ...

    @made.once("shop:{user}:{order}:charge:v1")
    def charge(order: str, user: str) -> str:
        if order == "bad":
            raise Stop(f"no card 42 of {user}")
        return user

    jobs = 0
    with made:
        for user in (*USERS, *OTHERS):
            with correlate(user_id=user):
                for order in ("42", "1", "bad"):
                    mail.submit(order, user=user)
                count.submit("42", user=user)
                made.receive(Event("order.placed", {"user": user}, id="42" if user == "bob" else f"of-{user}"))
                charge("42", user)
                with pytest.raises(Stop):
                    charge("bad", user)
                jobs += 5
        with made.worker(threads=1) as running:
            while running.status.done + running.status.dead < jobs:
                time.sleep(0.005)
        items = made.items("tiles")
        for item in ("42", "1", "tile:42", "a", "null"):
            items.increment(item)
            items.give_up(item, "42 is not a tile")
        letters = [letter.id for letter in ledger.dead_letters() if ":bob:" in letter.key]
        ledger.sweeps.begin("discard", letters, actor="redrive", because="for 42", selection={"ids": [1, 42], "error": "a 42"})
        what = {"sweep": 42, "rows": [1, 42, 1.5], "42": True, "kind": "42", "of": None, "until": "2026-01-31T12:42:01+00:00"}
        ledger.record(actor="redrive", action="dead.export", because="42 and 1", what={**what, "text": "of 42"})
        ledger.record(actor="ben", action="dead.export", because="for zoe", what={"user": "zoe"})
        fill(ledger)
        ledger.maintenance.fold_counters()
        dpo(ledger).user_data.erase(dpo(ledger).user_data.plan_erasure("zoe"), because="request 42")
        yield made


def fill(ledger: Ledger) -> None:
    """Tables that the jobs above leave empty."""
    with ledger.begin() as connection:

        def add(table: Table, **values: Any) -> None:
            connection.execute(insert(table).values(**values))

        add(hidden_name, name="42")
        token = {"name": "42", "digest": "42", "role": "viewer", "created_by": "redrive", "created_at": NOW}
        add(access_tables.access_token, **token, job_types='["42"]')
        session = {"name": "the operator", "role": "viewer", "via": "password", "started_at": NOW, "expires_at": NOW}
        add(access_tables.session, id="42", **session)
        bob = connection.execute(select(job.c.id).where(job.c.key == "shop:bob:bad:mail:v1")).scalar_one()
        add(job_tables.step, job_id=bob, act="step", name="42", error="42 is away", attempts=1, started_at=NOW)
        add(job_tables.signal, job_id=bob, name="42", payload=b"42", created_at=NOW)
        add(job_tables.progress, job_id=bob, fence=1, part=0.42, note="1 of 42", updated_at=NOW)
        add(job_tables.pause, scope="job type", name="42", paused_at=NOW, actor="redrive", because="42 is away")
        add(job_tables.limit, kind="42", concurrency=42, rate=1.0, actor="redrive", because="42 is slow", updated_at=NOW)
        add(job_tables.tenant, kind="42", tenant="bob", tokens=42.0, filled_at=NOW)
        add(job_tables.sequence_mark, kind="42", sequence="42")
        add(kind, kind="42", reason="42 failed", updated_at=NOW)
        info = {"kinds": ["42", "mail"], "threads": 42, "lease": 1, "process": "a 42 1", "failing": {"42": "1 of 42"}}
        add(worker, name="42", info=json.dumps(info), started_at=NOW, seen_at=NOW)
        add(parts.source, source="42", because="42 is away", actor="redrive", signature="Stop: 42", updated_at=NOW)
        add(parts.dataset, source="42", query_name="1")
        add(parts.rollup, source="42", query_name="1", logical_date=NOW.date(), shade=1, n=42)
        for number, customer in enumerate((*USERS, *OTHERS), 101):
            add(
                parts.partition, id=number, source="42", query_name="1", logical_date=date(2026, 1, 31), customer_id=customer,
                reason="row_count", error=f"{customer} has 42 rows", updated_at=NOW,
            )  # fmt: skip
            add(
                parts.run, partition_id=number, attempt_no=1, run_id=f"42.{number}", raw_run_id="42", kind="1", state="rejected",
                lane=1, leased_at=NOW, note="42",
            )  # fmt: skip
            checks = [{"name": "42", "passed": True, "measured": 42, "limit": 1, "says": "42 of 1"}]
            add(
                parts.verdict, run_id=f"42.{number}", decision="rejected", validator="42", version="1", at=NOW,
                checks=json.dumps(checks), reason="row_count", message="42 rows", manifest="42",
            )  # fmt: skip
            add(
                parts.marker, partition_id=number, kind="paused", cause="42", actor="redrive", because="for 42", at=NOW,
                attempts=1,
            )  # fmt: skip
        add(
            parts.work, partition_id=102, source="42", query_name="1", lane=1, due_at=NOW, queued_at=NOW, kind="1", seed=0.42,
        )  # fmt: skip
        for sweep_id in (1, 4242):  # the first one is the running sweep
            add(
                parts.range_, sweep_id=sweep_id, lane=1, datasets='[["42", "1"]]', customers='["42", "1", "42.5"]', share=1.0,
                skips='{"42": 1}',
            )  # fmt: skip


def rows_of(ledger: Ledger) -> dict[str, list[dict[str, Any]]]:
    with ledger.reading() as connection:
        return {
            table.name: [dict(row) for row in connection.execute(select(table).order_by(*table.primary_key.columns)).mappings()]
            for table in METADATA.sorted_tables
        }


def without_strings(value: Any) -> Any:
    """The structure of a JSON value: its fields, numbers and constants."""
    if isinstance(value, dict):
        return {field: without_strings(each) for field, each in value.items()}
    if isinstance(value, list):
        return [without_strings(each) for each in value]
    return "" if isinstance(value, str) else value


def is_own(user: str, table: str, row: dict[str, Any]) -> bool:
    """Whether a row is of this user: by its key, its correlation id, or as the customer."""
    ids = json.loads(row.get("ids") or "{}")
    key = row.get("key", "").split(":")
    customer = table == "redrive_partition" and row["customer_id"] == user
    return ids.get("user_id") == user or (len(key) >= 5 and key[1] == user) or row.get("user_id") == user or customer


def kept_rows(user: str, rows: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """What an erasure of this user leaves as it is: all of other users' rows except for words in texts."""
    left: dict[str, list[dict[str, Any]]] = {}
    for table, found in rows.items():
        json_columns = JSON_COLUMNS.get(table, ())
        signed = table.startswith("redrive_failure")
        left[table] = [
            {
                column: without_strings(json.loads(value)) if column in json_columns and value else value
                for column, value in row.items()
                if column not in TEXT_COLUMNS or (signed and column == "signature")
            }
            for row in found
            if not is_own(user, table, row)
        ]
    return left


EMPTIED = {
    *("redrive_attempt", "redrive_tag", "redrive_tally", "redrive_tally_delta", "redrive_failure", "redrive_failure_delta"),
}
"""Tables whose rows count or belong to the user's own jobs, which are erased."""


def check(app: App, user: str, before: dict[str, list[dict[str, Any]]]) -> None:
    after = rows_of(app.ledger)
    for table, columns in JSON_COLUMNS.items():
        for row in after[table]:
            for column in columns:
                assert row[column] is None or json.loads(row[column]) is not None, (user, table, column, row[column])
    was, now = kept_rows(user, before), kept_rows(user, after)
    renamed = {"redrive_failure_slot"} if user in WORDS else set()  # signatures; `imbalance` compares them with the dead letters
    for table in was.keys() - EMPTIED - renamed - {audit.name}:
        left = [row for row in now[table] if not str(row.get("key") or row.get("event_id", "")).startswith("erased:")]
        left = [row for row in left if not str(row.get("customer_id", "")).startswith("erased-")]
        expected = [row for row in was[table] if not str(row.get("key") or row.get("event_id", "")).startswith("erased:")]
        expected = [row for row in expected if not str(row.get("customer_id", "")).startswith("erased-")]
        assert left == expected, (user, table)
    assert now[audit.name][: len(was[audit.name])] == was[audit.name], user
    operator = Operator(app, actor="dpo")
    assert operator.audit.verify().holds, user
    assert "42" in {name for one in operator.workers.find().workers for name in one.kinds}
    operator.health.check()
    operator.overview.summary()
    assert app.ledger.imbalance() == [], user
    assert app.items("tiles").pending(["42", "1", "tile:42", "a", "null"]) == set(), user


def test_erasing_a_common_name_leaves_all_other_rows_readable(app: App) -> None:
    filled = rows_of(app.ledger)
    deltas = {"redrive_tally_delta", "redrive_failure_delta"}  # counters of Postgres, which are folded at times
    assert {table for table, rows in filled.items() if not rows} <= deltas
    anchor = Operator(app, actor="dpo").audit.verify().anchor
    for user in (*COMMON, *WORDS):
        before = rows_of(app.ledger)
        dpo(app.ledger).user_data.erase(dpo(app.ledger).user_data.plan_erasure(user), because="request 7")
        check(app, user, before)
    assert Operator(app, actor="dpo").audit.verify(anchor).holds
    events = [row["event_id"] for row in rows_of(app.ledger)["redrive_event"]]
    assert "42" in events
    assert app.receive(Event("order.placed", {"user": "bob"}, id="42")) is not None
    assert len(rows_of(app.ledger)["redrive_event"]) == len(events), "a redelivery is still known"


def test_a_common_name_is_taken_out_of_texts_and_own_rows(app: App) -> None:
    dpo(app.ledger).user_data.erase(dpo(app.ledger).user_data.plan_erasure("42"), because="request 7")
    rows = rows_of(app.ledger)
    assert not [row for row in rows["redrive_job"] if row["key"].startswith("shop:42:")]
    assert not [row for row in rows["redrive_key"] if row["user_id"] == "42"]
    assert "42" not in {row["customer_id"] for row in rows["redrive_partition"]}
    export = next(one for one in Operator(app, actor="dpo").audit.find() if "sweep" in one.what and "rows" in one.what)
    assert (export.what["sweep"], export.what["rows"], export.what["kind"]) == (42, [1, 42, 1.5], "42")
    assert export.what["until"] == "2026-01-31T12:42:01+00:00"
    # The hash that replaces a name may have any digits.
    assert "42" not in re.sub("erased-[0-9a-f]{16}", "", export.what["text"] + export.because)
    (info,) = [json.loads(row["info"]) for row in rows["redrive_worker"] if row["name"] == "42"]
    assert (info["threads"], info["kinds"]) == (42, ["42", "mail"])
    assert info["failing"]["42"].startswith("1 of erased-")
    texts = {("redrive_step", "error"), ("redrive_progress", "note"), ("redrive_pause", "because"), ("redrive_limit", "because")}
    for table, column in texts:
        assert all(re.search(r"\berased-[0-9a-f]+", row[column]) for row in rows[table]), (table, column)
    assert {row["tenant"] for row in rows["redrive_tenant"]} == {"bob"}


def test_a_backfill_that_has_not_ended_keeps_its_customers(app: App) -> None:
    plan = dpo(app.ledger).user_data.plan_erasure("42")
    assert plan.stays[0].startswith("1 backfill")
    dpo(app.ledger).user_data.erase(plan, because="request 7")
    customers = {row["sweep_id"]: json.loads(row["customers"]) for row in rows_of(app.ledger)["redrive_partition_range"]}
    assert customers[1] == ["42", "1", "42.5"]
    assert customers[4242][0].startswith("erased-")
    assert customers[4242][1:] == ["1", "42.5"]


def test_the_plan_lists_mentions_that_cannot_be_erased(app: App) -> None:
    stays = " ".join(dpo(app.ledger).user_data.plan_erasure("42").stays)
    for place in ("other users' jobs, dead letters, events and items", "job types, workers, batches", "number", "signatures"):
        assert place in stays
