"""The tasks of the shop. `manage.py redrive_worker` finds this file in each app of INSTALLED_APPS."""

from pathlib import Path

from django.tasks import task

from redrive.django import get_app
from shop.models import Order

app = get_app()
MAIL_IS_DOWN = Path("mail-is-down")
"""While this file exists, no mail can be sent."""


@task(queue_name="mail")
def send_receipt(order_id: int) -> str:
    """Send a receipt by mail."""
    if MAIL_IS_DOWN.exists():
        raise ConnectionError("the mail server does not answer")
    order = Order.objects.get(pk=order_id)
    order.receipt = f"sent to {order.user}"
    order.save(update_fields=["receipt"])
    return order.receipt


@task(takes_context=True)
async def count_orders(context, user: str) -> dict:
    """Count the orders of a user, in async code."""
    return {"attempt": context.attempt, "orders": await Order.objects.filter(user=user).acount()}


@app.command("orders.forget", key="shop:{user}:{order_id}:forget:v1")
def forget_order(order_id: int, user: str) -> int:
    """Delete an order. A command has a job key: two submissions for one order are one job."""
    return Order.objects.filter(pk=order_id, user=user).delete()[0]
