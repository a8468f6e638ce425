"""The figures of the house stay within their limits, and the measures count what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.architecture.house import (
    FIGURES,
    Count,
    Figure,
    Module,
    count_comment_idiom,
    count_crumbs,
    count_docstring_idiom,
    count_fmt_skips,
    count_largest_folder,
    count_lines,
    count_local_imports,
    count_longest,
    count_methods,
    count_modules,
    count_participles,
    count_shared_class_names,
    count_statements,
    count_vague_names,
    count_wide_signatures,
    documented_names,
    module,
    read_modules,
    report,
    tighten,
)


@pytest.mark.parametrize("name", FIGURES)
def test_no_figure_is_above_its_limit(name: str) -> None:
    figure = FIGURES[name]
    count = figure.measure(read_modules())
    if count.value > figure.limit:
        places = "\n".join(str(place) for place in count.places)
        summary = f"{figure.title}: {count.value:,}, limit {figure.limit:,}, goal {figure.goal:,}"
        compare = f"`git diff main -- src` and `make house LIST={name}` show what was added"
        pytest.fail(f"{places}\n{summary}; {compare}", pytrace=False)


def test_no_limit_is_below_its_goal() -> None:
    reached = [name for name, figure in FIGURES.items() if figure.limit < figure.goal]
    assert reached == [], "set the goal as the limit"


def single(source: str) -> list[Module]:
    return [module("redrive.core.policy", source)]


def texts(count: Count) -> list[str]:
    return [place.text for place in count.places]


def test_modules_and_lines_are_counted_by_folder() -> None:
    modules = [module("redrive.core.a", "x = 1\ny = 2\n"), module("redrive.core.b", "x = 1\n"), module("redrive.http.a", "")]
    assert count_modules(modules).value == 3
    assert texts(count_modules(modules)) == ["2 modules", "1 modules"]
    assert count_largest_folder(modules).value == 2
    assert count_lines(modules).value == 3
    assert count_longest(modules).value == 2


def test_statements_are_counted_without_docstrings() -> None:
    source = '"""Text."""\ndef f(\n    a,\n    b,\n):\n    """Text."""\n    if a:\n        return b\n'
    assert count_statements(single(source)).value == 3


def test_a_crumb_has_one_importer_in_its_own_folder() -> None:
    modules = [
        module("redrive.core", "from .public import X", path="redrive/core/__init__.py"),
        module("redrive.core.user", "from .crumb import a\nfrom .shared import b\nfrom .large import c"),
        module("redrive.core.crumb", "a = 1"),
        module("redrive.core.shared", "b = 1"),
        module("redrive.core.large", "c = 1\n" * 61),
        module("redrive.core.public", "X = 1"),
        module("redrive.http.client", "from ..core.shared import b\nfrom ..core.elsewhere import d"),
        module("redrive.core.elsewhere", "d = 1"),
    ]
    assert [place.path for place in count_crumbs(modules).places] == ["redrive/core/crumb.py"]


def test_a_class_name_counts_once_however_many_modules_have_it() -> None:
    modules = [module(f"redrive.{name}.a", "class Desk: ...\nclass _Own: ...") for name in ("ops", "cli", "partitions")]
    count = count_shared_class_names(modules)
    assert (count.value, len(count.places)) == (1, 3)


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("said", True),
        ("_checked", True),
        ("begun", True),
        ("check", False),
        ("feed", False),
        ("is_checked", False),
        ("read", False),
        ("_on_finished", False),
    ],
)
def test_a_function_is_not_a_bare_participle(name: str, counts: bool) -> None:
    assert count_participles(single(f"class A:\n  def {name}(self): ...")).value == counts


def test_a_vague_name_counts_once_in_each_function() -> None:
    source = """
def first(found):
    found = found + 1
    return [one for one in found]
def second(rows):
    for one in rows:
        (lambda many: many)(one)
def third(self):
    self.found = 1
"""
    assert sorted(texts(count_vague_names(single(source)))) == ["found", "many", "one", "one"]


def test_formatter_directives_are_counted() -> None:
    assert count_fmt_skips(single("x = 1  # fmt: skip\n# fmt: off\ny = 'fmt'\n")).value == 2


def test_imports_inside_functions_are_counted() -> None:
    source = """
import os
if TYPE_CHECKING:
    import typing
def load():
    import json
    if TYPE_CHECKING:
        import decimal
class A:
    import enum
    async def run(self):
        with self:
            from a import b
"""
    assert texts(count_local_imports(single(source))) == ["import json", "from a import b"]


def test_wide_signatures_count_unless_they_are_public() -> None:
    nine = "a, b, c, d, *, e, f, g, h, i"
    modules = [
        module("redrive.ops", "from .operator import Operator, begin", path="redrive/ops/__init__.py"),
        module(
            "redrive.ops.operator",
            f"class Part:\n  def plan(self, {nine}): ...\n"
            f"class Generic:\n  def show(self, {nine}): ...\n"
            f"class Operator(Part, Generic[int]):\n  def start(self, {nine}): ...\n  def _own(self, {nine}): ...\n"
            f"class Hidden:\n  def start(self, {nine}): ...\n"
            f"def begin({nine}): ...\ndef eight(self, a, b, c, d, e, f, g, h): ...\n",
        ),
        module("redrive.cli.commands.dead", f"def command({nine}): ..."),
    ]
    assert texts(count_wide_signatures(modules)) == ["Operator._own: 9 parameters", "Hidden.start: 9 parameters"]


def test_documented_signatures_are_public(tmp_path: Path) -> None:
    (tmp_path / "app.md").write_text("# App\n\n::: redrive.worker.worker.Worker\n    options:\n\n::: redrive.App\n")
    assert documented_names(tmp_path) == {"Worker", "App"}


def test_the_largest_class_counts_an_overloaded_method_once() -> None:
    source = "class A:\n  def a(self): ...\n  def a(self, b): ...\n  def c(self): ...\nclass B:\n  def a(self): ...\n"
    assert count_methods(single(source)).value == 2


def test_idiom_is_counted_in_docstrings_and_comments_apart() -> None:
    source = '"""Mend it at once."""\nx = 1  # noqa: E501\n# Nobody waits. The next\n# line shall follow.\n'
    assert [text.partition(" in ")[0] for text in texts(count_docstring_idiom(single(source)))] == ["'Mend'"]
    comments = count_comment_idiom(single(source))
    assert [text.partition(" in ")[0] for text in texts(comments)] == ["'Nobody'", "'shall'"]
    assert (comments.value, comments.places[0].line) == (285.7, 3)


def test_limits_are_lowered_and_never_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FIGURES, "vague", Figure("vague", count_vague_names, 9, 3))
    line = '    "vague": Figure("vague names", count_vague_names, 9, 3),'
    assert tighten(line, {"vague": 7}) == line.replace("9", "7")
    assert tighten(line, {"vague": 1}) == line.replace("9", "3")
    assert tighten(line, {"vague": 11}) == line


def test_the_report_names_figures_on_both_sides_of_their_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in set(FIGURES) - {"vague", "fmt"}:
        monkeypatch.delitem(FIGURES, name)
    monkeypatch.setitem(FIGURES, "vague", Figure("vague names", count_vague_names, 0, 0))
    monkeypatch.setitem(FIGURES, "fmt", Figure("directives", count_fmt_skips, 3, 0))
    text = report(single("def f(one): ..."))
    assert "vague names  ABOVE ITS LIMIT" in text
    assert "Below their limits: fmt." in text
