"""Packages are fetched with apt's files in a private folder. A failed round is repeated, and the last one explained."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.servers import debian
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


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="needs dpkg-deb, as the fetch does")
def test_packages_of_another_release_come_from_its_signed_source_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apt, log, keys = tmp_path / "apt-get", tmp_path / "log", tmp_path / "keys.gpg"
    apt.write_text(f"#!/bin/sh\ncat sources.list apt.conf >> {log}\nexit 100\n")
    apt.chmod(0o755)
    monkeypatch.setattr(debian, "KEYRING", keys)
    problem = fetch(tmp_path / "python", PACKAGES, PART, suite="forky", apt=str(apt), sleep=lambda _: None)
    assert problem == f"the keys of Debian are needed, and this machine does not have {keys}"
    keys.touch()
    fetch(tmp_path / "python", PACKAGES, PART, suite="forky", apt=str(apt), sleep=lambda _: None)
    assert f"deb [signed-by={keys}] http://deb.debian.org/debian forky main\n" in log.read_text()
    assert 'Dir::Etc::SourceParts "/dev/null";' in log.read_text()


def test_a_machine_without_apt_gets_a_clear_error(tmp_path: Path) -> None:
    problem = fetch(tmp_path / "promtool", PACKAGES, PART, apt="apt-get-that-is-not-installed")
    assert problem is not None
    assert "apt-get-that-is-not-installed and dpkg-deb are needed" in problem
