"""Python 3.14 for the portable tests: an installed one, or Debian's packages, unpacked once into .cache.

Debian testing has it. Its programs need a newer C library than older releases have, so that library is unpacked too, and a
script starts the interpreter with it. Other programs of the machine are not affected. scripts/find-python finds the script.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from tests.servers.debian import fetch
from tests.servers.npm import CACHE
from tests.servers.process import ServerMissing

VERSION = "3.14"
SUITE = "forky"
HOW = f"Python {VERSION}: not installed, and apt cannot fetch it; install it with pyenv, so that the tests run on it too"
PACKAGES = (
    *(f"python{VERSION}", f"python{VERSION}-minimal", f"python{VERSION}-venv"),
    *(f"libpython{VERSION}-minimal", f"libpython{VERSION}-stdlib", "python3-pip-whl"),
    *("libbz2-1.0", "libc6", "libexpat1", "libffi8", "libgcc-s1", "liblzma5", "libncursesw6", "libreadline8t64"),
    *("libsqlite3-0", "libssl3t64", "libtinfo6", "libuuid1", "libzstd1", "zlib1g"),
)
SCRIPT = """#!/bin/sh
exec "{loader}" --library-path "{libraries}" --argv0 "$0" "{program}" "$@"
"""
SECONDS = 60


def bring() -> Path:
    """Return the path of the interpreter; fetched now if it is neither in .cache nor installed.

    Raises:
        ServerMissing: It cannot be fetched, or does not run here. The message has the output of apt.
    """
    home = CACHE / f"python{VERSION}"
    script = home / "bin" / f"python{VERSION}"
    if script.is_file() and str(home) in script.read_text():  # its paths are absolute, and the clone may have been moved
        return script
    installed = find_installed()
    if installed is not None:
        return installed
    unpacked = CACHE / f"python{VERSION}-new"
    shutil.rmtree(unpacked, ignore_errors=True)  # of a run that was interrupted
    problem = fetch(unpacked, PACKAGES, "usr", suite=SUITE)
    if problem is not None:
        raise ServerMissing(f"{HOW} ({problem})")
    relocate(unpacked, home)
    shutil.rmtree(home, ignore_errors=True)
    unpacked.rename(home)
    try:
        subprocess.run([script, "-c", "import ensurepip, sqlite3, ssl"], check=True, capture_output=True, timeout=SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        shutil.rmtree(home)
        raise ServerMissing(f"{HOW} ({error})") from error
    return script


def find_installed() -> Path | None:
    """Return the interpreter that scripts/find-python finds."""
    command = ["sh", "scripts/find-python", "--all"]
    output = subprocess.run(command, cwd=CACHE.parent, capture_output=True, text=True, timeout=SECONDS).stdout
    found = dict(line.split(" ", 1) for line in output.splitlines())
    return Path(found[VERSION]) if VERSION in found else None


def relocate(unpacked: Path, home: Path) -> None:
    """Prepare the unpacked files for their final folder."""
    loader = next(unpacked.glob("lib/*/ld-linux-*.so.*")).relative_to(unpacked)
    script, program = Path(f"bin/python{VERSION}"), Path(f"lib/python{VERSION}/interpreter")
    (unpacked / script).rename(unpacked / program)
    text = SCRIPT.format(loader=home / loader, libraries=home / loader.parent, program=home / program)
    (unpacked / script).write_text(text)
    (unpacked / script).chmod(0o755)
    for file in unpacked.glob(f"lib/python{VERSION}/_sysconfigdata_*.py"):
        if not file.is_symlink():  # Debian has its pip for new environments in a folder of the system
            wheels = re.sub(r"('WHEEL_PKG_DIR': )'[^']*'", rf"\1'{home}/share/python-wheels'", file.read_text())
            file.write_text(wheels)
