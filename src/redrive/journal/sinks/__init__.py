"""Sinks: where journal records go. Each sink is a function of one `Record`."""
