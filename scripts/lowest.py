"""Run the tests with the lowest version of each library that an extra admits: `make lowest`.

    python scripts/lowest.py           # every test of an adapter, for half an hour
    python scripts/lowest.py --quick   # import every module, and run the unit tests of adapters

uv resolves the lowest versions and installs them into .venv-lowest. A failure means that a lower bound in pyproject.toml
promises too much: raise it, or support the version. Libraries that Redrive does not name are at their newest versions.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv-lowest"
PYTHON = ENVIRONMENT / "bin" / "python"

ADAPTERS = ("grpc", "http", "idempotency", "journal", "messages", "native", "storage", "temporal")
QUICK_TESTS = ("tests/unit/ledger/db", *(f"tests/unit/{part}" for part in ADAPTERS))
TESTS = (
    "tests/unit",
    "tests/migration",
    *(f"tests/conformance/{part}" for part in ("batch", "commands", "idempotency", "ledger", "messages", "storage")),
    *(
        f"tests/acceptance/{part}"
        for part in ("classify", "grpc", "http", "idempotency", "messages", "native", "storage", "temporal")
    ),
    *(f"tests/acceptance/partitions/test_{part}.py" for part in ("dask", "frames")),
    "tests/acceptance/mcp",
)
DESELECTED = (
    # Alembic 1.14 reports defaults of SQLite that are equal.
    "tests/migration/test_migrations.py::test_the_migrated_schema_equals_the_tables_in_code",
    # The test reads literal values from a compiled statement, which SQLAlchemy 2.0 does not write.
    "tests/conformance/ledger/test_activity.py::test_a_chart_reads_its_own_slots_only",
    # With psycopg before 3.3, a refused connection counts as one that may have sent something.
    "tests/acceptance/classify/test_databases.py::test_an_unreachable_postgres_is_transient",
    # The test is about redis-py 6.
    "tests/acceptance/classify/test_spent.py::test_automatic_retries_of_redis_6_are_detected[2]",
    # azure-storage-blob before 12.29 does not close the socket of a download that was reset.
    "tests/acceptance/classify/test_spent.py::test_retries_of_azure_storage_are_detected[reset-0]",
    "tests/acceptance/classify/test_spent.py::test_retries_of_azure_storage_are_detected[reset-2]",
    # The mock cluster of confluent-kafka before 2.15 cannot delete messages.
    "tests/conformance/messages/test_kafka_topic.py::test_messages_deleted_before_they_were_read_become_a_dead_letter",
    "tests/conformance/messages/test_drills.py::test_reading_continues_after_a_consumer_or_a_stream_is_deleted[sqlite-kafka-stream]",
)
# Old versions of libraries use what newer versions of their own requirements deprecate, and google-api-core warns of Python 3.11.
WARNINGS = tuple(
    part for name in ("DeprecationWarning", "PendingDeprecationWarning", "FutureWarning") for part in ("-W", f"ignore::{name}")
)
IMPORT_ALL = """
import importlib, pkgutil, redrive, sys
excluded = ["redrive.ledger.db.migrations"]
if sys.version_info < (3, 12):
    excluded.append("redrive.django.")  # needs Django 6, and so Python 3.12
for module in pkgutil.walk_packages(redrive.__path__, "redrive."):
    if not module.name.startswith(tuple(excluded)) and not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""


def uv(*arguments: str) -> str:
    """Run uv, and return its output."""
    return subprocess.run(
        [sys.executable, "-m", "uv", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def named_libraries() -> set[str]:
    """Return the names of the libraries in the extras."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    names = {re.match(r"[\w.-]+", text)[0] for requirements in extras.values() for text in requirements}  # type: ignore[index]
    return {normalize(name) for name in names} - {"redrive"} | {"psycopg-binary"}  # installed by psycopg[binary]


def lowest_versions() -> list[str]:
    """Return a pin of the lowest admitted version for each library in the extras."""
    options = "--all-extras --resolution lowest-direct --python-version 3.11 --no-header --no-annotate --quiet".split()
    names = named_libraries()
    resolved = uv("pip", "compile", *options, "pyproject.toml").splitlines()
    return [line for line in resolved if normalize(line.partition("==")[0]) in names]


def create_environment() -> None:
    """Create .venv-lowest, unless it is up to date."""
    stamp = ENVIRONMENT / "redrive-stamp"
    state = hashlib.sha256((ROOT / "pyproject.toml").read_bytes() + sys.version.encode()).hexdigest()
    if stamp.is_file() and stamp.read_text() == state:
        return
    uv("venv", "--quiet", "--clear", "--python", sys.executable, str(ENVIRONMENT))
    pins = ENVIRONMENT / "lowest.txt"
    pins.write_text("\n".join(lowest_versions()) + "\n")
    uv(
        "pip",
        "install",
        "--quiet",
        "--python",
        str(PYTHON),
        "--constraint",
        str(pins),
        "--group",
        "lowest",
        "--editable",
        ".[all]",
    )
    stamp.write_text(state)


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the tests with the lowest versions of libraries.")
    parser.add_argument("--quick", action="store_true", help="import all modules and run the unit tests of adapters only")
    parser.add_argument("--only-environment", action="store_true", help="create .venv-lowest only")
    options = parser.parse_args()
    create_environment()
    if options.only_environment:
        return 0
    print((ENVIRONMENT / "lowest.txt").read_text(), flush=True)
    imported = subprocess.run([PYTHON, "-c", IMPORT_ALL], cwd=ROOT, check=False)
    deselected = [part for name in DESELECTED for part in ("--deselect", name)]
    tests = QUICK_TESTS if options.quick else TESTS
    command: list[str | Path] = [PYTHON, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", *WARNINGS, *deselected, *tests]
    tested = subprocess.run(command, cwd=ROOT, check=False)
    return imported.returncode or tested.returncode


if __name__ == "__main__":
    sys.exit(main())
