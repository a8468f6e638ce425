"""Extraction in a worker: runner, attempts, background tasks and log records."""
