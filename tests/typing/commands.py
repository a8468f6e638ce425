"""Type-checked, never run: commands keep the types of their functions, and misuse is rejected."""

import sqlite3
from datetime import timedelta
from typing import assert_type

import asyncpg
import psycopg
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from redrive import Again, App, Blocked, Event, Job, Key, RetryPolicy, Stop, retry

app = App("sqlite:///shop.db", include=["shop.receipts"])


@app.command("a.plain", key="shop:u:{order_id}:plain:v1", retry=RetryPolicy(), concurrency=4, rate=0.5, spent="blocked")
def plain(order_id: str, *, n: int = 1) -> int:
    return n


@app.command("a.later", retry=retry(max_attempts=6), key=lambda order_id: Key("shop", "u", order_id, "later"))
async def acmd(order_id: str) -> list[int]:
    return []


@app.command("a.tx", in_transaction=True)
def intx(tx: Connection, order_id: str) -> int:
    return 1


@app.command("a.cron", cron="* * * * *", timezone="Europe/Prague")
def nightly() -> None: ...


@app.command("a.cron2", cron="* * * * *")  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]
def nightly2(x: int) -> None: ...


@app.command("a.tx2", in_transaction=True)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def intx2(order_id: str) -> int:
    return 1


assert_type(plain.submit("o"), Job[int])
assert_type(plain("o"), int)
assert_type(acmd.submit(order_id="o"), Job[list[int]])
assert_type(acmd.submit(order_id="o").result(), list[int])
assert_type(plain.using(key="k", delay=5).submit("o", n=2), Job[int])
assert_type(plain.using(delay=timedelta(minutes=1), priority=-1).submit("o").created, bool)
assert_type(intx.submit("o"), Job[int])


def direct(c: Connection) -> int:
    return intx(c, "o")


def many(session: Session) -> None:
    app.submit_many([plain.bind("o"), acmd.bind("p")], tx=session)
    app.submit_many([plain.bind(3)])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def later(session: AsyncSession) -> None:
    assert_type(await acmd("o"), list[int])
    job = await plain.using(tx=session).asubmit("o")
    assert_type(await job.aresult(timeout=5), int)
    await plain.asubmit()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def on_drivers(pooled: asyncpg.Connection, connection: psycopg.AsyncConnection[tuple[int]]) -> None:
    assert_type(await plain.using(tx=pooled).asubmit("o"), Job[int])
    assert_type(await plain.using(tx=connection).asubmit("o"), Job[int])
    await app.asignal("k", "paid", tx=connection)
    await app.apublish(Event("a", 1, source="s", id="1"), to="orders", tx=connection)
    async with app.claim("billing:u:o:charge:v1", tx=connection):
        pass


def on_sync_drivers(connection: psycopg.Connection[tuple[int]], file: sqlite3.Connection) -> None:
    assert_type(plain.using(tx=connection).submit("o"), Job[int])
    app.submit_many([plain.bind("o")], tx=file)


plain.submit(ordr_id="o")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
plain.submit(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
plain.submit()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
plain.using(key="k").submit(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
plain.using(kee="k")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
intx("o")  # type: ignore[call-arg, arg-type]  # pyright: ignore[reportCallIssue]
nightly.submit()
nightly.submit(1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
app.command("a.b", cron="* * * * *", key="x")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
app.command("a.b", spent="lost")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
Again(after=5).with_traceback(Blocked("x", until=None).__traceback__)
Stop()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
