"""Extractions that crash, freeze and resume, on both databases, on a disk and on S3.

`make crash-matrix` runs every boundary in every way. The tests here run each of them once.
"""
