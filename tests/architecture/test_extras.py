"""Messages that name an extra: the extra exists, and pip needs no index to read it from the installed package."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib

import pytest

from redrive.core.lazy import EXTRAS
from tests.architecture.imports import SRC

PROJECT = tomllib.loads((SRC.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NAMED = re.compile(r"redrive\[([a-z0-9,-]+)\]")


def test_messages_name_extras_that_exist() -> None:
    named = set(EXTRAS.values())
    for file in SRC.rglob("*.py"):
        for extras in NAMED.findall(file.read_text(encoding="utf-8")):
            named.update(extras.split(","))
    assert len(named) > 5
    assert named <= set(PROJECT["optional-dependencies"])


def test_pip_reads_extras_from_the_installed_package() -> None:
    pytest.importorskip("pip")
    command = [sys.executable, "-m", "pip", "install", "--no-index", "--dry-run", "--disable-pip-version-check", "redrive[cli]"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Requirement already satisfied: redrive[cli]" in done.stdout
    assert re.search(r"typer.* \(from redrive\[cli\]\)", done.stdout)
