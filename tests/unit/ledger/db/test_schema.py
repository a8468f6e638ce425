"""Log records of a migration."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from redrive.ledger import open_ledger


def test_a_migration_logs_no_lines_of_alembic(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("alembic").setLevel(logging.NOTSET)
    with caplog.at_level(logging.INFO):
        open_ledger(f"sqlite:///{tmp_path / 'new.db'}", migrate=True).close()
    assert [record.name for record in caplog.records if record.name.startswith("alembic")] == []


def test_a_program_that_sets_the_level_gets_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("alembic.runtime.migration")
    logger.setLevel(logging.INFO)
    try:
        open_ledger(f"sqlite:///{tmp_path / 'new.db'}", migrate=True).close()
    finally:
        logger.setLevel(logging.NOTSET)
    assert any(record.name == logger.name for record in caplog.records)
