"""Pin the versions of all extras and tools, for all interpreters from 3.11.

It writes three files:

- `constraints.txt` has the versions.
- `hashes.txt` has the versions with the hashes of their files.
- `deploy/docker/requirements.txt` has the packages of the image, with hashes.

uv resolves the versions in a temporary environment, for all interpreters at once. The files contain no registry and no path.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADER = """\
# Every version the tools and tests are run with, on CPython 3.11 to 3.14.
# Made by `make constraints`; users of the package are not bound by it.
"""
RESOLVE = "pip compile --universal --python-version 3.11 --no-annotate --no-header --quiet"
EVERYTHING = "--all-extras --group dev"
IMAGE = ("cli", "console", "postgres", "redis", "otel", "prometheus")
"""The extras of the image in deploy/docker."""
HASHED = """\
# The versions of constraints.txt with the hashes of their files. Made by `make constraints`.
"""


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = f"{folder}/bin/python"
        subprocess.run([python, "-m", "pip", "install", "-qq", "uv"], check=True)
        keep = "" if "--upgrade" in sys.argv else "--constraint constraints.txt"
        pins = resolve(python, f"{EVERYTHING} {keep}")
        (ROOT / "constraints.txt").write_text(HEADER + pins)
        pinned = "--generate-hashes --constraint constraints.txt"
        (ROOT / "hashes.txt").write_text(HASHED + resolve(python, f"{EVERYTHING} {pinned}"))
        extras = " ".join(f"--extra {name}" for name in IMAGE)
        (ROOT / "deploy" / "docker" / "requirements.txt").write_text(HASHED + resolve(python, f"{extras} {pinned}"))
    return 0


def resolve(python: str, options: str) -> str:
    """Resolve versions with uv, and return the lines of a requirements file."""
    command = [python, "-m", "uv", *RESOLVE.split(), *options.split(), "pyproject.toml"]
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
