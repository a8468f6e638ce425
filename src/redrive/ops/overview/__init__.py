"""What the overview shows: job types, trends, failures and the journal."""
