"""Commands in texts, parsed by the real command tree."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup

from redrive.cli.root import COMMANDS, app

ROOT = Path(__file__).parents[3]
NAMES = "|".join(COMMANDS)
TICKED = re.compile(rf"`(redrive (?:{NAMES})\b[^`\n]*)`")
WHOLE = re.compile(rf"^(?:→ | *)?(redrive (?:{NAMES})\b[^`\n]*)$", re.MULTILINE)
SHELL = {"|", ">", ">>", "<", "&&", "||", ";", "&", "2>&1"}
STANDS_FOR = {
    "KEY": "shop:ann:o-1:charge:v1",
    "DAY": "2026-01-31",
    "DATASET": "crm/orders",
    "PARTITION": "crm/acme/orders/2026-01-31",
}
"""Values for words in capitals; 1 for all others."""
HELP = ("Option", "Argument", "option", "argument", "flag", "LazyCommand", "CommandGroup")
"""Calls whose texts are help: a command in them is a mention, and not printed to be typed."""


class Printed(NamedTuple):
    """A command in a text."""

    place: str
    command: str


def problem(command: str, /) -> str | None:
    """Return why a command cannot be typed as printed, or None. Nothing is run."""
    words = words_of(command)
    tree: Any = typer.main.get_command(app)
    try:
        context = tree.make_context("redrive", words[1:])
        while isinstance(tree, TyperGroup):
            name, tree, rest = tree.resolve_command(context, [*context._protected_args, *context.args])
            context = tree.make_context(name, rest, parent=context)
    except typer.Exit:  # --help, --version
        return None
    except Exception as wrong:
        said = getattr(wrong, "message", None) or str(wrong) or type(wrong).__name__
        return None if "{}" in command and "No such command '1'" in said else said  # the name is inserted when it is printed
    return None


def unknown(command: str, /) -> str | None:
    """Return the command or option of a mention that does not exist, or None."""
    tree: Any = typer.main.get_command(app)
    for word in words_of(command)[1:]:
        if isinstance(tree, TyperGroup):
            if word.startswith("-"):
                continue
            tree = tree.get_command(None, word)  # type: ignore[arg-type]  # its own commands need no context
            if tree is None:
                return f"no such command: {word}"
        elif word.startswith("--") and word.partition("=")[0] not in _options(tree):
            return f"no such option: {word}"
    return None


def _options(command: Any) -> set[str]:
    return {"--help", *(name for param in command.params for name in param.opts)}


def words_of(command: str, /) -> list[str]:
    """Return the words before shell syntax. A word in capitals is a placeholder and becomes a value."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    words: list[str] = []
    for word in lexer:
        if word in SHELL:
            break
        if word != "..." or (words and words[-1].startswith("--")):  # a list continues, or the reader fills in a reason
            words.append(STANDS_FOR.get(word, "1") if re.fullmatch(r"[A-Z]{1,10}|\{\}", word) else word)
    return words


def in_text(place: str, text: str, /) -> Iterator[Printed]:
    """Find commands between backticks or alone on a line, with or without a prompt."""
    for pattern in (TICKED, WHOLE):
        yield from (Printed(place, found[1].rstrip("`.,; ")) for found in pattern.finditer(text))


def in_source() -> Iterator[Printed]:
    """Find commands in texts of the program, except for its docstrings and help."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        skipped = {id(inner) for node in ast.walk(tree) if _is_help(node) for inner in ast.walk(node)}
        for node in ast.walk(tree):
            if id(node) in skipped:
                continue
            if isinstance(node, ast.JoinedStr):
                skipped |= {id(inner) for inner in ast.walk(node)}
                yield from in_text(f"{path.relative_to(ROOT)}:{node.lineno}", _render(node))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield from in_text(f"{path.relative_to(ROOT)}:{node.lineno}", node.value)


def _is_help(node: ast.AST) -> bool:
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)  # a docstring
    called = node.func if isinstance(node, ast.Call) else None
    return getattr(called, "attr", getattr(called, "id", None)) in HELP


def _render(node: ast.JoinedStr) -> str:
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)


def in_templates() -> Iterator[Printed]:
    """Find commands in the console's pages: literal arguments of `parts.cli`."""
    for path in sorted((ROOT / "src").rglob("*.html")):
        for found in re.finditer(rf"""["'](redrive (?:{NAMES})\b[^"']*)["']\s*\)""", path.read_text(encoding="utf-8")):
            yield Printed(str(path.relative_to(ROOT)), found[1])


def in_pages() -> Iterator[tuple[Printed, bool]]:
    """Find commands in README and docs, and whether each is in a shell block."""
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        fence = ""
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            mark = re.match(r"\s*(```|~~~)\s*(\w*)", line)
            if mark:
                fence = "" if fence else mark[2] or "text"
                continue
            place = f"{path.relative_to(ROOT)}:{number}"
            if fence in ("console", "sh", "bash", "shell"):
                typed = re.match(rf"\s*\$ (?:\w+=\S+ )*(redrive (?:{NAMES})\b.*)", line)
                if typed and not typed[1].endswith("\\"):
                    yield Printed(place, typed[1]), True
            elif not fence:
                yield from ((Printed(place, found[1]), False) for found in TICKED.finditer(line))
