"""The shared poller: one loop that asks for what many waiters wait for."""
