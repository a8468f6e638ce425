"""promtool: from PATH, or from Debian's package of Prometheus, fetched once into .cache."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.servers.debian import fetch
from tests.servers.npm import CACHE
from tests.servers.process import ServerMissing

HOW = "promtool: not on PATH, and apt cannot fetch it; install the package prometheus, or check the apt sources of this machine"


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
    problem = fetch(home, ["prometheus"], "usr/bin/promtool")
    if problem is not None and not home.is_file():  # otherwise another process was faster
        raise ServerMissing(f"{HOW} ({problem})")
    return home
