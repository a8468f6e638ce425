"""The imports of src/, read from the source, including those under TYPE_CHECKING and inside functions."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path

SRC = Path(__file__).parents[2] / "src"


def modules(src: Path = SRC) -> dict[str, Path]:
    """Every module by its dotted name."""
    found = {}
    for path in sorted(src.rglob("*.py")):
        parts = path.relative_to(src).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(module: str, known: Mapping[str, Path]) -> Iterator[tuple[str, int]]:
    """Yield (imported name, line): the dotted name of a Redrive module, or of a third-party one as written."""
    path = known[module]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    yield from imported(ast.walk(tree), module, path.name == "__init__.py", known)


def imported(nodes: Iterable[ast.AST], module: str, is_package: bool, known: Container[str]) -> Iterator[tuple[str, int]]:
    """Yield the imports among the nodes of a module, as `imports` does."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            source = _absolute(module, is_package, node)
            for alias in node.names:
                # `from .core import policy` imports the module policy; `from .core.policy import x` imports policy too.
                name = f"{source}.{alias.name}"
                yield (name if name in known else source), node.lineno


def _absolute(module: str, is_package: bool, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    package = parts if is_package else parts[:-1]
    kept = package[: len(package) - (node.level - 1)]
    return ".".join([*kept, node.module] if node.module else kept)


def ours(name: str) -> bool:
    return name == "redrive" or name.startswith("redrive.")


def unit(name: str) -> str:
    """The part of the layout that a module belongs to: `redrive.core.policy` is of `core`. The root has the name ''."""
    return name.split(".")[1] if "." in name else ""
