"""Packages are fetched with apt's files in a private folder. A failed round is repeated, and the last one explained."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.servers.debian import ROUNDS, fetch

PACKAGES, PART = ["prometheus"], "usr/bin/promtool"
FAILING = """#!/bin/sh
echo "$@" >> {log}
test -d "$PWD/lists/partial" -a -d "$PWD/cache/archives/partial" || exit 3
echo "E: $4$5 cannot reach the mirror" >&2
exit 100
"""


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="needs dpkg-deb, as the fetch does")
def test_a_failed_fetch_is_repeated_and_leaves_nothing(tmp_path: Path) -> None:
    apt, log, home = tmp_path / "apt-get", tmp_path / "log", tmp_path / "cache" / "promtool"
    apt.write_text(FAILING.format(log=log))
    apt.chmod(0o755)
    waits: list[float] = []
    problem = fetch(home, PACKAGES, PART, apt=str(apt), sleep=waits.append)
    assert problem is not None
    assert "E: update cannot reach the mirror" in problem
    assert "E: downloadprometheus cannot reach the mirror" in problem
    assert (len(log.read_text().splitlines()), len(waits)) == (2 * ROUNDS, ROUNDS - 1)
    assert list(home.parent.iterdir()) == []


def test_a_machine_without_apt_gets_a_clear_error(tmp_path: Path) -> None:
    problem = fetch(tmp_path / "promtool", PACKAGES, PART, apt="apt-get-that-is-not-installed")
    assert problem is not None
    assert "apt-get-that-is-not-installed and dpkg-deb are needed" in problem
