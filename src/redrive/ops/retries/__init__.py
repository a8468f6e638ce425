"""Retries of calls: verdicts on errors, policies of clients, and retry layers. Without a ledger."""
