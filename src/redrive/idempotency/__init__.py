"""Idempotency keys: work that is done once for its key, and answered from memory ever after."""
