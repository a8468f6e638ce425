"""Ledger, raw loops and other libraries for durable jobs, on the same databases."""
