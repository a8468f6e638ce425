"""The user's project: its settings, its code, and the app or ledger that an operator works on."""
