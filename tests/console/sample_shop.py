"""A sample shop for tests and screenshots, with every problem that an operator may meet."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

from redrive import App, Event, retry
from redrive.ledger import Lease, Ledger, NewJob

SECRET = "hunter2-s3cret"
NASTY = """"><script>alert('xss')</script><img src=x onerror="alert(1)"> javascript:alert(2) {{ 7*7 }} ${7*7} </pre></title>"""
"""Text with markup and scripts, which pages must escape."""
TIMEOUT = f"TimeoutError: read timed out after 10 s, Authorization: Bearer {SECRET}"
REFUSED = "CrmRejected: 422 Unprocessable: the customer has no address"


def shop(url: str) -> App:
    """Return an app with commands and handlers, and an empty ledger."""
    app = App(url, migrate=True)

    @app.command("receipts.send", key="shop:{user}:{order_id}:receipt:v1")
    @retry(max_attempts=3)
    def send_receipt(order_id: str, user: str) -> str:
        return f"receipt of {order_id} for {user}"

    @app.command("crm.sync")
    def sync(customer: str) -> None: ...

    @app.command("reports.nightly", cron="0 3 * * *")
    def nightly() -> None: ...

    @app.on("session.completed", name="qscore")
    def qscore(event: Event[Any]) -> None: ...

    @app.on("session.completed", name="badges")
    def badges(event: Event[Any]) -> None: ...

    return app


def add_problems(app: App, odd: str = NASTY) -> None:
    """Add jobs in every state, dead letters of three causes, keys, events and a finished sweep.

    Args:
        app: The app.
        odd: Text in some of their errors, keys and ids.
    """
    ledger = app.ledger
    ledger.maintenance.heartbeat("web-1:41", {"threads": 8, "kinds": ["receipts.send", "crm.sync", "qscore", "badges"]})
    _dead(ledger, "crm.sync", 14, "attempts", TIMEOUT, "TimeoutError: read timed out after # s")
    _dead(ledger, "crm.sync", 3, "permanent", REFUSED, "CrmRejected: # Unprocessable")
    _dead(
        ledger,
        "receipts.send",
        2,
        "permanent",
        f"ValueError: {odd}",
        "ValueError: nasty",
        payload={"note": odd, "password": SECRET},
    )
    _block_job(ledger)
    _waiting(ledger)
    _done(ledger)
    for number in range(3):
        app.receive(Event("session.completed", {"session": number, "token": SECRET}, id=f"ev-{number}", source="shop.events"))
    app.receive(Event("session.completed", {"session": "odd"}, id=odd, source="shop.events"))
    for lease in ledger.claim({"qscore": 1}, worker="web-1:41"):
        ledger.settle(lease.dead("permanent", error="KeyError: 'score'", signature="KeyError: #"))
    _keys(app, odd)
    ledger.sweeps.step(ledger.sweeps.begin("discard", [1], actor="ben", because=f"a test order {odd}").id)


def _dead(ledger: Ledger, kind: str, count: int, reason: str, error: str, signature: str, payload: Any = None) -> None:
    start = len(ledger.dead_letters(limit=10_000))
    numbers = range(start, start + count)
    ledger.submit_many([_job(kind, number, payload) for number in numbers])
    first = ledger.claim({kind: count}, worker="web-1:41")
    tried, dying = first[1::2], first[::2]
    ledger.settle([lease.again(0.0, error=error, reason="transient") for lease in tried])
    dying += ledger.claim({kind: len(tried)}, worker="web-1:41") if tried else []
    dying.sort(key=lambda lease: lease.job_id)
    ledger.settle([lease.dead(reason, error=error, signature=signature) for lease in dying])


def _job(kind: str, number: int, payload: Any) -> NewJob:
    content = {"customer": f"c-{number}", "password": SECRET} if payload is None else payload
    ids = {"trace_id": f"{number:032x}", "user_id": "ann"}
    return NewJob(kind, f"shop:ann:c-{number}:{kind}:v1", json.dumps(content).encode(), max_attempts=3, ids=ids)


def _claim(ledger: Ledger, kind: str) -> Lease:
    (lease,) = ledger.claim({kind: 1}, worker="web-1:41")
    return lease


def _block_job(ledger: Ledger) -> None:
    ledger.submit(NewJob("crm.sync", "shop:ben:c-99:crm.sync:v1", b"{}"))
    until = datetime.now(timezone.utc) + timedelta(hours=3)
    ledger.settle(_claim(ledger, "crm.sync").blocked("quota", until=until, error="QuotaExceeded: 1,000 calls a day"))


def _waiting(ledger: Ledger) -> None:
    ledger.submit(NewJob("receipts.send", "shop:cleo:o-7:receipt:v1", b'{"order_id": "o-7", "user": "cleo"}', max_attempts=5))
    ledger.settle(_claim(ledger, "receipts.send").again(1800.0, error="ConnectionError: refused", reason="transient"))
    ledger.submit(NewJob("crm.sync", "shop:dan:c-1:crm.sync:v1", b'{"customer": "dan"}'))
    _claim(ledger, "crm.sync")  # stays running
    for number in range(5):
        job = NewJob("receipts.send", f"shop:eve:o-{number}:receipt:v1", b'{"order_id": "o", "user": "eve"}', delay=600.0)
        ledger.submit(job)


def _done(ledger: Ledger) -> None:
    ledger.submit_many([NewJob("receipts.send", f"shop:flo:o-{n}:receipt:v1", b'{"order_id": "o"}') for n in range(12)])
    leases = ledger.claim({"receipts.send": 12}, worker="web-1:41")
    ledger.settle([lease.done(b'"sent"') for lease in leases])


def _keys(app: App, odd: str) -> None:
    @app.once("billing:{user}:{order}:charge:v1")
    def charge(order: str, user: str) -> dict[str, str]:
        if order == "o-bad":
            raise ValueError("the card was refused")
        return {"charged": order, "token": SECRET}

    charge("o-1", user="ann")
    charge("o-2", user="ann")
    charge("o-3", user=odd)
