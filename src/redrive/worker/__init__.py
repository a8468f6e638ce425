"""The worker: takes jobs from the ledger, runs them, and says what became of them. Commands, handlers and partitions give it kinds."""
