"""The control plane: which partitions run, when, and what a verdict means for them."""
