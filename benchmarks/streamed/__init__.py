"""What messages cost: from a Redis stream into the ledger, handled and acknowledged, beside other libraries."""
