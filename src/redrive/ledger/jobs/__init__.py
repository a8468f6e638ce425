"""Changes of jobs outside of the hot path: recovery, parking, retention, dead letters, sweeps."""
