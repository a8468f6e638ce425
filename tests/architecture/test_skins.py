"""CLI and console act only through `ops`, and hold no ledger."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.architecture.imports import SRC, modules, unit

MODULES = {module: path for module, path in modules().items() if unit(module) in ("cli", "console")}
BEHIND = frozenset(("ledger_of", "open_target_ledger", "open_ledger"))
"""Functions that return a ledger, for `ops` only."""
PAST = frozenset(("connections", "reading", "settle", "claim", "submit_many"))
"""Attributes of a ledger that an operator does not have."""
ALLOWED = {
    ("redrive.cli.commands.partitions.plan", "ledger"): "of a plan that was kept: the address, as text",
    ("redrive.console.security.oidc", "claim"): "of an identity token",
}


def bypasses(source: str) -> Iterator[tuple[str, int]]:
    """Yield (name, line) of uses that bypass `ops`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr in (*PAST, "ledger"):
            yield node.attr, node.lineno
        elif isinstance(node, ast.ImportFrom):
            yield from ((alias.name, node.lineno) for alias in node.names if alias.name in BEHIND)


@pytest.mark.req("O-3", "O-4")
def test_cli_and_console_use_only_the_operator() -> None:
    wrong = [
        f"{path.relative_to(SRC.parent)}:{line}: {name} is not for {unit(module)}: let `ops` do it"
        for module, path in MODULES.items()
        for name, line in bypasses(path.read_text(encoding="utf-8"))
        if (module, name) not in ALLOWED
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("source", ["ops.ledger.now()", "view.app.ledger", "from ..ops.source import ledger_of", "x.reading()"])
def test_imports_past_the_operator_are_detected(source: str) -> None:
    assert list(bypasses(source))
