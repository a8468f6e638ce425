"""Registry: stores by name, each backend made when first asked for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from ..journal.redaction.values import keep_options_secret
from .backend import Backend
from .config import BackendConfig, RegistryConfig
from .kinds import kind
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

    def __init__(self, config: RegistryConfig, /, *, environ: Mapping[str, str] | None = None) -> None:
        """environ: where `{"env": "NAME"}` is looked up (default: the environment of the process)."""
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
            raise KeyError(f"unknown store {name!r}; known: {', '.join(self.config.stores) or 'none'}")
        return Store(self._backend(profile.backend), root_path=profile.root_path, name=name)

    def close(self) -> None:
        """Close all connections. A store that is used again opens them again."""
        for backend in list(self._backends.values()):
            backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, raised: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /) -> None:
        self.close()

    def _backend(self, name: str) -> Backend:
        found = self._backends.get(name)
        if found is None:  # of two threads that come here at once one takes the other's: nothing was opened
            found = self._backends.setdefault(name, made(name, self.config.backends[name], self._environ))
        return found


def registry(given: Registry | Mapping[str, Any] | None, /) -> Registry:
    """What `App(stores=...)` takes: a registry; its configuration, with backends and stores; or the stores alone, by name."""
    if isinstance(given, Registry):
        return given
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(f"stores is a Registry, or a table of stores by name, not {type(given).__name__}")
    whole = given is not None and set(given) <= {"backends", "stores"}
    return Registry(RegistryConfig.from_dict(given if given is not None and whole else {"stores": given or {}}))


def made(name: str, config: BackendConfig, environ: Mapping[str, str], /) -> Backend:
    """The backend; `retry` is handed over only where there is one, so that None means the backend's own default."""
    given: dict[str, Any] = {option: _resolved(value, name, option, environ) for option, value in config.options.items()}
    keep_options_secret(given)
    if config.retry is not None:
        given["retry"] = config.retry
    return kind(config.type)(name, **given)


def _resolved(value: Any, backend: str, option: str, environ: Mapping[str, str]) -> Any:
    if not isinstance(value, Mapping):
        return value
    if set(value) == {"env"}:
        variable = value["env"]
        if variable not in environ:
            raise ValueError(f"backend {backend!r}: option {option!r} needs the environment variable {variable}; set it")
        return environ[variable]
    return {key: _resolved(inner, backend, f"{option}.{key}", environ) for key, inner in value.items()}
