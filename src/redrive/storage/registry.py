"""Registry: stores by name. Each backend is created at its first use."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from ..journal.redaction.values import keep_options_secret
from .backend import Backend, backend_class
from .config import BackendConfig, RegistryConfig, is_environment_reference
from .store import Store


class Registry:
    """Stores by name. A context manager that closes their connections.

    Creating one opens nothing. It checks the configuration at once. Threads may share it. A forked
    child may keep using it and connects again.

    Args:
        config: The configuration.
        environ: Environment variables for `{"env": "NAME"}`. Default: `os.environ`.

    Raises:
        ValueError: The configuration is not valid. The message names the place.
        TypeError: The same, for a value of the wrong type.
    """

    def __init__(
        self, config: RegistryConfig, /, *, environ: Mapping[str, str] | None = None
    ) -> None:
        config.check()
        self.config = config
        self._environ = os.environ if environ is None else environ
        self._backends: dict[str, Backend] = {}

    def get_store(self, name: str, /) -> Store:
        """Return a store. Stores of one backend share it.

        Args:
            name: Name of the store.

        Returns:
            The store.
        """
        profile = self.config.stores.get(name)
        if profile is None:
            known = ", ".join(self.config.stores) or "none"
            raise KeyError(f"unknown store {name!r}; known: {known}")
        return Store(self._backend(profile.backend), root_path=profile.root_path, name=name)

    def close(self) -> None:
        """Close all connections. A store that is used again opens them again."""
        for backend in list(self._backends.values()):
            backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        raised: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        self.close()

    def _backend(self, name: str) -> Backend:
        backend = self._backends.get(name)
        if backend is None:
            # Two threads may both create it. The first one stays, and the other opened nothing.
            created = create_backend(name, self.config.backends[name], self._environ)
            backend = self._backends.setdefault(name, created)
        return backend


def to_registry(stores: Registry | Mapping[str, Any] | None, /) -> Registry:
    """Return a registry from a registry, its configuration, or a table of stores by name."""
    if isinstance(stores, Registry):
        return stores
    if stores is not None and not isinstance(stores, Mapping):
        expected = "a Registry, or a table of stores by name"
        raise TypeError(f"stores is {expected}, not {type(stores).__name__}")
    if stores is not None and set(stores) <= {"backends", "stores"}:
        return Registry(RegistryConfig.from_dict(stores))
    return Registry(RegistryConfig.from_dict({"stores": stores or {}}))


def create_backend(name: str, config: BackendConfig, environ: Mapping[str, str], /) -> Backend:
    """Create a backend, with options from the environment where the configuration refers to it."""
    options: dict[str, Any] = {
        option: _resolve_option(value, name, option, environ)
        for option, value in config.options.items()
    }
    keep_options_secret(options)
    if config.retry is not None:  # Without a policy the backend uses its own default.
        options["retry"] = config.retry
    return backend_class(config.type)(name, **options)


def _resolve_option(value: Any, backend: str, option: str, environ: Mapping[str, str]) -> Any:
    if not isinstance(value, Mapping):
        return value
    if is_environment_reference(value):
        variable = value["env"]
        if variable not in environ:
            problem = f"option {option!r} needs the environment variable {variable}; set it"
            raise ValueError(f"backend {backend!r}: {problem}")
        return environ[variable]
    return {
        key: _resolve_option(inner, backend, f"{option}.{key}", environ)
        for key, inner in value.items()
    }
