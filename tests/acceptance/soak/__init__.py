"""Hours of mixed load with random faults, and a check of what has happened."""
