"""Tests of the shop, by `python manage.py test`. A sandbox runs tasks without a worker."""

from django.test import TestCase

from redrive.django import get_app
from redrive.testing import sandbox
from shop.models import Order
from shop.tasks import send_receipt


class ReceiptTest(TestCase):
    """An order and the task of its receipt."""

    def test_order_and_task_are_stored_together(self) -> None:
        placed = self.client.post("/orders/", {"user": "ann"}).json()
        self.assertEqual(send_receipt.get_result(placed["task"]).status, "READY")

    def test_declined_card_stores_neither(self) -> None:
        with self.assertRaises(ValueError):
            self.client.post("/orders/", {"user": "ann", "card": "declined"})
        self.assertEqual(Order.objects.count(), 0)

    def test_receipt_is_sent(self) -> None:
        with sandbox(get_app()) as box:
            placed = self.client.post("/orders/", {"user": "ann"}).json()
            box.drain()
            shown = self.client.get(f"/orders/{placed['order']}/").json()
        self.assertEqual(shown, {"receipt": "sent to ann", "status": "SUCCESSFUL", "attempts": 1})
