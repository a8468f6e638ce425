"""Login, roles and request checks."""
