"""promtool: from PATH, or out of Debian's package of Prometheus, once, into .cache. Needs no root."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.servers.npm import CACHE
from tests.servers.process import ServerMissing

HOW = "promtool tests the alert rules: install Prometheus' tools, or `apt-get update` once, so that its package can be fetched"
SECONDS = 300


def bring() -> Path:
    """The program; ServerMissing says how to get it."""
    home = CACHE / "promtool"
    if home.is_file():
        return home
    found = shutil.which("promtool")
    if found is not None:
        return Path(found)
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="promtool-", dir=CACHE) as folder:
        try:
            subprocess.run(
                ["apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", "prometheus"],
                cwd=folder, check=True, capture_output=True, timeout=SECONDS,
            )  # fmt: skip
            (package,) = Path(folder).glob("prometheus_*.deb")
            subprocess.run(["dpkg-deb", "-x", package, "made"], cwd=folder, check=True, capture_output=True)
            (Path(folder) / "made" / "usr" / "bin" / "promtool").rename(home)
        except (OSError, ValueError, subprocess.SubprocessError) as failed:
            if not home.is_file():  # else another run was quicker
                said = getattr(failed, "stderr", None) or str(failed).encode()
                raise ServerMissing(f"{HOW} ({said.decode(errors='replace').strip()[-300:]})") from failed
    return home
