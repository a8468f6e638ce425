"""Sandbox: an app of a test, with a clock that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path

import pytest
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.orm import Session

from redrive import Again, App, Blocked, RetryPolicy, Stop, correlate, current, errors
from redrive.core.context import IDS
from redrive.messages import Event
from redrive.testing import inject, sandbox


@pytest.fixture
def app(tmp_path: Path) -> App:
    return App(f"sqlite:///{tmp_path / 'never.db'}")


def test_the_documented_program_runs(app: App, tmp_path: Path) -> None:
    sent: list[str] = []

    @app.command("receipts.send", key="shop:{user}:{order_id}:receipt:v1")
    def send_receipt(order_id: str, user: str) -> str:
        sent.append(order_id)
        return f"mail-{order_id}"

    with sandbox(app) as box:
        first = send_receipt.submit("o-1", user="ann")
        again = send_receipt.submit("o-1", user="ann")
        box.kill()
        assert box.drain() == 2
        assert again.id == first.id
        assert first.created
        assert not again.created
        assert first.result() == "mail-o-1"
        assert not box.dead
        assert [job.id for job in box.done] == [first.id]
        assert [one.outcome for one in app.ledger.attempts(int(first.id))] == ["lost"]
    assert sent == ["o-1", "o-1"], "killed after the work was done: it is done again, which is what a key is for"
    assert not (tmp_path / "never.db").exists()


def test_drain_moves_the_clock_by_the_waits(app: App) -> None:
    at: list[datetime] = []

    @app.command("crm.sync", retry=RetryPolicy(max_attempts=3, backoff_base=60, backoff_max=600, jitter=0))
    def sync() -> None:
        at.append(app.ledger.now())
        raise ConnectionError("down")

    with sandbox(app) as box:
        job = sync.submit()
        assert box.drain(forever=False) == 1
        assert (job.state, job.attempts) == ("retry_wait", 1)
        assert box.drain(forever=False) == 0
        assert box.drain() == 2
        assert (job.state, [one.id for one in box.dead]) == ("dlq", [job.id])
        with pytest.raises(errors.Dead, match="crm.sync job 1 failed after \\d attempts: ConnectionError: down") as dead:
            job.result()
        assert (dead.value.reason, dead.value.dead_id) == ("attempts", "1")
    assert [round((later - earlier).total_seconds()) for earlier, later in pairwise(at)] == [60, 120]


@pytest.mark.parametrize(
    ("raised", "state", "attempts"),
    [
        (lambda: Stop("no use"), "dlq", 1),
        (lambda: Blocked("the bank is closed"), "blocked", 1),
        (lambda: ValueError("unknown errors may be mended by a deploy"), "dlq", 5),
        (lambda: PermissionError("known to be of no use"), "dlq", 1),
        (lambda: errors.AttemptTimeout("slow"), "dlq", 5),
    ],
    ids=["stop", "blocked", "unknown", "permanent", "transient"],
)
def test_the_raised_error_decides_the_next_state(app: App, raised: Callable[[], Exception], state: str, attempts: int) -> None:
    @app.command("steered")
    def steered() -> None:
        raise raised()

    with sandbox(app) as box:
        job = steered.submit()
        assert box.drain() == attempts
        assert (job.state, job.attempts) == (state, attempts)


def test_again_and_blocked_until_delay_the_job(app: App) -> None:
    polls = 0

    @app.command("poll")
    async def poll() -> int:
        nonlocal polls
        polls += 1
        if polls < 4:
            raise Again("not yet", after=30, free=True)
        if polls == 4:
            raise Blocked("until noon", until=datetime.now(timezone.utc) + timedelta(hours=5))
        return polls

    with sandbox(app) as box:
        began = box.clock.now()
        job = poll.submit()
        assert box.drain() == 5
        assert job.result() == 5
        assert box.clock.now() - began >= timedelta(hours=5)


def test_a_transactional_job_commits_with_its_writes(app: App) -> None:
    @app.command("book", in_transaction=True)
    def book(tx: Connection, order_id: str) -> int:
        tx.execute(text("INSERT INTO booked VALUES (:id)"), {"id": order_id})
        if current().number == 1:
            raise ConnectionError("half way")
        return int(tx.execute(text("SELECT count(*) FROM booked")).scalar_one())

    with sandbox(app) as box:
        with app.ledger.begin() as tx:
            tx.execute(text("CREATE TABLE booked (id TEXT)"))
        job = book.submit("o-1")
        box.drain()
        assert job.result() == 1
        assert [one.outcome for one in app.ledger.attempts(int(job.id))] == ["failed"], "what failed was rolled back"


def test_a_session_on_the_engine_submits_in_its_transaction(app: App) -> None:
    @app.command("receipts.send", retry=RetryPolicy(max_attempts=3, backoff_base=3600, backoff_max=3600, jitter=0))
    def send_receipt(order_id: str) -> str:
        if current().number < 3:
            raise ConnectionError("the mail service is down")
        return f"mail-{order_id}"

    with sandbox(app) as box:
        with Session(box.engine) as session:
            session.execute(text("CREATE TABLE orders (id TEXT)"))
            session.commit()
            session.execute(text("INSERT INTO orders VALUES ('o-1')"))
            lost = send_receipt.using(tx=session).submit("o-1")
            session.rollback()
            session.execute(text("INSERT INTO orders VALUES ('o-2')"))
            kept = send_receipt.using(tx=session).submit("o-2")
            assert kept.state == "idle"
            session.commit()
        began = box.clock.now()
        assert box.drain() == 3
        assert kept.result() == "mail-o-2"
        assert box.clock.now() - began >= timedelta(hours=2), "the clock of the sandbox, not that of the machine"
        assert [job.id for job in box.done] == [kept.id]
        assert lost.id == kept.id, "the id of a job that was rolled back is used again"
        with Session(box.engine) as session:
            assert session.scalars(text("SELECT id FROM orders")).all() == ["o-2"]


def test_a_session_on_another_database_names_the_engine(app: App, tmp_path: Path) -> None:
    @app.command("receipts.send")
    def send_receipt() -> None: ...

    other = create_engine(f"sqlite:///{tmp_path / 'other.db'}")
    with sandbox(app), Session(other) as session, pytest.raises(ValueError, match=r"sandbox \(`box.engine`\)"):
        send_receipt.using(tx=session).submit()
    other.dispose()


def test_the_files_of_a_sandbox_are_deleted(app: App) -> None:
    with sandbox(app) as box:
        file = Path(str(box.engine.url.database))
        assert file.exists()
    assert not file.parent.exists()


def test_a_killed_transactional_job_is_rolled_back(app: App) -> None:
    @app.command("book", in_transaction=True)
    def book(tx: Connection) -> None:
        tx.execute(text("INSERT INTO booked VALUES ('x')"))

    with sandbox(app) as box:
        with app.ledger.begin() as tx:
            tx.execute(text("CREATE TABLE booked (id TEXT)"))
        job = book.submit()
        box.kill()
        assert box.drain() == 2
        with app.ledger.begin() as tx:
            assert tx.execute(text("SELECT count(*) FROM booked")).scalar_one() == 1
        assert job.state == "done"


@pytest.mark.req("W-1")
def test_an_attempt_has_its_key_number_deadline_and_ids(app: App) -> None:
    seen: list[object] = []

    @app.command("look", key="shop:{user}:{n}:look:v1")
    def look(n: int, user: str) -> None:
        here = current()
        seen.append((str(here.key), here.number, here.max_attempts, here.operation, here.job_id, dict(IDS.get())))
        seen.append(here.remaining)

    with sandbox(app) as box:
        with correlate(request_id="r-1"):
            job = look.using(deadline=box.clock.now() + timedelta(seconds=90)).submit(7, user="ann")
        box.drain()
    assert seen == [("shop:ann:7:look:v1", 1, 5, "look", job.id, {"request_id": "r-1"}), pytest.approx(90, abs=1)]


def test_a_job_past_its_deadline_is_a_dead_letter(app: App) -> None:
    @app.command("late")
    def late() -> None:
        raise AssertionError("of no use any more")

    with sandbox(app) as box:
        job = late.using(deadline=box.clock.now() + timedelta(seconds=10), delay=60).submit()
        box.drain()
        with pytest.raises(errors.Dead, match="deadline"):
            job.result()


def test_waiting_for_a_result_without_drain_fails(app: App) -> None:
    @app.command("waits")
    def waits() -> None: ...

    with sandbox(app) as box:
        job = waits.submit()
        with pytest.raises(TimeoutError, match=r"waits job 1 is queued; a sandbox has no worker, so call drain\(\) first"):
            job.result()
        box.drain()
        assert job.result() is None


def test_delays_and_async_submits_use_the_clock_of_the_test(app: App) -> None:
    @app.command("later")
    async def later(n: int) -> int:
        await asyncio.sleep(0)
        return n

    async def main() -> None:
        with sandbox(app) as box:
            box.clock.advance(86400)
            job = await later.using(delay=3600).asubmit(3)
            assert box.drain(forever=False) == 0
            assert round((job.due - box.clock.now()).total_seconds()) == 3600
            assert box.drain() == 1
            assert await job.aresult() == 3

    asyncio.run(main())


def test_schedules_run_as_far_as_the_clock_is_moved(app: App) -> None:
    fired: list[datetime] = []

    @app.command("hourly", cron="0 * * * *")
    def hourly() -> None:
        fired.append(app.ledger.now())

    with sandbox(app) as box:
        assert box.drain() == 0
        box.clock.advance(3600)
        assert box.drain() == 1
        assert box.drain() == 0
        box.clock.advance(5 * 3600)
        assert box.drain() == 1, "five were missed: one run stands for all"
        hourly.submit()
        assert box.drain() == 1, "by hand, now"


def test_faults_can_be_injected_in_a_sandbox(app: App) -> None:
    from redrive import retry

    @retry(max_attempts=2, backoff_base=0.5, jitter=0)
    def fetch() -> str:
        return "rates"

    @app.command("rates")
    def rates() -> str:
        return fetch()

    with sandbox(app) as box, inject(fetch, ConnectionError, ConnectionError) as injected:
        job = rates.submit()
        assert box.drain() == 2
        assert job.result() == "rates"
    assert injected.calls == 3
    assert box.clock.slept == [0.5]


def test_dead_includes_jobs_of_handlers(app: App) -> None:
    @app.on("order.placed", name="mailer", retry=RetryPolicy.disabled())
    def mail(event: Event[dict[str, str]]) -> None:
        raise Stop("no such user")

    with sandbox(app) as box:
        app.receive(Event("order.placed", {"user": "ann"}, id="e-1"))
        assert box.drain() == 1
        assert [job.state for job in box.dead] == ["dlq"]


def test_a_job_that_always_asks_for_a_retry_ends_the_drain(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.testing.app_sandbox.MAX_ATTEMPTS", 20)

    @app.command("forever")
    def forever() -> None:
        raise Again(after=1, free=True)

    with sandbox(app) as box:
        forever.submit()
        with pytest.raises(RuntimeError, match="20 attempts, and still something to do: forever comes back for ever"):
            box.drain()
