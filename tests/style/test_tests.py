"""The tests keep to the house style: their names, docstrings and comments, and the names of their helpers."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

from tests.architecture.house import (
    Count,
    Figure,
    Module,
    Place,
    count_comment_idiom,
    count_docstring_idiom,
    count_participles,
    module,
)
from tests.style.prose import WORD, measure

ROOT = Path(__file__).parents[2]


@cache
def read_tests() -> tuple[Module, ...]:
    """Read every Python file of the tests."""
    paths = [file.relative_to(ROOT) for file in sorted((ROOT / "tests").rglob("*.py"))]
    return tuple(
        module(".".join(path.with_suffix("").parts), (ROOT / path).read_text(encoding="utf-8"), path=path.as_posix())
        for path in paths
    )


def count_name_idiom(modules: Iterable[Module]) -> Count:
    """Count idiom per 1,000 words of the names of tests."""
    words, places = 0, []
    for each in modules:
        for node in each.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                name = node.name.removeprefix("test_").replace("_", " ")
                words += len(WORD.findall(name))
                places += [Place(each.path, node.lineno, hit) for hit in measure([name]).idiom]
    return Count(round(1000 * len(places) / max(words, 1), 1), places)


FIGURES = {
    "names": Figure("idiom per 1,000 words of test names", count_name_idiom, 0.5, 0),
    "docstrings": Figure("idiom per 1,000 words of docstrings", count_docstring_idiom, 1, 0),
    "comments": Figure("idiom per 1,000 words of comments", count_comment_idiom, 2, 0),
    "helpers": Figure("functions named by a participle", count_participles, 130, 60),
}
"""Limits are the figures when they were set, with room for a few hits of legitimate use. Lower them, never raise them."""


@pytest.mark.parametrize("name", FIGURES)
def test_no_figure_of_the_tests_is_above_its_limit(name: str) -> None:
    figure = FIGURES[name]
    count = figure.measure(read_tests())
    if count.value > figure.limit:
        places = "\n".join(str(place) for place in count.places)
        pytest.fail(f"{places}\n{figure.title}: {count.value:,}, limit {figure.limit:,}", pytrace=False)


def test_idiom_in_the_name_of_a_test_is_counted() -> None:
    source = "def test_nobody_is_told(): ...\nclass TestA:\n  async def test_retries_stop(self): ...\ndef nobody(): ...\n"
    count = count_name_idiom([module("tests.test_a", source)])
    assert count.value == 400.0
    assert [str(place) for place in count.places] == [
        "tests/test_a.py:1: nobody  (nobody is told)",
        "tests/test_a.py:1: is told  (nobody is told)",
    ]
