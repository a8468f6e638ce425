"""Read-only queries, at a cost that does not grow with the ledger."""
