"""Idempotency keys: an operation runs once for its key, and later callers get its response."""
