"""Retry layers that surround each other."""
