"""Durable commands: functions that carry their own `submit`, and run in a worker until they are done, or dead."""
