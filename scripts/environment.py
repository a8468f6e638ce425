"""Makes a virtual environment with the pinned versions, or leaves it alone when it already is what was asked for.

    python scripts/environment.py .venv --extras all --group dev
    python scripts/environment.py .venv-bench --requirements benchmarks/requirements.txt
    python scripts/environment.py .venv-demo --extras cli,console,ledger

Standard library only: it runs before anything is installed. The stamp in the environment is a digest of all that
decides its content; the folder's own place is part of it, since an environment doesn't survive a move.

Third-party packages are installed by their hashes (hashes.txt), each by itself; then the project, without its dependencies.
A requirements file pins its own versions and has no hashes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PINS = ("--constraint", "constraints.txt")


def digest(environment: Path, extras: str, wanted: tuple[str, ...]) -> str:
    seen = hashlib.sha256()
    for part in (sys.version, str(environment.absolute()), extras, *wanted):
        seen.update(part.encode() + b"\0")
    for name in ("pyproject.toml", "constraints.txt", "hashes.txt", *wanted):
        if (ROOT / name).is_file():
            seen.update((ROOT / name).read_bytes() + b"\0")
    return seen.hexdigest()


def pip(python: Path, *arguments: str) -> None:
    # Twice quiet: pip warns of every package that a machine's own extra index does not have.
    command = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check", *arguments]
    clean = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PYTHONHOME"}}
    subprocess.run(command, cwd=ROOT, env=clean, check=True)


def locked() -> dict[str, str]:
    """The lines of hashes.txt by name: each version with the hashes of its files."""
    found: dict[str, str] = {}
    for entry in re.split(r"\n(?=[^\s#])", (ROOT / "hashes.txt").read_text()):
        name = re.match(r"[\w.-]+", entry)
        if name is not None:
            found[normal(name[0])] = f"{found.get(normal(name[0]), '')}{entry.rstrip()}\n"
    return found


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def resolve(python: Path, *arguments: str) -> list[str]:
    """The names of all packages that these arguments of pip bring, at the pinned versions. Installs nothing."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        pip(python, "--dry-run", "--ignore-installed", "--report", str(report), *PINS, *arguments)
        brought = json.loads(report.read_text())["install"]
    names = {normal(each["metadata"]["name"]) for each in brought}
    return sorted(names - {"redrive"})


def pip_locked(python: Path, names: Iterable[str]) -> None:
    """Install these packages, each only if its file has one of the known hashes."""
    lines = locked()
    missing = sorted(set(names) - lines.keys())
    if missing:
        raise SystemExit(f"hashes.txt: no hash for {', '.join(missing)}; run make constraints")
    with tempfile.TemporaryDirectory() as folder:
        chosen = Path(folder) / "chosen.txt"
        chosen.write_text("".join(lines[name] for name in names))
        pip(python, "--require-hashes", "--no-deps", "--requirement", str(chosen))


def version_of(python: Path) -> str | None:
    try:
        command = [str(python), "-c", "import sys; print(sys.version)"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.rstrip("\n")
    except (OSError, subprocess.CalledProcessError):
        return None


def main() -> int:
    parser = argparse.ArgumentParser(description="Make or refresh a virtual environment.")
    parser.add_argument("environment", type=Path)
    parser.add_argument("--extras", default="", help="extras of redrive, with commas")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--group", help="a dependency group of pyproject.toml, at the versions of constraints.txt")
    what.add_argument("--requirements", help="a requirements file that pins its own versions")
    asked = parser.parse_args()

    wanted = (
        ("--requirement", asked.requirements)
        if asked.requirements
        else (*(("--group", asked.group) if asked.group else ()), *PINS)
    )
    stamp = asked.environment / "redrive-stamp"
    fresh = digest(asked.environment, asked.extras, wanted)
    if stamp.is_file() and stamp.read_text() == fresh:
        return 0

    started = time.monotonic()
    print(f"Setting up {asked.environment} with Python {sys.version.split()[0]}: once, a minute or two", flush=True)
    stamp.unlink(missing_ok=True)
    python = asked.environment / "bin" / "python"
    # Kept where it can be: other shells may be at work in it, and an upgrade in place is quicker.
    venv.create(asked.environment, with_pip=True, symlinks=True, clear=version_of(python) != sys.version)
    project = f".[{asked.extras}]" if asked.extras else "."
    try:
        # pip is pinned too (an old one knows no groups); the build back end comes from the pins, not from isolation.
        pip_locked(python, resolve(python, "pip", "hatchling", "editables"))
        if asked.requirements:
            pip(python, "--no-build-isolation", *wanted, "--editable", project)
        else:
            everything = asked.extras == "all" and asked.group == "dev"
            group = ("--group", asked.group) if asked.group else ()
            build = ("--no-build-isolation", *group, "--editable", project)
            pip_locked(python, locked() if everything else resolve(python, *build))
            pip(python, "--no-build-isolation", "--no-deps", "--editable", project)
    except subprocess.CalledProcessError as failed:
        print(f"Setting up {asked.environment} failed: pip ended with {failed.returncode}", file=sys.stderr)
        return 1
    stamp.write_text(fresh)
    print(f"{asked.environment} is ready after {time.monotonic() - started:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
