"""RabbitMQ as a source of events."""
