"""What the ledger costs: raw floors, the ledger, and other libraries for durable work, on the same databases."""
