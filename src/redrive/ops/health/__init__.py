"""What the doctor checks and reports."""
