"""What `benchmarks/partitions.py` measures."""
