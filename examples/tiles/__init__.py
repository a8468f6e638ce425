"""Tiles of a flight, uploaded in batches: what is accepted is marked, what is rejected is sent again, and a bad tile gives up."""
