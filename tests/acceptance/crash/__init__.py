"""Processes that crash, freeze and lose their database: no job is lost or repeated.

`make crash-matrix` runs every crash point in every way. The tests here run each of them once.
"""
