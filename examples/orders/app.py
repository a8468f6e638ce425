"""The app, with one command of three steps and a wait."""

from __future__ import annotations

import os
from datetime import timedelta

from redrive import App, current
from redrive.errors import SignalTimeout

from .services import call_service

app = App(os.environ.get("ORDERS_LEDGER", "sqlite:///orders.db"))


def charge(order: str, cents: int) -> str:
    """Charge the customer, and return the number of the receipt."""
    call_service("payments", f"{order}: {cents} cents")
    return f"receipt-{order}"


def ship(order: str) -> None:
    """Order the parcel."""
    call_service("parcels", order)


def notify(order: str, text: str) -> None:
    """Send a message to the customer."""
    call_service("mail", f"{order}: {text}")


@app.command("orders.place", key="shop:{user}:{order}:place:v1")
def place(order: str, user: str, cents: int) -> str:
    """Charge, ship, wait for the delivery, and notify the customer."""
    receipt = current().step("charge", charge, order, cents)
    current().step("ship", ship, order)
    try:
        delivery = current().wait_for("delivered", timeout=timedelta(days=14))
        text = f"delivered to {delivery['to']}, {receipt}"
    except SignalTimeout:
        text = f"not delivered within 14 days, {receipt}"
    current().step("notify", notify, order, text)
    return text
