"""The figures of the house: what a machine can measure of the layout, the names and the prose of `src/redrive`.

`make house` prints every figure with its limit and its goal. `python -m tests.architecture.house --list FIGURE`
lists the places that a figure counts. `test_house.py` enforces the limits.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

from tests.architecture.imports import imported
from tests.style.prose import IDIOM, WORD, better, markdown

SRC = Path(__file__).parents[2] / "src"
REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "api"

MAX_CRUMB_LINES = 60
"""Size of a module that belongs in the file of its importer, if it has only one."""
MAX_PARAMETERS = 8
"""More than this become an options object."""

IRREGULAR = frozenset(
    """begun born bound broken brought built caught chosen dealt drawn driven fallen felt found frozen given gone
    grown heard held hidden hung kept known laid left lent lost made meant met paid risen said seen sent shown
    sold sought spent spoken stolen stood struck stuck swept taken taught thought thrown told torn understood
    undone withdrawn woken won worn written""".split()
)
"""Participles that do not end in `-ed`."""
NOT_PARTICIPLES = frozenset("bed bleed breed embed exceed feed indeed need proceed red seed shed speed succeed".split())

VAGUE = frozenset(
    """again another found given here how its made many mine one ones others said some such theirs them there
    these those told what why""".split()
)
"""Names of variables and parameters that do not say what the value is."""

_LOCAL_DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_DIRECTIVE = re.compile(r"#\s*(?:noqa|type:|fmt:|pragma|ruff|pyright|mypy)\b.*?(?=#|$)")


@dataclass(frozen=True, eq=False)
class Module:
    """One Python file: its dotted name, its path for messages, its text and its syntax tree."""

    name: str
    path: str
    source: str
    tree: ast.Module

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Return every node of the tree."""
        return list(ast.walk(self.tree))

    @property
    def is_package(self) -> bool:
        """Return whether this is an `__init__.py`."""
        return self.path.endswith("__init__.py")

    @property
    def folder(self) -> str:
        """Return the path of the folder."""
        return self.path.rpartition("/")[0]

    @property
    def lines(self) -> int:
        """Return the number of lines."""
        return len(self.source.splitlines())


