"""The case of document 000, end to end."""
