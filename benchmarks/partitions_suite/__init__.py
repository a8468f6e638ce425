"""Partitions in large tables, and a comparison of fault handling."""