class Place(NamedTuple):
    """A place that a figure counts."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


class Count(NamedTuple):
    """The value of a figure, with the places behind it."""

    value: float
    places: list[Place]


def module(name: str, source: str, *, path: str = "") -> Module:
    """Parse one module. The path follows from the name unless it is passed."""
    return Module(name, path or name.replace(".", "/") + ".py", source, ast.parse(source))


@cache
def read_modules(src: Path = SRC) -> tuple[Module, ...]:
    """Read every module of the package, except the migrations."""
    modules = []
    for file in sorted((src / "redrive").rglob("*.py")):
        parts = file.relative_to(src).with_suffix("").parts
        if "migrations" not in parts:
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            path = str(file.relative_to(src.parent))
            modules.append(module(name, file.read_text(encoding="utf-8"), path=path))
    return tuple(modules)


# --- Layout


def count_modules(modules: Iterable[Module]) -> Count:
    """Count the modules of each folder."""
    sizes = Counter(each.folder for each in modules)
    places = [Place(folder, 1, f"{size} modules") for folder, size in sizes.most_common()]
    return Count(sizes.total(), places)


def count_lines(modules: Iterable[Module]) -> Count:
    """Count the lines of all modules, longest module first."""
    places = [Place(each.path, 1, f"{each.lines} lines") for each in sorted(modules, key=lambda each: -each.lines)]
    return Count(sum(each.lines for each in modules), places)


def count_statements(modules: Iterable[Module]) -> Count:
    """Count statements without docstrings. Unlike lines, they do not depend on the width of a line."""
    sizes = [(sum(isinstance(node, ast.stmt) and not _is_text(node) for node in each.nodes), each) for each in modules]
    sizes.sort(key=lambda size: -size[0])
    places = [Place(each.path, 1, f"{count} statements") for count, each in sizes]
    return Count(sum(count for count, _ in sizes), places)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def count_longest(modules: Iterable[Module]) -> Count:
    """Count the lines of the longest module."""
    places = count_lines(modules).places
    return Count(max(each.lines for each in modules), places)


def count_largest_folder(modules: Iterable[Module]) -> Count:
    """Count the modules in the largest folder."""
    places = count_modules(modules).places
    return Count(max(Counter(each.folder for each in modules).values()), places)


def count_crumbs(modules: Iterable[Module]) -> Count:
    """Count small modules with a single importer in the same folder.

    An `__init__.py` does not count as an importer: it lists public names, or the pages of a site.
    """
    known = {each.name: each for each in modules}
    packages = {each.name for each in modules if each.is_package}
    importers = defaultdict(set)
    for each in modules:
        for name, _ in imported(each.nodes, each.name, each.is_package, known):
            importers[name].add(each.name)
    places = []
    for name, users in sorted(importers.items()):
        crumb, users = known.get(name), users - {name}
        if crumb is None or name in packages or crumb.lines > MAX_CRUMB_LINES or len(users) != 1:
            continue
        (user,) = users
        if known[user].folder == crumb.folder and user not in packages:
            places.append(Place(crumb.path, 1, f"{crumb.lines} lines, imported only by {user}"))
    return Count(len(places), places)


# --- Names


def count_shared_class_names(modules: Iterable[Module]) -> Count:
    """Count public class names that exist in more than one module."""
    homes = defaultdict(list)
    for each in modules:
        for node in each.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(Place(each.path, node.lineno, f"class {node.name}"))
    shared = {name: places for name, places in sorted(homes.items()) if len({place.path for place in places}) > 1}
    return Count(len(shared), [place for places in shared.values() for place in places])


def is_participle(name: str) -> bool:
    """Return whether a function name is a bare participle, such as `said` or `_checked`."""
    word = name.strip("_")
    if word in IRREGULAR:
        return True
    return bool(re.fullmatch(r"[a-z]+ed", word)) and word not in NOT_PARTICIPLES


def count_participles(modules: Iterable[Module]) -> Count:
    """Count functions and methods that are named by a bare participle."""
    places = [
        Place(each.path, node.lineno, f"def {node.name}")
        for each in modules
        for node in each.nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_participle(node.name)
    ]
    return Count(len(places), places)


def count_vague_names(modules: Iterable[Module]) -> Count:
    """Count variables and parameters with a vague name, once in each function."""
    places = [Place(each.path, line, name) for each in modules for name, line in _bindings(each.tree) if name in VAGUE]
    return Count(len(places), places)


def _bindings(scope: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield each name that a scope or an inner scope binds, once in each scope, with its first line."""
    own: dict[str, int] = {}
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.arg):
            own.setdefault(node.arg, node.lineno)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.setdefault(node.id, node.lineno)
        if isinstance(node, _LOCAL_DEFINITIONS | ast.ClassDef):
            yield from _bindings(node)
        else:
            waiting[:0] = ast.iter_child_nodes(node)
    yield from own.items()


# --- Code


def count_fmt_skips(modules: Iterable[Module]) -> Count:
    """Count `# fmt: skip` and `# fmt: off`."""
    places = [
        Place(each.path, number, line.strip()[:80])
        for each in modules
        for number, line in enumerate(each.source.splitlines(), 1)
        if re.search(r"#\s*fmt:\s*(?:skip|off)", line)
    ]
    return Count(len(places), places)


def count_local_imports(modules: Iterable[Module]) -> Count:
    """Count imports inside functions, except under TYPE_CHECKING."""
    places = [
        Place(each.path, node.lineno, ast.unparse(node)) for each in modules for node in _local_imports(each.tree, inside=False)
    ]
    return Count(len(places), places)


