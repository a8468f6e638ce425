"""Extractions that die, freeze and come back, on both databases, on a disk and on S3.

`make crash-matrix` runs every boundary in every way; the tests here run each of them once.
"""
