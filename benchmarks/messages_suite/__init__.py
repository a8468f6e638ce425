"""Messages from a Redis stream, compared with minimal loops and other libraries."""
