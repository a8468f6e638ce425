"""What clients cost: HTTP, and the send buffer."""
