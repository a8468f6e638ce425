"""Throughput of the engines, compared with loops of their clients and with faststream."""
