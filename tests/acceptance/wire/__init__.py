"""What reaches the wire: each backend through a FaultServer in front of its real server, and its client alone beside it."""
