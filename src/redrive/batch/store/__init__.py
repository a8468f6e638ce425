"""Stores that count the rejections of items: the protocol, the ledger's tables and a table of the user."""
