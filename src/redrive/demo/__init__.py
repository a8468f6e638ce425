"""The live demonstration that `make demo` runs: a flaky server of its own, and what Redrive makes of it."""
