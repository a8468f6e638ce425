"""NATS JetStream as a source of events."""
