"""Who reaches for names that begin with an underscore, in an object that is not its own. Read from the source."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

OF_TUPLES = frozenset(("_replace", "_make", "_asdict", "_fields", "_field_defaults"))
"""Of every NamedTuple, public by their documentation."""
OWN = frozenset(("self", "cls", "mcs"))


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in OF_TUPLES


def defined(tree: ast.AST) -> set[str]:
    """The underscore names that a file makes itself: of its classes, and its own."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _own(node):
            names.add(node.attr)
        elif isinstance(node, ast.Assign) and any(isinstance(one, ast.Name) and one.id == "__slots__" for one in node.targets):
            names |= {str(each.value) for each in ast.walk(node.value) if isinstance(each, ast.Constant)}
    return {name for name in names if private(name)}


def reached(source: str, nouns: Collection[str] = ()) -> Iterator[tuple[str, int]]:
    """(name, line): taken from another's object or module, where this file does not make such a name itself.

    nouns: of the other files. What is called by the noun of a file is that file's (`ledger._write`), whatever is made here.
    """
    tree = ast.parse(source)
    own = defined(tree)
    foreign = {alias.asname or alias.name.partition(".")[0] for alias in _foreign(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and private(node.attr) and not _own(node):
            if node.attr in own and _called(node.value) not in nouns:
                continue
            if not (isinstance(node.value, ast.Name) and node.value.id in foreign):
                yield node.attr, node.lineno
        elif isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("redrive")):
            yield from ((alias.name, node.lineno) for alias in node.names if private(alias.name))


def _own(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in OWN


def _called(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr.lstrip("_") if isinstance(node, ast.Attribute) else ""


def _foreign(tree: ast.AST) -> Iterator[ast.alias]:
    """`import os`: what another's library calls its names is its own affair (`os._exit`)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias for alias in node.names if not alias.name.startswith("redrive"))
