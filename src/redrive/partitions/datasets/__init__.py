"""Datasets: what an app registers, and the checks of their data."""
