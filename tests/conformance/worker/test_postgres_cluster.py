"""Postgres as a cluster: the primary is lost under load, with a complete standby and with an incomplete one."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple
from urllib.parse import urlsplit

import psycopg
import pytest

from redrive import App
from redrive.errors import LeaseLost, LedgerUnavailable
from redrive.ledger import Lease, NewJob, open_ledger
from redrive.ops import Operator
from redrive.worker.maintenance import SweepTask
from redrive.worker.status import MAX_PROBLEM_CHARS
from redrive.worker.worker import Worker
from tests.servers import postgres
from tests.servers.postgres import postgres_cluster
from tests.servers.process import ServerMissing
from tests.servers.relay import Relay

from .world import kind, record_log, until


class Pair(NamedTuple):
    """A primary and its standby, which replicates through a relay."""

    server: postgres.Cluster
    primary: str
    standby: str
    replication: Relay

    @property
    def ports(self) -> tuple[int, int]:
        first, second = (urlsplit(url).port for url in (self.primary, self.standby))
        assert first is not None
        assert second is not None
        return first, second

    @property
    def address(self) -> str:
        """The URL with several hosts."""
        first, second = self.ports
        return f"postgresql://postgres@127.0.0.1:{first},127.0.0.1:{second}/postgres?target_session_attrs=read-write"

    @property
    def by_options(self) -> str:
        """The URL with the hosts as options. The standby comes first."""
        first, second = self.ports
        return f"postgresql:///postgres?user=postgres&host=127.0.0.1,127.0.0.1&port={second},{first}"

    def wait_for_standby(self) -> None:
        """Wait until the standby has all writes."""
        with psycopg.connect(self.primary, autocommit=True) as old, psycopg.connect(self.standby, autocommit=True) as new:
            written = str(old.execute("SELECT pg_current_wal_flush_lsn()").fetchall()[0][0])
            until(lambda: new.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", (written,)).fetchone() == (True,))

    def promote(self) -> None:
        """Make the standby the primary."""
        with psycopg.connect(self.standby, autocommit=True) as new:
            assert new.execute("SELECT pg_promote()").fetchone() == (True,)


@pytest.fixture
def pair() -> Iterator[Pair]:
    with ExitStack() as stack:
        try:
            server = stack.enter_context(postgres_cluster())
        except ServerMissing as missing:
            if os.environ.get("CI") == "true":
                raise
            pytest.skip(f"no Postgres server: {missing}")
        primary = stack.enter_context(server.running())
        open_ledger(primary, migrate=True).close()
        parts = urlsplit(primary)
        assert parts.port is not None
        relay = stack.enter_context(Relay(parts.port))
        replicated = parts._replace(netloc=f"postgres@127.0.0.1:{relay.port}").geturl()
        standby = stack.enter_context(stack.enter_context(postgres_cluster(replicated)).running())
        yield Pair(server, primary, standby, relay)


@contextmanager
def in_threads(*functions: Callable[[], None]) -> Iterator[None]:
    threads = [threading.Thread(target=function) for function in functions]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join(60)


@pytest.mark.req("E-8")
def test_a_killed_primary_with_a_synchronous_standby_loses_no_acknowledged_submission(pair: Pair) -> None:
    with psycopg.connect(pair.primary, autocommit=True) as old:
        old.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        old.execute("SELECT pg_reload_conf()")
        until(lambda: old.execute("SELECT sync_state FROM pg_stat_replication").fetchall() == [("sync",)])
    runs: Counter[str] = Counter()
    acknowledged: list[str] = []
    is_over = threading.Event()

    def work(lease: Lease) -> None:
        runs[lease.key] += 1

    def submit_until_over() -> None:
        with open_ledger(pair.by_options) as ledger:
            while not is_over.is_set():
                key = f"job-{len(acknowledged)}"
                while True:
                    try:
                        ledger.submit(NewJob("mail", key))
                        break
                    except LedgerUnavailable:
                        time.sleep(0.02)
                acknowledged.append(key)
                time.sleep(0.002)

    with (
        open_ledger(pair.address) as ledger,
        record_log() as records,
        Worker(ledger, [kind("mail", work)], background_tasks=[SweepTask(ledger)]) as worker,
        in_threads(submit_until_over),
    ):
        try:
            until(lambda: len(acknowledged) > 50 and len(runs) > 20)
            pair.server.kill()
            until(lambda: worker.status.trouble is not None)
            until(lambda: "127.0.0.1" in str(worker.status.trouble), worker.status)
            trouble = worker.status.trouble
            pair.promote()
            before, ran = len(acknowledged), len(runs)
            until(lambda: len(acknowledged) > before + 50 and len(runs) > ran + 50, worker.status)
        finally:
            is_over.set()
        until(lambda: worker.status.trouble is None and not worker.status.failing and worker.is_healthy, worker.status)
        until(lambda: is_answered(ledger.counts), "an idle connection to the old primary fails once, and is not used again")
        until(lambda: ledger.counts()["mail"].done >= len(acknowledged), worker.status)
        assert trouble is not None
        assert len(trouble) <= MAX_PROBLEM_CHARS
        first, second = pair.ports
        assert f"127.0.0.1:{first}: " in trouble, "each server with its problem"
        assert f"127.0.0.1:{second}: " in trouble
        found = {key: job for key in acknowledged if (job := ledger.find("mail", key)) is not None}
        assert set(found) == set(acknowledged)
        assert all(job.state == "done" for job in found.values())
        assert [key for key, job in found.items() if runs[key] > job.fence] == [], "no run without a lease"
    told = [record.kind for record in records if record.kind in ("ledger_trouble", "ledger_back")]
    assert told[:2] == ["ledger_trouble", "ledger_back"]
    assert len([record for record in records if record.kind == "chore_failed"]) <= 1


@pytest.mark.req("E-8", "L-4")
def test_a_failover_that_lost_commits_breaks_nothing_else(pair: Pair) -> None:
    """The standby receives nothing for a while. Then the new primary assigns ids and fences a second time."""
    app = App(pair.address)
    results: list[str] = []

    @app.command("mail", key="shop:{user}:{text}:mail:v1")
    def mail(text: str, user: str) -> str:
        results.append(text)
        return text

    @app.command("slow", key="shop:{user}:{text}:slow:v1")
    def slow(text: str, user: str) -> str:
        return text

    with app, app.worker(only=["mail"]) as worker:
        ann = Operator(app, actor="ann")
        assert mail.submit("before", user="ann").result(30) == "before"
        slow.submit("before", user="ann")
        app.ledger.settle([lease.done(b'"before"') for lease in app.ledger.claim({"slow": 1}, worker="new")])
        decide(ann)
        pair.wait_for_standby()

        pair.replication.hold()
        assert mail.submit("lost", user="ann").result(30) == "lost"
        decide(ann)
        lost_anchor = ann.audit.verify().anchor
        lost = {int((job := slow.submit(f"lost-{number}", user="ann")).id): job for number in range(70)}
        leases = {lease.job_id: lease for lease in app.ledger.claim({"slow": 100}, worker="late", lease=600)}
        assert set(leases) == set(lost)
        pair.promote()
        pair.server.kill()

        fresh = {}
        for number in range(70):
            until(lambda: is_answered(lambda: fresh.update({number: slow.submit(f"fresh-{number}", user="ann")})))  # noqa: B023
        new = {int(job.id): job for job in fresh.values()}
        same = sorted(new.keys() & lost.keys())
        assert same, "ids are used again"
        held = {lease.job_id: lease for lease in app.ledger.claim({"slow": 100}, worker="new", lease=600)}
        for number in same:
            assert held[number].fence == leases[number].fence
            with pytest.raises(LeaseLost):
                app.ledger.settle(leases[number].done(b'"of another job"'))
            app.ledger.settle(held[number].done(b'"its own"'))
            assert new[number].result(5) == "its own"
            assert lost[number].state == "idle", "not the state of the job that has its id now"
            assert not lost[number].cancel(because="it must not cancel another job")
        again = slow.submit(lost[same[0]].key.split(":")[2], user="ann")
        assert again.created
        assert lost[same[0]].state == again.state == "queued", "a lost job that is submitted again is found by its key"

        assert mail.submit("lost", user="ann").result(30) == "lost", "its key is free again"
        assert mail.submit("after", user="ann").result(30) == "after"
        assert results.count("lost") == 2
        rest = [lease for number, lease in held.items() if number not in same]
        app.ledger.settle([lease.done(b'"done"') for lease in [*rest, *app.ledger.claim({"slow": 1}, worker="new")]])
        decide(ann)
        assert ann.audit.verify().holds
        assert ann.audit.verify(lost_anchor).problem is not None, "an anchor shows that entries are missing"
        assert app.ledger.imbalance() == []
        until(lambda: worker.status.trouble is None and not worker.status.failing, worker.status)
        until(lambda: not ann.health.check().findings, ann.health.check().findings)


def decide(operator: Operator) -> None:
    """Write two entries to the audit log, without a lasting effect."""
    operator.pauses.pause("job type", "slow", because="a test")
    operator.pauses.resume("job type", "slow", because="a test")


def is_answered(ask: Callable[[], object]) -> bool:
    """Return whether the ledger responds."""
    try:
        ask()
    except LedgerUnavailable:
        return False
    return True


@pytest.mark.req("E-8")
def test_the_server_that_responded_last_is_tried_first(postgres_db: str) -> None:
    """A machine that is down does not respond. Trying it first would cost each connection its timeout."""
    parts = urlsplit(postgres_db)
    with Relay(1, "reset") as down:
        address = f"postgresql://postgres@127.0.0.1:{down.port},127.0.0.1:{parts.port}{parts.path}"
        with open_ledger(address, migrate=True) as ledger:
            opened = down.count
            for _ in range(3):
                ledger.connections.open_session().close()
            assert down.count == opened == 1


@pytest.mark.req("E-8")
def test_an_error_about_several_servers_is_one_line_with_each_of_them() -> None:
    with Relay(1, "reset") as down, pytest.raises(LedgerUnavailable) as caught:
        open_ledger(f"postgresql://ann:S3cretPw@127.0.0.1:1,127.0.0.1:{down.port}/shop")
    text = str(caught.value)
    assert text.startswith("Postgres cannot be reached: 127.0.0.1:1: Connection refused; 127.0.0.1:")
    assert len(text) < MAX_PROBLEM_CHARS
    assert "\n" not in text
    assert "S3cret" not in text
