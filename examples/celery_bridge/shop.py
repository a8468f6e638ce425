"""A Celery program. Tasks that fail for good become dead letters in Redrive's ledger."""

from __future__ import annotations

import os
from pathlib import Path

from celery import Celery

from redrive import App, RetryPolicy, native
from redrive.celery import connect

celery = Celery("shop", broker=os.environ.get("REDIS_URL", "redis://localhost:6379/0"))
celery.conf.task_default_queue = "celery_bridge"

app = App("sqlite:///shop.db")
connect(app, celery)

MAIL_SERVER = Path("mail-server")
"""The mail server is there if this file exists."""
OUTBOX = Path("sent.txt")
POLICY = RetryPolicy(max_attempts=3, backoff_base=0, jitter=0)


@celery.task(name="receipts.send", **native.celery(POLICY, on=ConnectionError).value)
def send_receipt(order: str, address: str, api_key: str) -> None:
    """Send a receipt by mail."""
    if not MAIL_SERVER.exists():
        raise ConnectionError(f"no mail server for {order}, api_key={api_key}")
    with OUTBOX.open("a") as sent:
        sent.write(f"{order} to {address}\n")
