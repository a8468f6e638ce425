"""Requests on the wire: each backend and its client alone, through a FaultServer."""
