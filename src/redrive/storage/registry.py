"""Registry: stores by name, each backend made when first asked for."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from .backend import Backend
from .config import BackendConfig, RegistryConfig
from .kinds import kind
from .store import Store


class Registry:
    """Stores by name. Making one opens nothing, and says at once what is wrong with its configuration. Context manager.

    Threads may share it; a forked child may go on using it, and connects anew.
    """

    def __init__(self, config: RegistryConfig, /, *, environ: Mapping[str, str] | None = None) -> None:
        """environ: where `{"env": "NAME"}` is looked up (default: the environment of the process)."""
        config.check()
        self.config = config
        self._environ = os.environ if environ is None else environ
        self._backends: dict[str, Backend] = {}
        self._lock = threading.Lock()

    def get_store(self, name: str, /) -> Store:
        """The store of that name; its backend is shared with all others on it."""
        profile = self.config.stores.get(name)
        if profile is None:
            raise KeyError(f"there is no store {name!r}; known: {', '.join(self.config.stores) or 'none'}")
        return Store(self._backend(profile.backend), root_path=profile.root_path, name=name)

    def close(self) -> None:
        """Let go of all connections; used again, they open again."""
        with self._lock:
            backends, self._backends = list(self._backends.values()), {}
        for backend in backends:
            backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /) -> None:
        self.close()

    def _backend(self, name: str) -> Backend:
        with self._lock:
            if name not in self._backends:
                self._backends[name] = made(name, self.config.backends[name], self._environ)
            return self._backends[name]


def made(name: str, config: BackendConfig, environ: Mapping[str, str], /) -> Backend:
    """The backend; `retry` is handed over only where there is one, so that None means the backend's own default."""
    given: dict[str, Any] = {option: _resolved(value, name, option, environ) for option, value in config.options.items()}
    if config.retry is not None:
        given["retry"] = config.retry
    return kind(config.type)(name, **given)


def _resolved(value: Any, backend: str, option: str, environ: Mapping[str, str]) -> Any:
    if not isinstance(value, Mapping):
        return value
    if set(value) == {"env"}:
        variable = value["env"]
        if variable not in environ:
            raise ValueError(f"backend {backend!r}: option {option!r} is to come from the variable {variable}, which is not set")
        return environ[variable]
    return {key: _resolved(inner, backend, f"{option}.{key}", environ) for key, inner in value.items()}
