"""What Redrive costs, measured beside the libraries it wants to beat."""
