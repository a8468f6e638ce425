"""The loops that try a call again, in both colours, and what keeps them from multiplying."""
