"""The API reference has every public name, and every parameter has a description."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from redrive import errors
from tests.django_project import HAS_TASKS
from tests.docs.test_reference import PACKAGES

PAGES = Path(__file__).parents[2] / "docs" / "reference" / "api"
ENTRY = re.compile(r"(?m)^::: (?P<path>[\w.]+)\n(?P<options>(?: {4}.*\n)*)")
SECTION = re.compile(r"(?m)^(?:Args|Attributes):\n(?P<lines>(?: {4}.*\n?|\n)*)")
ITEM = re.compile(r"(?m)^ {4}(?P<name>\w+)(?: \([^)]*\))?: ")
NOT_CONSTRUCTED = set(
    "Attempt CeleryBridge Claim Command Dataset File Injected Job Ledger Raw Reading Retry Ring Sandbox Sink Worker".split()
)
"""Redrive creates these. Their constructors are private."""
FIELDS_OF_REDRIVE = {"serial", "origin"}
"""Fields of `Outcome` that only Redrive reads."""


def entries() -> Iterator[tuple[str, list[str] | None]]:
    """Each documented path, and the members that its page lists (None: all)."""
    for page in sorted(PAGES.glob("*.md")):
        for entry in ENTRY.finditer(page.read_text(encoding="utf-8")):
            options = (yaml.safe_load(entry["options"]) or {}).get("options", {})
            members = options.get("members")
            yield entry["path"], [] if members is False else members


ENTRIES = {path: members for path, members in entries() if HAS_TASKS or not path.startswith("redrive.django.")}


def import_path(path: str) -> Any:
    package, _, name = path.rpartition(".")
    return getattr(import_module(package), name)


def described_names(*texts: str | None) -> set[str]:
    sections = [section["lines"] for text in texts if text for section in SECTION.finditer(inspect.cleandoc(text) + "\n")]
    return {item["name"] for lines in sections for item in ITEM.finditer(lines)}


def parameters(function: Any) -> set[str]:
    names = set(inspect.signature(function).parameters)
    return names - {"self", "cls", "_"} - FIELDS_OF_REDRIVE


def constructor(public: type) -> set[str]:
    if not issubclass(public, Exception):
        return {name for name in inspect.signature(public).parameters if not name.startswith("_")} - FIELDS_OF_REDRIVE
    # Redrive raises these with its own message. The base class describes inherited attributes.
    return parameters(public.__init__) - {"message"} if "__init__" in vars(public) else set()


def undescribed_names(path: str, members: list[str] | None) -> Iterator[str]:
    public = import_path(path)
    if not callable(public) or not hasattr(public, "__module__"):
        return  # a type alias
    if not inspect.isclass(public):
        if inspect.isfunction(public):
            yield from sorted(parameters(public) - described_names(public.__doc__))
        return
    name = path.rpartition(".")[2]
    is_protocol = getattr(public, "_is_protocol", False)
    if name not in NOT_CONSTRUCTED and not is_protocol and not path.startswith("redrive.testing.Items"):
        yield from sorted(constructor(public) - described_names(public.__doc__, public.__init__.__doc__))
    for member in [each for each in dir(public) if not each.startswith("_")] if members is None else members:
        function = inspect.getattr_static(public, member)
        function = getattr(function, "__func__", function)
        if inspect.isfunction(function):
            yield from (f"{member}: {each}" for each in sorted(parameters(function) - described_names(function.__doc__)))


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_in_the_api_reference(package: str) -> None:
    module = import_module(package)
    documented = {id(import_path(path)) for path in ENTRIES}
    names = {name for name in module.__all__ if not name.startswith("__") and not inspect.ismodule(getattr(module, name))}
    assert {name for name in names if id(getattr(module, name)) not in documented} == set()


def test_every_exception_is_in_the_api_reference() -> None:
    ours = {each for each in vars(errors).values() if inspect.isclass(each) and each.__module__ == errors.__name__}
    assert {each.__name__ for each in ours - {import_path(path) for path in ENTRIES if inspect.isclass(import_path(path))}} == {
        "Final"
    }


@pytest.mark.parametrize("path", ENTRIES)
def test_every_parameter_has_a_description(path: str) -> None:
    assert list(undescribed_names(path, ENTRIES[path])) == []


def summaries(path: str, members: list[str] | None) -> Iterator[tuple[str, str]]:
    """Each documented object of a path, with its docstring."""
    public = import_path(path)
    if inspect.isfunction(public):
        yield path, inspect.getdoc(public) or ""
    if inspect.isclass(public):
        yield path, inspect.getdoc(public) or ""
        for member in [each for each in dir(public) if not each.startswith("_")] if members is None else members:
            if inspect.isfunction(function := inspect.getattr_static(public, member)):
                yield f"{path}.{member}", inspect.getdoc(function) or ""


@pytest.mark.parametrize("path", ENTRIES)
def test_a_docstring_begins_with_a_summary_line(path: str) -> None:
    for name, text in summaries(path, ENTRIES[path]):
        first, _, rest = text.partition("\n")
        assert first.rstrip().endswith("."), f"{name}: the summary is one line that ends with a full stop: {first}"
        assert not rest.strip() or rest.startswith("\n"), f"{name}: an empty line follows the summary"
