"""Writes constraints.txt: every version that all extras and tools resolve to, for every interpreter from 3.11 up.

The resolver is uv, from PyPI, in an environment that is thrown away: it resolves for all interpreters at once and
marks the pins that differ. What comes out names no registry and no path.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADER = """\
# Every version the tools and tests are run with, on CPython 3.11, 3.12 and 3.13.
# Made by `make constraints`; users of the package are not bound by it.
"""
RESOLVE = "pip compile --universal --python-version 3.11 --all-extras --group dev --no-annotate --no-header --quiet"


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = f"{folder}/bin/python"
        subprocess.run([python, "-m", "pip", "install", "-qq", "uv"], check=True)
        resolved = subprocess.run(
            [python, "-m", "uv", *RESOLVE.split(), "pyproject.toml"],
            cwd=ROOT,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
    (ROOT / "constraints.txt").write_text(HEADER + resolved.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
