"""Underscore names are private to their file. Other files use public names."""

from __future__ import annotations

import pytest

from tests.architecture.imports import SRC, modules, unit
from tests.architecture.private import foreign_private_names

MODULES = modules()
ALLOWED = {
    ("redrive.core.lock", "_at_fork_reinit"): "of the standard library, which has no other way",
    ("redrive.storage.s3.client", "_retry_connection"): "of aiohttp, which has no public switch; a test counts requests",
    ("redrive.storage.s3.client", "_call_s3"): "of s3fs, whose async methods all begin so; the plain ones leave threads behind",
    ("redrive.celery.bridge", "_context"): "of Celery, whose signal of a time limit comes without the request",
    (
        "redrive.http.network",
        "_network_backend",
    ): "of httpcore, which takes one; httpx, which makes the pool, does not hand it on",
}


def nouns(module: str) -> set[str]:
    """Return the names of modules of other parts, unless the own part has a module of that name too."""
    others = {name.rpartition(".")[2] for name in MODULES if unit(name) != unit(module)}
    return others - {name.rpartition(".")[2] for name in MODULES if unit(name) == unit(module)}


def test_no_package_uses_private_names_of_another() -> None:
    wrong = [
        f"{MODULES[module].relative_to(SRC.parent)}:{line}: {name} is another file's: give it a public name there"
        for module, path in MODULES.items()
        for name, line in foreign_private_names(path.read_text(encoding="utf-8"), nouns(module))
        if (module, name) not in ALLOWED
    ]
    assert not wrong, "\n".join(wrong)


def test_no_exception_outlives_its_use() -> None:
    used = {
        (module, name) for module, path in MODULES.items() for name, _ in foreign_private_names(path.read_text(encoding="utf-8"))
    }
    assert not ALLOWED.keys() - used


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("ledger._write.use()", ["_write"]),
        ("self.ledger._write", ["_write"]),
        ("class A:\n  def f(self, ledger):\n    self._write = ledger._write", ["_write"]),
        ("class A:\n  def f(self, other):\n    self._n = 1\n    return other._n", []),
        ("from ..ledger.limits import _hidden", ["_hidden"]),
        ("from redrive.ledger import _hidden", ["_hidden"]),
        ("import os\nos._exit(1)", []),
        ("lease._replace(attempt=1)", []),
        ("self._own + cls._own", []),
        ("__slots__ = ('_a',)\ndef f(x): return x._a", []),
    ],
)
def test_uses_of_private_names_are_detected(source: str, found: list[str]) -> None:
    assert [name for name, _ in foreign_private_names(source, {"ledger"})] == found
