"""Templates and the parts of a page."""
