"""Upload the tiles of a flight in batches. Rejected tiles are resent, and a damaged tile is given up."""
