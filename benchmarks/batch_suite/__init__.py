"""Batches, compared with a bare sender."""
