"""The statements of Postgres: a batch is one statement, and a statement is a transaction."""
