"""Show a plan, ask for confirmation and apply it."""
