"""A shop that sends receipts in background tasks."""
