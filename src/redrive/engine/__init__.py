"""The retry loops, sync and async, and the rules that keep them from multiplying."""
