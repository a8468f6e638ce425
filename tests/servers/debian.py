"""Debian packages: fetched by apt and unpacked into .cache, without root, completely or not at all.

The packages come from the machine's own apt sources, which are signed. Lists and cache are private, so that no root and no
earlier `apt-get update` is needed, stale lists of the machine do not matter, and nothing outside of .cache is changed.

Versions are those of the machine's Debian release, because its mirrors keep no others. Another release can be named.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

SECONDS = 200
"""For one run of apt-get."""
ROUNDS = 3
"""A mirror during an update serves lists and packages that do not match. The next round reads both again."""
PAUSE = 2.0
KEPT = 400
"""Characters of the output of each program that the error shows."""
CONFIG = """
Dir::State::Lists "{folder}/lists";
Dir::Cache "{folder}/cache";
Dir::Log "{folder}/log";
APT::Sandbox::User "";
Acquire::Retries "2";
Acquire::Languages "none";
APT::Update::Error-Mode "any";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
"""
"""Read after the machine's configuration, whose hooks would change the system's cache. No sandbox: `_apt` may not write here."""


KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SUITE_CONFIG = """
Dir::Etc::SourceList "{folder}/sources.list";
Dir::Etc::SourceParts "/dev/null";
"""
SUITE_SOURCE = "deb [signed-by={keyring}] http://deb.debian.org/debian {suite} main\n"


def fetch(
    home: Path,
    packages: Sequence[str],
    part: str,
    /,
    *,
    suite: str | None = None,
    apt: str = "apt-get",
    sleep: Callable[[float], None] = time.sleep,
) -> str | None:
    """Fetch a part of the unpacked packages to this path, whole or not at all; the problem, if that failed.

    Args:
        home: Where the part is put.
        packages: Their names.
        part: A file or a folder of the packages, such as `usr/bin/promtool`.
        suite: Name of a Debian release. Default: the apt sources of this machine.
        apt: The program that fetches.
        sleep: Waits between two rounds.
    """
    if shutil.which(apt) is None or shutil.which("dpkg-deb") is None:
        return f"{apt} and dpkg-deb are needed, and this machine does not have both"
    if suite is not None and not KEYRING.is_file():
        return f"the keys of Debian are needed, and this machine does not have {KEYRING}"
    problem = None
    for turn in range(ROUNDS):
        if turn:
            sleep(PAUSE * turn)
        home.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f"{home.name}-", dir=home.parent) as folder:
            problem = _fetch(Path(folder), home, packages, part, suite, apt)
        if problem is None:
            break
    return problem


def _fetch(folder: Path, home: Path, packages: Sequence[str], part: str, suite: str | None, apt: str) -> str | None:
    for name in ("lists/partial", "cache/archives/partial", "log"):
        (folder / name).mkdir(parents=True)
    config = folder / "apt.conf"
    config.write_text((CONFIG if suite is None else CONFIG + SUITE_CONFIG).format(folder=folder))
    if suite is not None:
        (folder / "sources.list").write_text(SUITE_SOURCE.format(keyring=KEYRING, suite=suite))
    # `update` fails if any source fails. `download` decides whether the packages are available.
    updated = _run([apt, "-q", "-c", config, "update"], folder)
    downloaded = _run([apt, "-q", "-c", config, "download", *packages], folder)
    if downloaded is not None:
        return downloaded if updated is None else f"{updated}; {downloaded}"
    for name in packages:
        files = list(folder.glob(f"{name}_*.deb"))
        if not files:
            return f"apt-get download wrote no package {name}"
        unpacked = _run(["dpkg-deb", "-x", files[0], "unpacked"], folder)
        if unpacked is not None:
            return unpacked
    made = folder / "unpacked" / part
    if not made.exists():
        return f"{' '.join(packages)} has no {part}"
    try:
        made.rename(home)
    except OSError as error:  # another process was faster, and its folder is not empty
        return None if home.exists() else str(error)
    return None


def _run(command: list[str | Path], folder: Path) -> str | None:
    """Return None, or the problem as text."""
    name = " ".join(str(word) for word in command if not str(word).startswith(("-", str(folder))))
    environment = os.environ | {"LC_ALL": "C"}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"{name}: {error}"
    if done.returncode == 0:
        return None
    output = (done.stderr.strip() or done.stdout.strip()).decode(errors="replace")
    return f"{name}: {output[-KEPT:]}"
