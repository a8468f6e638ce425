"""The statements of SQLite. All run inside one transaction of their caller."""
