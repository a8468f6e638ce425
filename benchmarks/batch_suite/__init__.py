"""What a batch costs, beside its bare sender."""
