"""Console pages with a small and a large ledger."""
