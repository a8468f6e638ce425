"""Batches on SQLite and on Postgres."""
