"""What happens to jobs beside the hot path: recovery, parking, retention, dead letters and sweeps."""
