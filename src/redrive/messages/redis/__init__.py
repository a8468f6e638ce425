"""Redis Streams as a source of events."""
