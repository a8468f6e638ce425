"""The worker: takes jobs from the ledger and runs them. Commands, handlers and partitions give it kinds."""
