"""The statements of jobs that differ between the databases, behind one interface."""
