"""Migrations by Alembic: new ones are added, none is ever edited. Their version table is our own, beside the user's."""
