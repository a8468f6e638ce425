"""The house style of every text that a user reads (docs/contributing/style.md)."""
