"""Throughput and latency of durable commands, compared with other libraries."""
