"""Storage backends, compared with their clients and remote-store over loopback."""
