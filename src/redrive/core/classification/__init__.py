"""Error classification: what an error means, which errors have one cause, and when to retry."""
