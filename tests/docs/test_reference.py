"""The reference names everything that is public. Other names may change without notice (docs/reference/stability.md)."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest

import redrive
from redrive import errors
from redrive.core.job_reasons import AttemptReason, DeadReason
from tests.django_project import HAS_TASKS

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
PACKAGES = [
    "redrive", "redrive.backoff", "redrive.batch", "redrive.celery", "redrive.console", "redrive.flask",
    "redrive.grpc", "redrive.http", "redrive.journal", "redrive.ledger", "redrive.messages",
    "redrive.native", "redrive.ops", "redrive.partitions", "redrive.storage", "redrive.testing",
    *(["redrive.django"] if HAS_TASKS else []),
]  # fmt: skip


def names_on(page: str) -> set[str]:
    code = " ".join(re.findall(r"`([^`]+)`", (REFERENCE / page).read_text()))
    return set(re.findall(r"\w+", code))


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_in_the_reference(package: str) -> None:
    names = {name for name in import_module(package).__all__ if not name.startswith("__")}
    assert names - names_on("index.md") == set()


def test_every_exception_is_in_its_table() -> None:
    ours = {
        name for name, found in vars(errors).items()
        if inspect.isclass(found) and issubclass(found, Exception) and found.__module__ == errors.__name__
    }  # fmt: skip
    assert ours - names_on("errors.md") == {"Final"}  # the common base of four of them, which is not raised


def test_every_method_of_an_app_is_in_the_reference() -> None:
    # For workers and operators:
    inner = {"commands", "datasets", "kinds", "url"}
    assert {name for name in dir(redrive.App) if not name.startswith("_")} - inner - names_on("index.md") == set()


@pytest.mark.parametrize(
    ("heading", "reasons"), [("reason of a dead letter", get_args(DeadReason)), ("reason of an attempt", get_args(AttemptReason))]
)
def test_the_tables_of_reasons_have_every_reason_of_the_code(heading: str, reasons: tuple[str, ...]) -> None:
    table = (REFERENCE / "errors.md").read_text(encoding="utf-8").partition(f"| {heading} |")[2].partition("\n\n")[0]
    assert tuple(re.findall(r"(?m)^\| `(\w+)` \|", table)) == reasons
