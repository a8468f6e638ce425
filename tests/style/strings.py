"""Extract the string literals of a Python file that a user may read: messages, findings, option texts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MIN_WORDS = 3
"""A literal with fewer words is a name, a format or a fragment."""

_WORDS = re.compile(r"[A-Za-z][A-Za-z'’-]*")
_CODE = re.compile(
    r"^\s*(?:SELECT|INSERT|UPDATE|DELETE|CREATE|DROP|ALTER|WITH|PRAGMA|BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE"
    r"|SET|LISTEN|NOTIFY|UNLISTEN|ANALYZE|VACUUM|EXPLAIN|LOCK|TRUNCATE|ATTACH|DETACH|COPY|CASE|EXISTS|NOT EXISTS"
    r"|FROM|WHERE|AND|OR|ORDER BY|GROUP BY|LIMIT|JOIN|LEFT JOIN|UNION|VALUES|ON CONFLICT|RETURNING|DO|IF)\b"
    r"|\b(?:IS NULL|IS NOT NULL|WHERE|SELECT|NULLS (?:FIRST|LAST)|PRIMARY KEY|ORDER BY|ON CONFLICT|FOR UPDATE)\b"
    r"|\(\?[:P=!<]|\\[sdwb]|</|/>|^<|^(?:from|import) \w+"
)


class Literal(NamedTuple):
    """A string literal and the line on which it starts."""

    line: int
    text: str


def literals(source: str) -> list[Literal]:
    """Return the literals of `source` that read as prose; a formatted value reads `x`."""
    tree = ast.parse(source)
    found = [Literal(node.lineno, text) for node, text in _walk(tree)]
    return [each for each in found if _is_prose(each.text)]


def literals_of(path: Path) -> list[Literal]:
    """Return the prose literals of one file."""
    return literals(path.read_text(encoding="utf-8"))


def _walk(tree: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue  # a docstring
        if isinstance(node, ast.keyword) and node.arg == "comment":
            continue  # of a column: stored by a migration, which does not change
        if isinstance(node, ast.JoinedStr):
            yield node, "".join(_part(part) for part in node.values)
            waiting += [part for part in node.values if isinstance(part, ast.FormattedValue)]
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                yield node, node.value
        elif isinstance(node, ast.FormattedValue):
            waiting.append(node.value)
        else:
            waiting += reversed(list(ast.iter_child_nodes(node)))


def _part(part: ast.expr) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    return "x"


def _is_prose(text: str) -> bool:
    return len(_WORDS.findall(text)) >= MIN_WORDS and " " in text.strip() and not _CODE.search(text)
