"""Counters of jobs and failures, kept in the transaction of what they count."""
