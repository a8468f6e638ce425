"""Print a plan, confirm it and apply it."""
