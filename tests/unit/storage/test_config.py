"""Configuration: its forms, and errors that name their place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from redrive import RetryPolicy
from redrive.storage import BackendConfig, Registry, RegistryConfig, Store, StoreProfile
from redrive.storage.local import Local
from redrive.storage.memory import Memory

TOML = """
[backends.lake]
type = "sftp"
options = { host = "lake.example.com", username = "etl", password = { env = "LAKE_PASSWORD" } }
retry = { max_attempts = 5, timeout = 30 }

[stores.raw]
backend = "lake"
root_path = "raw/v1"

[stores.scratch]
type = "memory"
"""


@pytest.mark.req("S-1", "S-2")
def test_a_toml_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "storage.toml"
    file.write_text(TOML)
    config = RegistryConfig.from_toml(file)
    assert config.backends["lake"].retry == RetryPolicy(max_attempts=5, timeout=30)
    assert config.backends["scratch"] == BackendConfig("memory")
    assert config.backends["scratch"].retry is None
    assert config.stores == {"raw": StoreProfile("lake", "raw/v1"), "scratch": StoreProfile("scratch")}
    registry = Registry(config, environ={"LAKE_PASSWORD": "hunter2"})
    assert registry.get_store("raw").root_path == "raw/v1"
    shown = f"{config!r} {registry!r} {registry.get_store('raw')!r} {vars(registry.get_store('raw').backend)!r}"
    assert "hunter2" not in shown
    assert "LAKE_PASSWORD" in shown


def config_of(**backend: Any) -> RegistryConfig:
    return RegistryConfig.from_dict({"backends": {"b": backend}, "stores": {"s": {"backend": "b"}}})


class Spy(Memory):
    """A user's backend that records its options."""

    options: dict[str, Any]

    def __init__(
        self, name: str, /, *, colour: str = "red", nested: Any = None, retry: RetryPolicy | None = None, **_: Any
    ) -> None:
        super().__init__(name)
        self.options = {"colour": colour, "nested": nested, "retry": retry}


class Strict(Memory):
    def __init__(self, name: str, /, *, retry: RetryPolicy = RetryPolicy(max_attempts=9)) -> None:  # noqa: B008  # frozen
        super().__init__(name)
        self.retry = retry


@pytest.mark.req("S-1")
def test_retry_is_passed_only_if_it_is_set() -> None:
    kind = f"{__name__}:Strict"
    assert Registry(config_of(type=kind)).get_store("s").backend.retry.max_attempts == 9  # type: ignore[attr-defined]
    backend = Registry(config_of(type=kind, retry={"max_attempts": 2})).get_store("s").backend
    assert backend.retry == RetryPolicy(max_attempts=2)  # type: ignore[attr-defined]
    assert Registry(config_of(type=kind, retry=None)).get_store("s").backend.retry.max_attempts == 9  # type: ignore[attr-defined]


@pytest.mark.req("S-7")
@pytest.mark.parametrize("options", [{"type": "memory"}, {"type": "local", "options": {"root": "."}}])
def test_local_and_memory_take_no_retry(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="backend 'b': (memory|local) takes no retry"):
        Registry(config_of(**options, retry={"max_attempts": 2}))
    with pytest.raises(TypeError, match="unexpected keyword argument 'retry'"):
        Local("x", root=".", retry=RetryPolicy())  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'retry'"):
        Memory("x", retry=RetryPolicy())  # type: ignore[call-arg]


