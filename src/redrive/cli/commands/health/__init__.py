"""Commands that check the health of a ledger, and report its problems."""
