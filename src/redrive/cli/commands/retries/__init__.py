"""Commands about retries in calls: what is retried, how often, and with which load."""