@pytest.mark.req("S-2")
@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"backends": {"b": {"type": "sftp", "retry": {"max_atempts": 5}}}}, "backend 'b': unknown key 'max_atempts'"),
        ({"backends": {"b": {"type": "sftp", "retry": {"max_attempts": 0}}}}, "backend 'b': max_attempts"),
        ({"backends": {"b": {"type": "sftp", "retry": 5}}}, "backend 'b': a retry policy must be a table"),
        ({"backends": {"b": {"type": "loca"}}}, r"'b': unknown type of backend 'loca' \(did you mean 'local'\?\); known: azure"),
        ({"backends": {"b": {"type": "local", "options": {"rot": 1}}}}, r"'rot' \(did you mean 'root'\?\); local has root"),
        ({"backends": {"b": {"type": "local"}}}, "backend 'b': local needs the option 'root'"),
        ({"backends": {"b": {"type": "local", "optoins": {}}}}, "'optoins' in a backend; known: type, options, retry"),
        ({"backends": {"b": {"options": {}}}}, "backend 'b': a backend needs a type"),
        ({"backends": {"b": {"type": 5}}}, "backend 'b': the type of a backend is text"),
        ({"backends": {"b": {"type": "memory", "options": 5}}}, "backend 'b': the options of a backend are a table"),
        ({"backends": {"b": "local"}}, "backend 'b' is a table, not str"),
        ({"backends": []}, "backends is a table of names, not list"),
        ({"stores": {"s": {"backend": "b"}}}, "store 's': unknown backend 'b'; known: none"),
        ({"stores": {"s": {}}}, "store 's': a store needs a backend or a type"),
        ({"stores": {"s": {"backend": "b", "root": "x"}}}, "store 's': unknown key 'root' in a store; known: backend, root_path"),
        ({"stores": {"s": {"type": "memory", "root_path": "../x"}}}, "store 's': invalid root_path '../x'"),
        ({"stores": {"s": {"type": "memory", "root_path": 5}}}, "store 's': the root_path of a store is text"),
        ({"backends": {"s": {"type": "memory"}}, "stores": {"s": {"type": "memory"}}}, "'s': it has a type, but a backend has"),
        ({"backend": {}}, "unknown key 'backend' in the configuration of storage; known: backends, stores"),
        ({"backends": {"b": {"type": "no.such.module:Thing"}}}, "'b': the backend no.such.module:Thing cannot be imported"),
        ({"backends": {"b": {"type": "json:Thing"}}}, "backend 'b': the backend json:Thing cannot be imported"),
    ],
)  # fmt: skip
def test_an_error_names_its_place(config: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        Registry(RegistryConfig.from_dict(config))


def test_invalid_toml_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "storage.toml"
    file.write_text("[backends")
    with pytest.raises(ValueError, match=r"storage\.toml.* is not valid TOML"):
        RegistryConfig.from_toml(file)
    file.write_text("[backends.x]\ntype = 'memry'")
    with pytest.raises(ValueError, match="did you mean 'memory'"):
        Registry(RegistryConfig.from_toml(file))


def test_secrets_come_from_the_environment() -> None:
    kind = f"{__name__}:Spy"
    config = config_of(type=kind, options={"colour": {"env": "COLOUR"}, "nested": {"deep": {"env": "DEEP"}, "plain": 1}})
    store = Registry(config, environ={"COLOUR": "blue", "DEEP": "sea"}).get_store("s")
    assert store.backend.options == {"colour": "blue", "nested": {"deep": "sea", "plain": 1}, "retry": None}  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="backend 'b': option 'colour' needs the environment variable COLOUR; set it"):
        Registry(config, environ={}).get_store("s")
    with pytest.raises(ValueError, match=r"option 'nested\.deep' needs the environment variable DEEP"):
        Registry(config, environ={"COLOUR": "x"}).get_store("s")


def test_repr_redacts_a_password() -> None:
    config = BackendConfig("sftp", {"host": "h", "password": "hunter2", "url": "sftp://me:hunter2@host/"})
    assert "hunter2" not in repr(config)
    assert "hunter2" not in repr(RegistryConfig({"b": config}))


def test_stores_share_their_backend() -> None:
    config = RegistryConfig.from_dict(
        {"backends": {"m": {"type": "memory"}}, "stores": {"one": {"backend": "m", "root_path": "a"}, "two": {"backend": "m"}}}
    )
    with Registry(config) as registry:
        registry.get_store("one").write("file", b"x")
        assert registry.get_store("two").read_bytes("a/file") == b"x"
        assert repr(registry.get_store("one")) == "<Store one: m/a>"
        with pytest.raises(KeyError, match="unknown store 'three'; known: one, two"):
            registry.get_store("three")


def test_configurations_are_immutable_values() -> None:
    first, same = BackendConfig("memory", {"a": 1}), BackendConfig("memory", {"a": 1})
    assert first == same
    with pytest.raises(TypeError):
        first.options["a"] = 2  # type: ignore[index]
    with pytest.raises(TypeError, match="is a RetryPolicy, not dict"):
        BackendConfig("memory", retry={"max_attempts": 3})  # type: ignore[arg-type]


def test_creating_a_registry_opens_nothing(tmp_path: Path) -> None:
    registry = Registry(config_of(type="local", options={"root": str(tmp_path / "missing")}))
    assert isinstance(registry.get_store("s"), Store)
    registry = Registry(config_of(type="sftp", options={"host": "does.not.exist.example"}))
    assert isinstance(registry.get_store("s"), Store)
    registry.close()
