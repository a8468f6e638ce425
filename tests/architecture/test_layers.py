"""The code keeps to the layers that docs/architecture.md draws."""

from __future__ import annotations

import sys
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.architecture.imports import SRC, imports, modules, ours, unit
from tests.architecture.layers import ALLOWED_IN_CORE, EMPTY_NAMES, FOREIGN, IMPURE, PLACE, may_import

MODULES = modules()


def where(module: str, line: int) -> str:
    return f"{MODULES[module].relative_to(SRC.parent)}:{line}"


def test_every_package_has_a_layer() -> None:
    homeless = {unit(module) for module in MODULES} - {"", "testing", *PLACE}
    assert not homeless, f"not in the layers (tests/architecture/layers.py, docs/architecture.md): {sorted(homeless)}"


def test_nothing_imports_upward_or_sideways() -> None:
    wrong = [
        f"{where(module, line)}: {unit(module)} may not import {name}"
        for module in MODULES
        for name, line in imports(module, MODULES)
        if ours(name) and not may_import(unit(module), unit(name))
    ]
    assert not wrong, "\n".join(wrong)


def test_no_cycles() -> None:
    graph = {module: {name for name, _ in imports(module, MODULES) if ours(name)} - {module} for module in MODULES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as cycle:
        pytest.fail(" imports ".join(reversed(cycle.args[1])), pytrace=False)


def test_third_party_packages_are_imported_only_by_their_extra() -> None:
    wrong = []
    for module in MODULES:
        part = module.removeprefix("redrive").removeprefix(".")
        allowed = FOREIGN.get(part, FOREIGN.get(unit(module), frozenset()))
        for name, line in imports(module, MODULES):
            package = name.partition(".")[0]
            if not ours(name) and package not in sys.stdlib_module_names and package not in allowed:
                wrong.append(f"{where(module, line)}: {package} is not for {part or 'the root'}")
    assert not wrong, "\n".join(wrong)


def test_core_is_pure() -> None:
    wrong = [
        f"{where(module, line)}: core may not use {name}"
        for module in MODULES
        if unit(module) == "core"
        for name, line in imports(module, MODULES)
        if (package := name.partition(".")[0]) in IMPURE and (module, package) not in ALLOWED_IN_CORE
    ]
    assert not wrong, "\n".join(wrong)


def test_no_exception_outlives_its_use() -> None:
    used = {
        (module, name.partition(".")[0]) for module in MODULES if unit(module) == "core" for name, _ in imports(module, MODULES)
    }
    left = {pair for pair in ALLOWED_IN_CORE if pair[0] in MODULES} - used
    assert not left, f"take these out of ALLOWED_IN_CORE: {sorted(left)}"


def test_a_file_is_one_concept_of_at_most_600_lines() -> None:
    assert MODULES
    empty = [str(path.relative_to(SRC)) for path in MODULES.values() if path.stem in EMPTY_NAMES]
    assert not empty, "name these by what they are about"
    lines = {str(path.relative_to(SRC)): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES.values()}
    assert not {path: many for path, many in lines.items() if many > 600}, "split these by concept"


def test_no_module_has_the_name_of_a_public_function() -> None:
    """`redrive/call.py` beside a lazy `from redrive import call` would give the module."""
    import redrive

    names = {name for name in getattr(redrive, "__all__", ()) if callable(getattr(redrive, name))}
    taken = {module for module in MODULES if module.count(".") == 1 and module.partition(".")[2] in names}
    assert not taken
