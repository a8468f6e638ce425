"""Uses of underscore names of other objects, read from the source."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

OF_TUPLES = frozenset(("_replace", "_make", "_asdict", "_fields", "_field_defaults"))
"""Public methods of every NamedTuple, according to its documentation."""
OWN = frozenset(("self", "cls", "mcs"))


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in OF_TUPLES


def defined_names(tree: ast.AST) -> set[str]:
    """Return the underscore names that a file defines, in its classes and at its top."""
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


def foreign_private_names(source: str, nouns: Collection[str] = ()) -> Iterator[tuple[str, int]]:
    """Yield (name, line) of underscore names of another object or module that this file does not define.

    nouns: the names of other files. An object named like a file belongs to that file (`ledger._write`).
    """
    tree = ast.parse(source)
    own = defined_names(tree)
    foreign = {alias.asname or alias.name.partition(".")[0] for alias in _foreign(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and private(node.attr) and not _own(node):
            if node.attr in own and _name_of(node.value) not in nouns:
                continue
            if not (isinstance(node.value, ast.Name) and node.value.id in foreign):
                yield node.attr, node.lineno
        elif isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("redrive")):
            yield from ((alias.name, node.lineno) for alias in node.names if private(alias.name))


def _own(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in OWN


def _name_of(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr.lstrip("_") if isinstance(node, ast.Attribute) else ""


def _foreign(tree: ast.AST) -> Iterator[ast.alias]:
    """Yield the imports of libraries, such as `os`, whose underscore names are not checked (`os._exit`)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias for alias in node.names if not alias.name.startswith("redrive"))
