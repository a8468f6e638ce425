"""Differences on Temporal: each row of the table in docs/how-to/engines/temporal.md."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest

from redrive import Again, App, RetryPolicy, Stop, Temporal, current, errors
from redrive.ops import Operator
from tests.servers.process import running, short_folder
from tests.servers.temporal import answers, command, program

QUICK = RetryPolicy(max_attempts=3, backoff_base=0.02, backoff_max=0.05, jitter=0)
SOON = 60.0


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.req("E-9")
def test_steps_sleeps_and_signals_name_the_option_that_helps(app: App) -> None:
    @app.command("order.pay")
    def pay(act: str) -> None:
        try:
            if act == "step":
                current().step("charge", int)
            elif act == "sleep":
                current().sleep(hours=1)
            else:
                current().wait_for("paid", timeout=1)
        except RuntimeError as error:
            raise Stop(str(error)) from None

    with app.worker():
        for act, job in [(act, pay.submit(act)) for act in ("step", "sleep", "signal")]:
            with pytest.raises(errors.Dead, match=rf"{act}.* needs the ledger, .* Temporal\(on_ledger=\['order.pay'\]\)"):
                job.result(SOON)


@pytest.mark.req("E-9")
def test_commands_named_in_on_ledger_stay_there(url: str, temporal_address: str) -> None:
    with App(url, engine=Temporal(temporal_address, on_ledger=["order.pay"])) as app:

        @app.command("order.pay")
        def pay() -> int:
            return current().step("charge", lambda: 1)

        job = pay.submit()
        assert job.id == "1"
        with app.worker():
            assert job.result(SOON) == 1


@pytest.mark.req("E-9")
def test_a_checkpoint_reaches_the_next_attempt_and_progress_the_server(app: App) -> None:
    seen: list[object] = []

    @app.command("pages.read", retry=QUICK)
    def read() -> str:
        seen.append(current().last_checkpoint(0))
        current().progress(0.5, "half")
        current().checkpoint({"page": len(seen)})
        if current().number < 3:
            raise ConnectionError("down")
        return "read"

    job = read.submit()
    with app.worker():
        assert job.result(SOON) == "read"
    assert seen == [0, {"page": 1}, {"page": 2}]


@pytest.mark.req("E-9")
def test_an_async_checkpoint_works_too(app: App) -> None:
    @app.command("pages.read", retry=QUICK)
    async def read() -> int:
        page: int = await current().alast_checkpoint(0)
        await current().acheckpoint(page + 1)
        if page < 1:
            raise Again(after=0.01, free=True)
        return page

    with app.worker():
        assert read.submit().result(SOON) == 1


@pytest.mark.req("E-9")
def test_a_deadline_that_passes_without_a_worker_is_a_dead_letter(app: App) -> None:
    @app.command("parcels.pack", key="shop:{user}:1:pack:v1")
    def pack(user: str) -> None:
        raise AssertionError("too late")

    job = pack.using(deadline=datetime.now(timezone.utc) + timedelta(seconds=1)).submit("ann")
    until(lambda: job.state == "dlq")
    with pytest.raises(errors.Dead, match="deadline"):
        job.result(0)
    with app.worker():
        until(app.ledger.dead_letters)
        (letter,) = app.ledger.dead_letters()
    assert (letter.kind, letter.key, letter.reason) == ("parcels.pack", job.key, "deadline")


@pytest.mark.req("E-9")
def test_a_paused_job_type_starts_nothing(app: App) -> None:
    ran: list[int] = []

    @app.command("parcels.pack")
    def pack() -> None:
        ran.append(1)

    ann = Operator(app, actor="ann")
    ann.pauses.pause("job type", "parcels.pack", because="the shelf is full", force=True)
    job = pack.submit()
    temporal = app.registrations.temporal
    assert temporal is not None
    ref = temporal.latest(job.kind, job.key)

    def starts() -> int:
        described = temporal.connection.call(lambda client: temporal.describe(client, ref), "nothing was changed")
        return 0 if described is None else described.attempt

    with app.worker():
        until(lambda: starts() >= 2)
        assert ran == []
        assert (job.state, job.attempts) == ("queued", 0), "that costs it no attempt"


@pytest.mark.req("E-9")
def test_the_overview_shows_the_ledger_and_the_server(app: App, engine: Temporal) -> None:
    @app.command("parcels.pack", key="shop:{user}:1:pack:v1")
    def pack(user: str) -> None:
        if user == "bob":
            raise Stop("no shelf")

    done, dead = pack.submit("ann"), pack.submit("bob")
    later = pack.using(delay=3600).submit("eve")
    ops = Operator(app, actor="ann")
    with app.worker():
        done.result(SOON)
        with pytest.raises(errors.Dead):
            dead.result(SOON)
        assert later.state == "queued"
        until(lambda: [(line.open, line.done, line.failed) for line in ops.overview.summary().engines] == [(1, 1, 1)])
        report = ops.overview.summary()
    (line,) = report.engines
    assert (line.name, line.namespace, line.queue) == (f"Temporal {engine.address}", "default", engine.task_queue)
    (kind,) = report.kinds
    assert (kind.name, kind.dead) == ("parcels.pack", 1)


@pytest.mark.req("E-9")
def test_a_tenant_with_many_jobs_does_not_hold_up_another_one(url: str) -> None:
    """With fairness in the server. Each partition of a task queue is fair for itself, so there is one."""
    settings = ("enableFairness=true", "numTaskqueueReadPartitions=1", "numTaskqueueWritePartitions=1")
    options = [word for each in settings for word in ("--dynamic-config-value", f"matching.{each}")]
    found = program()
    assert found is not None
    with (
        short_folder() as folder,
        running(lambda port: command(found, port, *options), ready=answers, folder=folder) as port,
        App(url, engine=Temporal(f"127.0.0.1:{port}")) as app,
    ):
        ran: list[str] = []

        @app.command("parcels.pack", key="shop:{user}:{number}:pack:v1", tenant="{user}")
        def pack(number: int, user: str) -> None:
            ran.append(user)

        for number in range(40):
            pack.submit(number, "ann")
        job = pack.submit(1, "bob")
        with app.worker(threads=1):
            job.result(SOON)
            place = ran.index("bob")
        assert place < 20, "without fairness, it is one of the last"


@pytest.mark.req("E-9")
def test_a_checkpoint_that_is_too_large_is_refused(app: App) -> None:
    @app.command("pages.read", retry=QUICK)
    def read() -> None:
        current().checkpoint("x" * 2_000_000)

    with app.worker(), pytest.raises(errors.Dead, match="checkpoint: the value has 2000002 bytes"):
        read.submit().result(SOON)
