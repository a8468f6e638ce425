"""Runs suites one after the other, all of them even when one fails, and ends with a table of results and times.

python scripts/suites.py check tests interpreters requirements docs
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
RECORDS = ROOT / ".cache" / "requirements"
# Enough for the unit and property tests, without the large ones (pyarrow, s3fs).
LIGHT = "cli,console,grpc,http,ledger,otel,postgres,prometheus,redis,structlog"

# Another interpreter has another syntax, another standard library, and treats threads, tasks and exceptions otherwise: that
# meets the decisions, the loops, the journal and the worker. What databases, servers, commands and pages do is shown once.
ELSEWHERE = (*(f"tests/unit/{part}" for part in ("core", "engine", "journal", "ledger", "worker")), "tests/property")

# Side by side, file by file: many of the tests wait for a server or another process. Each process reads all of them, first.
TOGETHER = ("-n", str(min(8, 2 * (os.cpu_count() or 1))), "--dist", "loadfile")

# These wait for nothing: more processes than processors would only read all tests once more each.
BESIDE = ("-n", str(os.cpu_count() or 1), "--dist", "loadfile")

MEMORY = Path("/dev/shm")
ROOM = 4 * 1024**3
"""Bytes: a run writes a quarter of it."""

Result = tuple[str, bool, float]

ENVIRONMENTS: dict[str, subprocess.Popen[bytes]] = {}
"""Of the other interpreters, being made."""


def run(name: str, *command: str, python: str = sys.executable) -> Result:
    """One step: its command, its time, and whether it went well."""
    print(f"\n=== {name}", flush=True)
    started = time.monotonic()
    with room() as folder:
        told = environment() | {"TMPDIR": folder}
        status = subprocess.run([python, "-m", *command], cwd=ROOT, env=told, check=False).returncode
    return name, status == 0, time.monotonic() - started


@contextmanager
def room() -> Iterator[str]:
    """A folder for all that is written, gone afterwards: in memory, if there is much; most tests would wait for a disk."""
    fits = MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM
    with tempfile.TemporaryDirectory(prefix="redrive-", dir=MEMORY if fits else None, ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # some programs run as another account
        yield folder


def environment() -> dict[str, str]:
    """The run is about this tree, whatever is on the caller's path; and compiles it once, not in each of a thousand processes."""
    left_out = {"PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE"}
    return {key: value for key, value in os.environ.items() if key not in left_out}


def check() -> list[Result]:
    return [
        run("ruff", "ruff", "check", "--quiet", "."),
        run("format", "ruff", "format", "--check", "--quiet", "."),
        run("mypy", "mypy"),
        run("architecture", "pytest", "-q", "tests/architecture"),
    ]


def quick() -> list[Result]:
    return [run("unit and property tests", "pytest", "-q", "tests/unit", "tests/property")]


def compiled() -> subprocess.Popen[bytes]:
    """Reads all tests once, beside the checkers: else each of the processes side by side would do it for itself."""
    command = [sys.executable, "-m", "pytest", "-qq", "--collect-only"]
    return subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def tests() -> list[Result]:
    shutil.rmtree(RECORDS, ignore_errors=True)  # what is printed at the end is of this run
    return [run(f"all tests, Python {HERE}", "pytest", "-q", *TOGETHER, "--durations=5", "--durations-min=2")]


def others() -> dict[str, str]:
    """Every other interpreter that the machine has, by its version."""
    found = subprocess.run(["sh", "scripts/find-python", "--all"], cwd=ROOT, check=True, capture_output=True, text=True)
    lines = sorted(found.stdout.splitlines(), key=lambda line: [int(part) for part in line.split()[0].split(".")])
    versions = {version: interpreter for version, _, interpreter in (line.partition(" ") for line in lines)}
    return {version: interpreter for version, interpreter in versions.items() if version != HERE}


def setting_up(version: str, interpreter: str) -> subprocess.Popen[bytes]:
    """Makes its environment, beside all else: most of that is waiting for the network."""
    arguments = ["scripts/environment.py", f".venv-{version}", "--group", "light", "--extras", LIGHT]
    return subprocess.Popen([interpreter, *arguments], cwd=ROOT)


def interpreters() -> list[Result]:
    """The heart of it on every other interpreter."""
    results: list[Result] = []
    for version, environment in ENVIRONMENTS.items():
        if environment.wait():
            results.append((f"set-up, Python {version}", False, 0.0))
            continue
        python = str(ROOT / f".venv-{version}" / "bin" / "python")
        name = f"core, engine, journal, ledger and worker, Python {version}"
        results.append(run(name, "pytest", "-q", *BESIDE, "-k", "not postgres", *ELSEWHERE, python=python))
    if not results:
        print(f"\nNOT RUN: THE TESTS ON OTHER INTERPRETERS. Python {HERE} is the only one here that is 3.11 or newer.")
    return results


def shown() -> list[Result]:
    """Only the tests that carry a requirement's number."""
    shutil.rmtree(RECORDS, ignore_errors=True)
    return [run("tests that show requirements", "pytest", "-q", "-m", "req")]


def requirements() -> list[Result]:
    return [run("requirements", "tests.requirements")]


def docs() -> list[Result]:
    os.environ["NO_MKDOCS_2_WARNING"] = "1"  # its news of the end of Material in 2027: see docs/dependencies.md
    return [run("docs", "mkdocs", "build", "--strict", "--quiet", "--site-dir", "site")]


SUITES: dict[str, Callable[[], list[Result]]] = {
    suite.__name__: suite for suite in (check, quick, tests, interpreters, shown, requirements, docs)
}


def main() -> int:
    started = time.monotonic()
    results: list[Result] = []
    reading = compiled() if "tests" in sys.argv else None
    if "interpreters" in sys.argv:
        ENVIRONMENTS.update((version, setting_up(version, interpreter)) for version, interpreter in others().items())
    try:
        for name in sys.argv[1:]:
            if name == "tests" and reading:
                reading.wait()
            results += SUITES[name]()
    finally:
        for each in (*ENVIRONMENTS.values(), *filter(None, [reading])):
            each.kill()  # nothing, where it has ended
            each.wait()
    print()
    for name, well, seconds in results:
        print(f"{'ok' if well else 'FAILED':<8}{seconds:7.1f} s  {name}")
    print(f"{'':<8}{time.monotonic() - started:7.1f} s  in all", flush=True)
    return 0 if all(well for _, well, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main())
