"""The tables of partitions: rows, changes and queries, inside an open transaction."""
