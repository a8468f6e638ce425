"""The app, module or ledger that a command operates on."""
