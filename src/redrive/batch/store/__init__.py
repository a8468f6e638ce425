"""Stores that count the rejections of items: the ledger, and a table of the user."""