def _local_imports(node: ast.AST, *, inside: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            if inside:
                yield child
        elif not (isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING"):
            yield from _local_imports(child, inside=inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))


def count_wide_signatures(modules: Iterable[Module]) -> Count:
    """Count functions with too many parameters. Commands of the CLI and public signatures do not count.

    A signature is public if a package hands out its function or its class, or a class that inherits from it,
    or if the API reference documents it, such as that of `Worker`.
    """
    public = public_names(modules) | documented_names()
    places = []
    for each in modules:
        if each.name.startswith("redrive.cli"):
            continue
        for owner, node in _functions(each.tree):
            parameters = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            count = len([name for name in parameters if name not in ("self", "cls", "mcs")])
            is_private = node.name.startswith("_") and not node.name.startswith("__")
            if count > MAX_PARAMETERS and (is_private or (owner or node.name) not in public):
                name = f"{owner}.{node.name}" if owner else node.name
                places.append(Place(each.path, node.lineno, f"{name}: {count} parameters"))
    return Count(len(places), places)


def _functions(tree: ast.AST, owner: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield owner, child
        yield from _functions(child, child.name if isinstance(child, ast.ClassDef) else owner)


def public_names(modules: Iterable[Module]) -> set[str]:
    """Return the names that packages hand out, and the base classes of handed-out classes."""
    names = set()
    bases: dict[str, set[str]] = defaultdict(set)
    for each in modules:
        for node in each.nodes:
            if isinstance(node, ast.ImportFrom) and each.is_package:
                names |= {alias.asname or alias.name for alias in node.names}
            elif isinstance(node, ast.ClassDef):
                plain = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
                bases[node.name] |= {base.id for base in plain if isinstance(base, ast.Name)}
    waiting = list(names)
    while waiting:
        new = bases.get(waiting.pop(), set()) - names
        names |= new
        waiting += new
    return names


@cache
def documented_names(reference: Path = REFERENCE) -> frozenset[str]:
    """Return the names of the classes and functions that the API reference documents."""
    pages = (page.read_text(encoding="utf-8") for page in reference.glob("*.md"))
    return frozenset(re.findall(r"^::: [\w.]*\.(\w+)$", "\n".join(pages), re.MULTILINE))


def count_methods(modules: Iterable[Module]) -> Count:
    """Count the methods of the largest class."""
    sizes = []
    for each in modules:
        for node in each.nodes:
            if isinstance(node, ast.ClassDef):
                names = {inner.name for inner in node.body if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)}
                sizes.append((len(names), Place(each.path, node.lineno, f"class {node.name}: {len(names)} methods")))
    sizes.sort(key=lambda size: -size[0])
    return Count(sizes[0][0] if sizes else 0, [place for _, place in sizes[:20]])


# --- Prose


def count_docstring_idiom(modules: Iterable[Module]) -> Count:
    """Count idiom per 1,000 words of docstrings."""
    return _idiom((each.path, line, text) for each in modules for line, text in docstrings(each))


def count_comment_idiom(modules: Iterable[Module]) -> Count:
    """Count idiom per 1,000 words of comments."""
    return _idiom((each.path, line, text) for each in modules for line, text in comments(each.source))


def docstrings(document: Module) -> Iterator[tuple[int, str]]:
    """Yield each paragraph of the docstrings of a module, with the line of its docstring."""
    for node in document.nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for block in markdown(node.value.value):
                yield node.lineno, block


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield each comment with its line, without directives. Comments on consecutive lines are one text."""
    first, line, text = 0, 0, ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        words = _DIRECTIVE.sub("", token.string).strip("# ")
        if text and token.start[0] == line + 1 and token.line.lstrip().startswith("#"):
            text = f"{text} {words}"
        else:
            if text:
                yield first, text
            first, text = token.start[0], words
        line = token.start[0]
    if text:
        yield first, text


def _idiom(texts: Iterable[tuple[str, int, str]]) -> Count:
    words, places = 0, []
    for path, line, text in texts:
        words += len(WORD.findall(text))
        for hit in IDIOM.finditer(text):
            near = text[max(0, hit.start() - 40) : hit.end() + 40].strip()
            places.append(Place(path, line, f"{hit.group()!r} in {near!r}; use: {better(hit.group())}"))
    return Count(round(1000 * len(places) / max(words, 1), 1), places)


# --- The table


class Figure(NamedTuple):
    """A figure with its limit, which only goes down, and its goal."""

    title: str
    measure: Callable[[Iterable[Module]], Count]
    limit: float
    goal: float


FIGURES = {
    "modules": Figure("modules", count_modules, 642, 480),
    "lines": Figure("lines", count_lines, 124_260, 47_000),
    "statements": Figure("statements", count_statements, 60_400, 28_000),
    "longest": Figure("lines of the longest module", count_longest, 600, 600),
    "folder": Figure("modules in the largest folder", count_largest_folder, 20, 20),
    "crumbs": Figure("modules of at most 60 lines with one importer", count_crumbs, 0, 0),
    "classes": Figure("class names in more than one module", count_shared_class_names, 10, 10),
    "participles": Figure("functions named by a participle", count_participles, 60, 60),
    "vague": Figure("variables with a vague name", count_vague_names, 150, 150),
    "fmt": Figure("`# fmt: skip`", count_fmt_skips, 25, 25),
    "local": Figure("imports inside functions", count_local_imports, 90, 90),
    "parameters": Figure("internal functions of more than 8 parameters", count_wide_signatures, 0, 0),
    "methods": Figure("methods of the largest class", count_methods, 25, 25),
    "docstrings": Figure("idiom per 1,000 words of docstrings", count_docstring_idiom, 3, 3),
    "comments": Figure("idiom per 1,000 words of comments", count_comment_idiom, 3, 3),
}
"""Limits are the figures of the tree when they were set. Lower them with `make house TIGHTEN=1`; never raise them.

Lines and statements have room for fixes, and lines for the switch from 130 to 100 columns. Modules, lines and statements
were raised once, for the features of issue 19 (steps, signals, tenants, processes, pauses, cancellation, search, charts).
They were raised again where issue 20 added the engines.
"""
SIZES = frozenset(("lines", "statements"))
"""Figures whose limits are not lowered automatically."""


def report(modules: Iterable[Module]) -> str:
    """Return the table of all figures."""
    lines = [f"{'figure':<12} {'now':>7} {'limit':>7} {'goal':>7}"]
    hints = []
    for name, figure in FIGURES.items():
        value = figure.measure(modules).value
        mark = "  ABOVE ITS LIMIT" if value > figure.limit else ""
        numbers = " ".join(f"{number:>7,}" for number in (value, figure.limit, figure.goal))
        lines.append(f"{name:<12} {numbers}  {figure.title}{mark}")
        if max(value, figure.goal) < figure.limit and name not in SIZES:
            hints.append(name)
    if hints:
        lines.append(f"\nBelow their limits: {', '.join(hints)}. To lower the limits: make house TIGHTEN=1")
    lines.append("\nTo list the places of a figure: make house LIST=<figure>")
    return "\n".join(lines)


def tighten(source: str, values: dict[str, float]) -> str:
    """Return the text of this module with lower limits, where a value is below its limit."""
    for name, value in values.items():
        limit = max(value, FIGURES[name].goal)
        if limit < FIGURES[name].limit and name not in SIZES:
            number = f"{limit:_}"
            source = re.sub(rf'("{name}": Figure\(.*, )[\d_.]+(, [\d_.]+\),)', rf"\g<1>{number}\2", source)
    return source


def main(arguments: list[str]) -> None:
    """Print the table, or the places of one figure."""
    parser = argparse.ArgumentParser(prog="python -m tests.architecture.house", description=main.__doc__)
    parser.add_argument("--list", choices=FIGURES, metavar="FIGURE", help=f"one of {', '.join(FIGURES)}")
    parser.add_argument("--tighten", action="store_true", help="lower the limits to the figures of today")
    options = parser.parse_args(arguments)
    modules = read_modules()
    if options.list:
        count = FIGURES[options.list].measure(modules)
        print(*count.places, sep="\n")
        print(f"{FIGURES[options.list].title}: {count.value:,}")
        return
    if options.tighten:
        here = Path(__file__)
        values = {name: figure.measure(modules).value for name, figure in FIGURES.items()}
        here.write_text(tighten(here.read_text(encoding="utf-8"), values), encoding="utf-8")
        print("The limits are lowered. `git diff` shows which.")
        return
    print(report(modules))


if __name__ == "__main__":
    main(sys.argv[1:])
