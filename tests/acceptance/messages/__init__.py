"""Consumers and servers that die: no message is lost, and transactional effects happen once."""
