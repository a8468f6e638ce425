"""Consumers that die, and servers that go away: nothing is lost, and what is settled in our transaction happens once."""
