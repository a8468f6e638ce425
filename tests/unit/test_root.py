"""The root package: every public name exists, and is loaded at first use."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import redrive


def test_every_public_name_is_its_own_object() -> None:
    for name in redrive.__all__:
        found = getattr(redrive, name)
        assert found is getattr(redrive, name)
        if isinstance(found, type) or callable(found):
            assert found.__name__ == name
            assert found.__module__.startswith("redrive.")


def test_dir_lists_the_public_names() -> None:
    assert set(dir(redrive)) == set(redrive.__all__)
    assert dir(redrive) == sorted(dir(redrive))


@pytest.mark.req("R-8")
def test_public_names_can_be_imported() -> None:
    from redrive import Budget, RetryPolicy, retry  # noqa: F401

    assert RetryPolicy is importlib.import_module("redrive.core.policy").RetryPolicy
    assert callable(retry)


@pytest.mark.req("C-11")
def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(AttributeError, match="module 'redrive' has no attribute 'retrry'"):
        _ = redrive.retrry  # type: ignore[attr-defined]
    with pytest.raises(ImportError, match="cannot import name 'retrry'"):
        from redrive import retrry  # type: ignore[attr-defined]  # noqa: F401
    assert not hasattr(redrive, "__wrapped__")


def test_a_star_import_brings_the_public_names() -> None:
    names: dict[str, object] = {}
    exec("from redrive import *", names)
    assert set(redrive.__all__) <= set(names)


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import redrive", ("typing", "asyncio", "logging", "inspect", "redrive.engine")),
        ("from redrive import RetryPolicy; RetryPolicy()", ("asyncio", "logging", "redrive.engine")),
        ("from redrive import retry; retry(lambda: 1)()", ("asyncio", "logging", "random", "http", "threading")),
        ("import redrive.errors", ("asyncio", "logging")),
    ],
)
def test_importing_a_name_loads_only_what_it_needs(code: str, absent: tuple[str, ...]) -> None:
    check = f"import sys; before = set(sys.modules); {code}; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-I", "-c", check], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not [name for name in absent if name in loaded]


def test_importing_starts_no_thread() -> None:
    code = (
        "import threading, sys; before = threading.active_count(); from redrive import *; import redrive;"
        "assert threading.active_count() == before; print('ok')"
    )
    done = subprocess.run([sys.executable, "-I", "-W", "error", "-c", code], capture_output=True, text=True)
    assert done.stdout == "ok\n", done.stderr


def test_names_of_the_testing_package_are_loaded_lazily() -> None:
    from redrive import testing

    assert dir(testing) == sorted(testing.__all__)
    for name in testing.__all__:
        assert getattr(testing, name).__name__ == name
    with pytest.raises(AttributeError, match="module 'redrive.testing' has no attribute 'mock'"):
        _ = testing.mock  # type: ignore[attr-defined]
