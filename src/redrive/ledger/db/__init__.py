"""The database below the ledger: addresses, connections, sessions, schema and tables."""
