"""Idempotency records: an operation runs once for its key, and later callers get the stored response."""
