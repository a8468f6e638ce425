"""Simulation: the load that the retries of a whole fleet put on a service in an outage.

`scenario.py` is what a user describes, `fleet.py` runs it, `figures.py` summarises it, and
`picture.py` draws it. Waits, deadlines, budgets and breakers are decided by `core`.
"""
