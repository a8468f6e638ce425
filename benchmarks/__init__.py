"""Benchmarks of Redrive, compared with other libraries."""
