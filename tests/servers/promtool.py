"""promtool: from PATH, or out of Debian's package of Prometheus, once, into .cache.

The package comes from the machine's own apt sources. Lists and cache are private, so that no root and no earlier
`apt-get update` is needed, stale lists of the machine do not matter, and nothing outside of .cache is changed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.servers.npm import CACHE
from tests.servers.process import ServerMissing

HOW = "promtool: not on PATH, and apt cannot fetch it; install the package prometheus, or check the apt sources of this machine"
SECONDS = 200
"""For one run of apt-get."""
ROUNDS = 3
"""A mirror that is being updated serves lists and packages that do not match: the next round reads both anew."""
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


def bring() -> Path:
    """The path of promtool; fetched now if it is neither in .cache nor on PATH.

    Raises:
        ServerMissing: It cannot be fetched. The message has the output of apt.
    """
    home = CACHE / "promtool"
    if home.is_file():
        return home
    installed = shutil.which("promtool")
    if installed is not None:
        return Path(installed)
    problem = fetch(home)
    if problem is not None and not home.is_file():  # else another process was faster
        raise ServerMissing(f"{HOW} ({problem})")
    return home


def fetch(home: Path, /, *, apt: str = "apt-get", sleep: Callable[[float], None] = time.sleep) -> str | None:
    """Fetch the program to this path, whole or not at all; the problem, if that failed.

    Args:
        home: Where the program is put.
        apt: The program that fetches.
        sleep: Waits between two rounds.
    """
    if shutil.which(apt) is None or shutil.which("dpkg-deb") is None:
        return f"{apt} and dpkg-deb are needed, and this machine does not have both"
    problem = None
    for turn in range(ROUNDS):
        if turn:
            sleep(PAUSE * turn)
        home.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="promtool-", dir=home.parent) as folder:
            problem = _fetch(Path(folder), home, apt)
        if problem is None:
            break
    return problem


def _fetch(folder: Path, home: Path, apt: str) -> str | None:
    for name in ("lists/partial", "cache/archives/partial", "log"):
        (folder / name).mkdir(parents=True)
    config = folder / "apt.conf"
    config.write_text(CONFIG.format(folder=folder))
    # `update` fails for any one of the sources. Whether the package is in the others, `download` says.
    updated = _run([apt, "-q", "-c", config, "update"], folder)
    downloaded = _run([apt, "-q", "-c", config, "download", "prometheus"], folder)
    if downloaded is not None:
        return downloaded if updated is None else f"{updated}; {downloaded}"
    packages = list(folder.glob("prometheus_*.deb"))
    if not packages:
        return "apt-get download wrote no package"
    unpacked = _run(["dpkg-deb", "-x", packages[0], "unpacked"], folder)
    if unpacked is not None:
        return unpacked
    program = folder / "unpacked" / "usr" / "bin" / "promtool"
    if not program.is_file():
        return f"{packages[0].name} has no usr/bin/promtool"
    program.rename(home)
    return None


def _run(command: list[str | Path], folder: Path) -> str | None:
    """None, or the problem in words."""
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
