"""Create a virtual environment with the pinned versions, unless it is up to date.

    python scripts/environment.py .venv --extras all --group dev
    python scripts/environment.py .venv-bench --requirements benchmarks/requirements.txt
    python scripts/environment.py .venv-demo --extras cli,console,ledger

It uses only the standard library, because it runs before packages are installed. The stamp in the environment is a digest of
all inputs. The path of the environment is one of them, because an environment cannot be moved.

Third-party packages are installed by their hashes (hashes.txt). Then the project is installed without its dependencies.
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


def digest(environment: Path, extras: str, requested: tuple[str, ...]) -> str:
    state = hashlib.sha256()
    for part in (sys.version, str(environment.absolute()), extras, *requested):
        state.update(part.encode() + b"\0")
    for name in ("pyproject.toml", "constraints.txt", "hashes.txt", *requested):
        if (ROOT / name).is_file():
            state.update((ROOT / name).read_bytes() + b"\0")
    return state.hexdigest()


def pip(python: Path, *arguments: str) -> None:
    # -qq, because pip warns about every package that an extra index does not have.
    command = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check", *arguments]
    clean = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PYTHONHOME"}}
    subprocess.run(command, cwd=ROOT, env=clean, check=True)


def read_hashes() -> dict[str, str]:
    """Return the entries of hashes.txt by package name."""
    entries: dict[str, str] = {}
    for entry in re.split(r"\n(?=[^\s#])", (ROOT / "hashes.txt").read_text()):
        name = re.match(r"[\w.-]+", entry)
        if name is not None:
            entries[normalize(name[0])] = f"{entries.get(normalize(name[0]), '')}{entry.rstrip()}\n"
    return entries


def normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def resolve(python: Path, *arguments: str) -> list[str]:
    """Return the names of all packages that pip would install for these arguments."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        pip(python, "--dry-run", "--ignore-installed", "--report", str(report), *PINS, *arguments)
        packages = json.loads(report.read_text())["install"]
    names = {normalize(each["metadata"]["name"]) for each in packages}
    return sorted(names - {"redrive"})


def install_by_hash(python: Path, names: Iterable[str]) -> None:
    """Install packages, and check their files against the known hashes."""
    entries = read_hashes()
    missing = sorted(set(names) - entries.keys())
    if missing:
        raise SystemExit(f"hashes.txt: no hash for {', '.join(missing)}; run make constraints")
    with tempfile.TemporaryDirectory() as folder:
        requirements = Path(folder) / "requirements.txt"
        requirements.write_text("".join(entries[name] for name in names))
        pip(python, "--require-hashes", "--no-deps", "--requirement", str(requirements))


def interpreter_version(python: Path) -> str | None:
    try:
        command = [str(python), "-c", "import sys; print(sys.version)"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.rstrip("\n")
    except (OSError, subprocess.CalledProcessError):
        return None


def main() -> int:
    parser = argparse.ArgumentParser(description="Create or update a virtual environment.")
    parser.add_argument("environment", type=Path)
    parser.add_argument("--extras", default="", help="extras of redrive (comma-separated)")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--group", help="a dependency group of pyproject.toml, at the versions of constraints.txt")
    source.add_argument("--requirements", help="a requirements file that pins its own versions")
    options = parser.parse_args()

    requested = (
        ("--requirement", options.requirements)
        if options.requirements
        else (*(("--group", options.group) if options.group else ()), *PINS)
    )
    stamp = options.environment / "redrive-stamp"
    current = digest(options.environment, options.extras, requested)
    if stamp.is_file() and stamp.read_text() == current:
        return 0

    started = time.monotonic()
    print(f"Setting up {options.environment} with Python {sys.version.split()[0]} (takes a minute or two)", flush=True)
    stamp.unlink(missing_ok=True)
    python = options.environment / "bin" / "python"
    # Keep the environment if possible: other shells may use it, and an update in place is faster.
    venv.create(options.environment, with_pip=True, symlinks=True, clear=interpreter_version(python) != sys.version)
    project = f".[{options.extras}]" if options.extras else "."
    try:
        # pip is pinned too, because old versions do not support groups. The build backend is pinned as well.
        install_by_hash(python, resolve(python, "pip", "hatchling", "editables"))
        if options.requirements:
            pip(python, "--no-build-isolation", *requested, "--editable", project)
        else:
            everything = options.extras == "all" and options.group == "dev"
            group = ("--group", options.group) if options.group else ()
            build = ("--no-build-isolation", *group, "--editable", project)
            install_by_hash(python, read_hashes() if everything else resolve(python, *build))
            pip(python, "--no-build-isolation", "--no-deps", "--editable", project)
    except subprocess.CalledProcessError as failed:
        print(f"Setting up {options.environment} failed: pip exited with {failed.returncode}", file=sys.stderr)
        return 1
    stamp.write_text(current)
    print(f"{options.environment} is ready after {time.monotonic() - started:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
