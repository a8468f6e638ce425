"""Commands with a worker, on SQLite, Postgres and Temporal."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.orm import Session

from redrive import Again, App, RetryPolicy, Stop, correlate, current, errors
from redrive.core.context import IDS
from redrive.ops import DeadLetterFilter, Operator
from tests.conformance.commands.conftest import OpenApp

QUICK = RetryPolicy(max_attempts=3, backoff_base=0.02, backoff_max=0.05, jitter=0)
SOON = 60.0


@dataclass
class Receipt:
    order_id: str
    day: date


def engine_of(url: str) -> sqlalchemy.Engine:
    return create_engine(url.replace("postgresql://", "postgresql+psycopg://"))


@pytest.mark.req("W-6", "W-4")
def test_sync_and_async_commands_run_once_for_a_key(app: App) -> None:
    ran: list[str] = []

    @app.command("receipts.send", key="shop:{user}:{order_id}:receipt:v1")
    def send(order_id: str, user: str) -> Receipt:
        ran.append(order_id)
        return Receipt(order_id, date(2026, 1, 31))

    @app.command("receipts.count")
    async def count(orders: list[str]) -> int:
        await asyncio.sleep(0.01)
        return len(orders)

    jobs = [send.submit("o-1", user="ann") for _ in range(5)]
    assert [job.created for job in jobs] == [True, False, False, False, False]
    assert {job.id for job in jobs} == {jobs[0].id}
    assert (jobs[0].state, jobs[0].attempts) == ("queued", 0)
    with app.worker(threads=2):
        assert jobs[0].result(SOON) == Receipt("o-1", date(2026, 1, 31))
        assert count.submit(["a", "b"]).result(SOON) == 2
        again = send.submit("o-1", user="ann")
        assert again.result(SOON) == Receipt("o-1", date(2026, 1, 31)), "a done key stays done, with its result"
        assert (again.created, again.state, again.attempts) == (False, "done", 1)
    assert ran == ["o-1"]


@pytest.mark.req("W-4")
def test_racing_submissions_of_one_key_are_one_job(app: App) -> None:
    ran: list[int] = []

    @app.command("charge", key="billing:{user}:{order}:charge:v1")
    def charge(order: int, user: str) -> int:
        ran.append(order)
        return order

    with app.worker(), ThreadPoolExecutor(8) as pool:
        jobs = list(pool.map(lambda n: charge.submit(n % 5, user="ann"), range(40)))
        assert [job.result(SOON) for job in jobs] == [n % 5 for n in range(40)]
    assert sorted(ran) == [0, 1, 2, 3, 4]
    assert sum(job.created for job in jobs) == 5


@pytest.mark.req("W-1", "W-3")
def test_a_failure_is_stored_and_the_key_reaches_the_call(app: App, on_temporal: bool) -> None:
    seen: list[tuple[Any, ...]] = []

    @app.command("sync", key="crm:{user}:{n}:sync:v1", retry=QUICK)
    def sync(n: int, user: str) -> str:
        here = current()
        seen.append((str(here.key), here.number, here.max_attempts, here.job_id, dict(IDS.get())))
        if here.number < 3:
            raise ConnectionError(f"down {here.number}")
        return "synced"

    with correlate(request_id="r-1"):
        job = sync.submit(7, user="ann")
    with app.worker():
        assert job.result(SOON) == "synced"
    assert seen == [("crm:ann:7:sync:v1", number, 3, job.id, {"request_id": "r-1"}) for number in (1, 2, 3)]
    if on_temporal:  # it stores the last failure only, until the activity has ended
        return
    tries = app.ledger.attempts(int(job.id))
    assert [(one.number, one.outcome) for one in tries] == [(1, "failed"), (2, "failed")]
    assert [str(one.error).partition("\n")[0] for one in tries] == ["ConnectionError: down 1", "ConnectionError: down 2"]


@pytest.mark.req("W-3")
@pytest.mark.parametrize(("spent", "state", "says"), [("dead", "dlq", "failed"), ("blocked", "blocked", "is blocked")])
def test_an_exhausted_job_is_blocked_or_dead_by_its_command(app: App, spent: Any, state: str, says: str) -> None:
    fixed = threading.Event()

    @app.command("sync", retry=QUICK, spent=spent)
    def sync() -> str:
        if not fixed.is_set():
            raise ConnectionError("down")
        return "synced"

    job = sync.submit()
    with app.worker():
        with pytest.raises(errors.Dead, match=f"sync job 1 {says} after 3 attempts: ConnectionError: down") as dead:
            job.result(SOON)
        assert (job.state, job.attempts, dead.value.reason) == (state, 3, "attempts")
        assert "\n" not in str(dead.value)
        assert str(dead.value.error).startswith("ConnectionError: down\n"), "with where it was raised"
        fixed.set()
        ann = Operator(app, actor="ann")
        ann.apply(ann.dead_letters.replay(DeadLetterFilter(ids=(dead.value.dead_id,))), because="the CRM is back")
        assert job.result(SOON) == "synced", "the handle follows the work, not the row"
        assert job.state == "done"


def test_a_job_is_found_by_its_id(app: App) -> None:
    @app.command("receipts.send")
    def send(order_id: str) -> Receipt:
        return Receipt(order_id, date(2026, 1, 31))

    @app.command("receipts.count")
    def count() -> int:
        return "three"  # type: ignore[return-value]

    submitted, odd = send.submit("o-1"), count.submit()
    with app.worker():
        found = send.job(submitted.id)
        assert (found.id, found.key, found.created) == (submitted.id, submitted.key, False)
        assert found.result(SOON) == Receipt("o-1", date(2026, 1, 31))
        with pytest.raises(errors.Dead, match="is a dead letter: result: receipts.count has run, but its result cannot"):
            odd.result(SOON)
        assert odd.attempts == 1, "the work was done: it is not done again for a result that does not fit"
    for unknown in ("999", odd.id, "-1", str(2**63), "99999999999999999999"):
        with pytest.raises(LookupError, match=f"receipts.send has no job {re.escape(unknown)}"):
            send.job(unknown)
    with pytest.raises(ValueError, match="receipts.send: invalid job id 'zzz'; pass the `id` of a job"):
        send.job("zzz")


def test_the_result_of_a_discarded_or_pruned_job_is_unavailable(app: App, on_temporal: bool) -> None:
    @app.command("no")
    def no() -> None:
        raise Stop("no use")

    @app.command("yes")
    def yes() -> int:
        return 1

    refused, done = no.submit(), yes.submit()
    with app.worker():
        with pytest.raises(errors.Dead, match="is a dead letter: stopped: .*Stop: no use") as dead:
            refused.result(SOON)
        assert done.result(SOON) == 1
    ann = Operator(app, actor="ann")
    ann.apply(ann.dead_letters.discard(DeadLetterFilter(ids=(dead.value.dead_id,))), because="of no use")
    with pytest.raises(errors.Dead, match="is discarded: discarded"):
        refused.result(0)
    app.ledger.prune(0)
    if on_temporal:  # it keeps results for the retention of its namespace
        assert done.result(0) == 1
        return
    with pytest.raises(errors.LedgerError, match="yes job 2 is done and was pruned; its result is no longer stored"):
        done.result(0)


def test_waiting_for_a_result_polls_with_growing_pauses(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.command("never")
    def never() -> None: ...

    job = never.submit()
    looks: list[float] = []
    look = type(job)._row

    def looked(self: Any) -> Any:
        looks.append(time.monotonic())
        return look(self)

    monkeypatch.setattr(type(job), "_row", looked)
    began = time.monotonic()
    says = f"never job {re.escape(job.id)} is queued after 1.5 s; the job continues, and you can wait for it again"
    with pytest.raises(TimeoutError, match=says):
        job.result(1.5)
    assert 1.4 < time.monotonic() - began < 60
    assert 2 <= len(looks) < 30

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await job.aresult(timedelta(seconds=0.2))

    asyncio.run(main())


@pytest.mark.req("L-5")
def test_submit_in_the_callers_transaction(app: App, url: str) -> None:
    @app.command("receipts.send", key="shop:{user}:{order_id}:receipt:v1")
    def send(order_id: str, user: str) -> str:
        return f"mail-{order_id}"

    app.ledger  # noqa: B018  # the tables are created
    engine = engine_of(url)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE IF EXISTS orders"))
        connection.execute(text("CREATE TABLE orders (id TEXT)"))
    with Session(engine) as session:
        session.execute(text("INSERT INTO orders VALUES ('o-1')"))
        lost = send.using(tx=session, delay=timedelta(hours=1)).submit("o-1", user="ann")
        assert lost.state == "idle"
        with pytest.raises(TimeoutError, match="is not committed after 0.1 s; commit its transaction, or it never runs"):
            lost.result(0.1)
        session.rollback()
    assert app.ledger.find("receipts.send", "shop:ann:o-1:receipt:v1") is None
    with Session(engine) as session:
        session.execute(text("INSERT INTO orders VALUES ('o-1'), ('o-2')"))
        jobs = app.submit_many((send.bind(f"o-{n}", user="ann") for n in (1, 2)), tx=session)
        session.commit()
    with app.worker():
        assert [job.result(SOON) for job in jobs] == ["mail-o-1", "mail-o-2"]
    with pytest.raises(TypeError, match="tx must be an open SQLAlchemy connection or session"):
        send.using(tx=object()).submit("o-3", user="ann")  # type: ignore[arg-type]
    engine.dispose()


@pytest.mark.req("L-5")
def test_asubmit_in_an_async_session(postgres_ledger: str) -> None:
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

    app = App(postgres_ledger)

    @app.command("send")
    async def send(n: int) -> int:
        return n

    async def main() -> None:
        engine = create_async_engine(postgres_ledger.replace("postgresql://", "postgresql+psycopg_async://"))
        async with AsyncSession(engine) as session:
            job = await send.using(tx=session).asubmit(1)
            assert job.state == "idle"
            await session.commit()
        assert await job.aresult(SOON) == 1
        several = await asyncio.gather(*(send.asubmit(n) for n in range(20)))
        assert [await each.aresult(SOON) for each in several] == list(range(20))
        await engine.dispose()

    with app, app.worker():
        asyncio.run(main())


@pytest.mark.req("W-6", "L-5")
def test_a_transactional_command_commits_with_its_writes(app: App, url: str) -> None:
    @app.command("book", in_transaction=True, retry=QUICK)
    def book(tx: Connection, order_id: str) -> int:
        tx.execute(text("INSERT INTO booked VALUES (:id)"), {"id": order_id})
        if current().number == 1:
            raise ConnectionError("half way: rolled back")
        return 1

    with app.ledger.begin() as tx:
        tx.execute(text("DROP TABLE IF EXISTS booked"))
        tx.execute(text("CREATE TABLE booked (id TEXT)"))
    with app.worker():
        assert [job.result(SOON) for job in [book.submit("o-1"), book.submit("o-2")]] == [1, 1]
    with app.ledger.begin() as tx:
        assert sorted(tx.execute(text("SELECT id FROM booked")).scalars()) == ["o-1", "o-2"]


def test_priorities(app: App, on_temporal: bool) -> None:
    order: list[str] = []

    @app.command("do", priority=1)
    def do(name: str) -> None:
        order.append(name)

    jobs = [
        do.submit("last"),
        do.using(priority=0).submit("middle"),
        do.using(priority=-2).submit("first"),
    ]
    with app.worker(threads=1):
        for job in jobs:
            job.result(SOON)
    assert sorted(order) == ["first", "last", "middle"]
    if not on_temporal:  # its order is approximate
        assert order == ["first", "middle", "last"]


def test_delay_comes_before_priority(app: App) -> None:
    started: list[float] = []

    @app.command("do")
    def do() -> None:
        started.append(time.time())

    submitted = time.time()
    with app.worker(threads=1):
        do.using(delay=0.7, priority=-2).submit().result(SOON)
    assert started[0] - submitted >= 0.7


@pytest.mark.req("W-6")
def test_concurrency_over_workers(app: App) -> None:
    now = most = 0
    lock = threading.Lock()

    @app.command("one", concurrency=1)
    def one() -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.02)
        with lock:
            now -= 1

    jobs = [one.submit() for _ in range(10)]
    with app.worker(name="a"), app.worker(name="b"):
        for job in jobs:
            job.result(SOON)
    assert most == 1


def test_again_retries_without_an_attempt(app: App) -> None:
    asked = 0

    @app.command("poll")
    async def poll() -> int:
        nonlocal asked
        asked += 1
        if asked < 4:
            raise Again("not yet", after=0.05, free=True)
        return asked

    job = poll.submit()
    with app.worker():
        assert job.result(SOON) == 4
    assert job.attempts == 1


@pytest.mark.req("W-1")
def test_unknown_commands_stay_queued_and_unfit_arguments_are_a_dead_letter(app: App, open_app: OpenApp) -> None:
    with open_app() as old:

        @old.command("gone")
        def gone() -> None: ...

        @old.command("changed")
        def before(order: str) -> None: ...

        kept, unfit = gone.submit(), before.submit("o-1")

    @app.command("changed")
    def after(order_id: str) -> None: ...

    with app.worker():
        deadline = time.monotonic() + SOON
        while not app.ledger.dead_letters() and time.monotonic() < deadline:
            time.sleep(0.02)
    (letter,) = app.ledger.dead_letters()
    assert (letter.reason, letter.attempts, letter.key) == ("undecodable", 1, unfit.key)
    assert "has no parameter order, but the stored call does" in str(letter.error)
    assert "Stored: an object of order (str)" in str(letter.error)
    assert "takes (order_id: str) -> None" in str(letter.error)
    assert kept.state == "queued"
