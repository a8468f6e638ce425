"""How the cost of each operation grows."""
