"""The orders of the shop."""

from django.db import models


class Order(models.Model):
    """An order of one user."""

    user = models.CharField(max_length=100)
    receipt = models.CharField(max_length=100, blank=True)
    receipt_task = models.CharField(max_length=64, blank=True)
