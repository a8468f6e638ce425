"""What the steps of a job cost, beside DBOS and Temporal."""
