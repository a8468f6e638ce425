"""Partitions of datasets: plans, backfills and their state."""
