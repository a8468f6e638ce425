"""Stores of an App: from a table, a configuration or a registry."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from redrive import App, storage
from redrive.storage import Registry, RegistryConfig


def test_stores_are_configured_by_name(tmp_path: Path) -> None:
    with App(stores={"raw": {"type": "local", "options": {"root": str(tmp_path)}, "retry": None}}) as app:
        app.stores.get_store("raw").write("file", b"x")
    assert (tmp_path / "file").read_bytes() == b"x"


def test_a_configuration_or_a_registry_is_accepted() -> None:
    config = {"backends": {"m": {"type": "memory"}}, "stores": {"raw": {"backend": "m"}}}
    assert App(stores=config).stores.get_store("raw").name == "raw"
    registry = Registry(RegistryConfig.from_dict(config))
    assert App(stores=registry).stores is registry


def test_an_unknown_store_is_named() -> None:
    with pytest.raises(KeyError, match="unknown store 'raw'; known: none"):
        App().stores.get_store("raw")


def test_an_invalid_configuration_is_rejected_immediately() -> None:
    with pytest.raises(ValueError, match="backend 'raw': unknown type of backend 's4'"):
        App(stores={"raw": {"type": "s4"}})
    with pytest.raises(TypeError, match="stores is a Registry, or a table of stores by name, not list"):
        App(stores=["raw"])  # type: ignore[arg-type]


def test_files_in_memory_survive_close() -> None:
    app = App(stores={"raw": {"type": "memory"}})
    app.stores.get_store("raw").write("file", b"x")
    app.close()
    assert app.stores.get_store("raw").read_bytes("file") == b"x"


def test_an_app_without_stores_loads_no_client() -> None:
    program = (
        "import sys, redrive; redrive.App(); print([m for m in ('s3fs', 'asyncssh', 'httpx2', 'tomllib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_every_public_name_can_be_imported() -> None:
    for name in storage.__all__:
        assert getattr(storage, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Stroe'"):
        _ = storage.Stroe  # type: ignore[attr-defined]
