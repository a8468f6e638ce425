"""The reader of imports and the import rules detect violations."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.architecture.imports import imports, modules
from tests.architecture.layers import may_import

INNER = """
from __future__ import annotations
import json, os.path
from typing import TYPE_CHECKING
from . import sibling
from .sibling import name
from ..errors import Stop
from redrive import http
if TYPE_CHECKING:
    from redrive.ops import Operator
def later():
    import redrive.cli.root
"""


def test_every_type_of_import_is_detected(tmp_path: Path) -> None:
    for name in ("redrive/core/inner", "redrive/core/sibling", "redrive/errors", "redrive/http/__init__"):
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(INNER if name.endswith("inner") else "")
    seen = [name for name, _ in imports("redrive.core.inner", modules(tmp_path))]
    assert sorted(seen) == [
        "__future__",
        "json",
        "os.path",
        "redrive.cli.root",
        "redrive.core.sibling",
        "redrive.core.sibling",
        "redrive.errors",
        "redrive.http",
        "redrive.ops",
        "typing",
    ]


@pytest.mark.parametrize(
    ("importer", "imported", "allowed"),
    [
        ("core", "errors", True),
        ("errors", "core", True),
        ("core", "journal", False),
        ("engine", "journal", True),
        ("http", "engine", True),
        ("http", "analysis", True),
        ("engine", "analysis", False),
        ("http", "grpc", False),
        ("http", "http", True),
        ("ledger", "native", False),
        ("partitions", "storage", True),
        ("app", "ops", False),
        ("cli", "ops", True),
        ("cli", "core", True),
        ("cli", "ledger", False),
        ("cli", "console", True),
        ("console", "cli", False),
        ("console", "app", False),
        ("demo", "app", True),
        ("demo", "", True),
        ("demo", "testing", True),
        ("engine", "", False),
        ("", "cli", True),
        ("testing", "app", True),
        ("testing", "ops", False),
        ("ops", "testing", False),
    ],
)
def test_import_rules_are_applied(importer: str, imported: str, allowed: bool) -> None:
    assert may_import(importer, imported) is allowed
