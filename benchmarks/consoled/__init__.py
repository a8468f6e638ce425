"""What the console's pages cost beside a small ledger and beside a large one."""
