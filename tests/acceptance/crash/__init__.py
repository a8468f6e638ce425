"""Processes that die, freeze and lose their database: nothing is lost, nothing is done twice.

`make crash-matrix` runs every crash point in every way; the tests here run each of them once.
"""
