"""The other commands, one module each."""
