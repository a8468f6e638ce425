"""Migrate the table `tiles` to a revision, up or down."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Engine

FIRST, HEAD = "0001", "0003"


def migrate(engine: Engine, to: str = HEAD) -> None:
    """Migrate to a revision, in one transaction."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        current = connection.exec_driver_sql("SELECT version_num FROM tiles_version").scalar() if _made(engine) else None
        (command.downgrade if current is not None and to < str(current) else command.upgrade)(config, to)


def _made(engine: Engine) -> bool:
    from sqlalchemy import inspect  # noqa: PLC0415

    return inspect(engine).has_table("tiles_version")
