"""The statements of Postgres: a whole batch is one statement, and a statement is a transaction."""
