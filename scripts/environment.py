"""Makes a virtual environment with the pinned versions, or leaves it alone when it already is what was asked for.

    python scripts/environment.py .venv --extras all --group dev

Standard library only: it runs before anything is installed. The stamp in the environment is a digest of all that decides
its content; the folder's own place is part of it, since an environment doesn't survive a move.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def digest(environment: Path, extras: str, group: str) -> str:
    seen = hashlib.sha256()
    for part in (sys.version, str(environment.absolute()), extras, group):
        seen.update(part.encode() + b"\0")
    for name in ("pyproject.toml", "constraints.txt"):
        seen.update((ROOT / name).read_bytes() + b"\0")
    return seen.hexdigest()


def pip(python: Path, *arguments: str) -> None:
    command = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--constraint", "constraints.txt"]
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PYTHONHOME"}}
    subprocess.run([*command, *arguments], cwd=ROOT, env=environment, check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("environment", type=Path)
    parser.add_argument("--extras", default="", help="extras of redrive, with commas")
    parser.add_argument("--group", default="light", help="the dependency group of pyproject.toml")
    asked = parser.parse_args()

    stamp = asked.environment / "redrive-stamp"
    wanted = digest(asked.environment, asked.extras, asked.group)
    if stamp.is_file() and stamp.read_text() == wanted:
        return 0

    started = time.monotonic()
    python = asked.environment / "bin" / "python"
    print(f"Setting up {asked.environment} with Python {sys.version.split()[0]} (once; some minutes) ...", flush=True)
    stamp.unlink(missing_ok=True)
    # Kept where it can be: other shells may be at work in it, and an upgrade in place is quicker.
    same = python.exists() and subprocess.run([python, "-c", "import sys; print(sys.version)"], capture_output=True, text=True).stdout
    venv.create(asked.environment, with_pip=True, symlinks=True, clear=same != sys.version + "\n")
    # pip is pinned too (an old one knows no dependency groups), and the build back end comes from the pins, not from isolation.
    try:
        pip(python, "pip", "hatchling", "editables")
        project = f".[{asked.extras}]" if asked.extras else "."
        pip(python, "--no-build-isolation", "--group", asked.group, "--editable", project)
    except subprocess.CalledProcessError as failed:
        print(f"Set-up of {asked.environment} failed: pip ended with {failed.returncode}", file=sys.stderr)
        return 1
    stamp.write_text(wanted)
    print(f"{asked.environment} is ready after {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
