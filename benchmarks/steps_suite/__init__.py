"""Jobs of ten steps, compared with DBOS and Temporal."""
