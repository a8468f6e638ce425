"""Migrations of the ledger for `manage.py migrate`."""
