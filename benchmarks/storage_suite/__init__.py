"""Storage backends beside the bare clients and remote-store: streaming and listing, over loopback."""
