"""The mode of the files of a SQLite ledger."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from redrive.ledger import NewJob, open_ledger
from redrive.ops.health.doctor import diagnose


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_a_new_ledger_and_its_log_are_private(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        with open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}", migrate=True) as ledger:
            ledger.submit(NewJob("k", "key", b"payload"))
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
            assert not [one for one in diagnose(ledger).findings if one.name == "file mode"]
    finally:
        os.umask(before)
    assert modes == {"ledger.db": 0o600, "ledger.db-wal": 0o600, "ledger.db-shm": 0o600}


def test_an_existing_file_keeps_its_mode_and_the_doctor_reports_it(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    open_ledger(f"sqlite:///{file}", migrate=True).close()
    file.chmod(0o644)
    with open_ledger(f"sqlite:///{file}") as ledger:
        (finding,) = [one for one in diagnose(ledger).findings if one.name == "file mode"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert finding.mend.startswith(f"chmod 600 {file}")
