"""The worker: claims jobs from the ledger and runs them."""
