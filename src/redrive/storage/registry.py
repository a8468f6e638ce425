"""Registry: stores by name. Each backend is created at its first use.

The configuration of backends, their retries, and the stores on them is checked first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

from ..core.policy import RetryPolicy
from ..journal.redaction import redact
from ..journal.redaction.secrets import keep_options_secret
from .backend import BACKEND_TYPES, Backend, backend_class, check_options, takes_retry
from .path import path_problem
from .store import Store

EMPTY: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class BackendConfig:
    """Configuration of a backend: type, options and retry policy.

    Immutable: threads may share one.

    Args:
        type: `local`, `memory`, `s3`, `s3-obstore`, `s3-pyarrow`, `azure`, `azure-obstore`, `gcs`,
            `sftp`, `graph`, or your own class as `package.module:Class`.
        options: Options of the type. `{"env": "NAME"}` refers to an environment variable, which is
            read when the backend is first used.
        retry: Policy. None: the default of the backend.

    Raises:
        TypeError: A value has the wrong type.
    """

    type: str
    options: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    retry: RetryPolicy | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.type, str):
            known = ", ".join(BACKEND_TYPES)
            raise TypeError(f"the type of a backend is text, one of {known}: {self.type!r}")
        if not isinstance(self.options, Mapping):
            kind = type(self.options).__name__
            raise TypeError(f"the options of a backend are a table, not {kind}")
        if self.retry is not None and not isinstance(self.retry, RetryPolicy):
            kind = type(self.retry).__name__
            raise TypeError(f"the retry of a backend is a RetryPolicy, not {kind}: {self.retry!r}")
        keep_options_secret(self.options)
        object.__setattr__(self, "options", MappingProxyType(dict(self.options)))

    def check(self) -> None:
        """Check the type, its options and the policy.

        Raises:
            ValueError: The type or an option is unknown.
            TypeError: An option is missing, or the type takes no policy.
        """
        check_options(self.type, self.options)
        if self.retry is not None and not takes_retry(backend_class(self.type)):
            reason = "because it never retries; remove the option"
            raise TypeError(f"{self.type} takes no retry, {reason}")

    @classmethod
    def from_dict(cls, section: Mapping[str, Any], /) -> Self:
        """Create a configuration from a parsed table.

        Args:
            section: The table with `type`, `options` and `retry`.

        Returns:
            The configuration.
        """
        _check_keys("a backend", section, "type", "options", "retry")
        if "type" not in section:
            raise TypeError(f"a backend needs a type: one of {', '.join(BACKEND_TYPES)}")
        retry = RetryPolicy.from_mapping(section.get("retry"))
        return cls(section["type"], section.get("options", EMPTY), retry)

    def __repr__(self) -> str:
        # Passwords should refer to environment variables. Redact those that do not.
        options = {
            name: value if is_environment_reference(value) else redact(value, name)
            for name, value in self.options.items()
        }
        return f"BackendConfig(type={self.type!r}, options={options!r}, retry={self.retry!r})"


@dataclass(frozen=True)
class StoreProfile:
    """Configuration of a store: a backend and a folder in it.

    Immutable: threads may share one.

    Args:
        backend: Name of the backend.
        root_path: The folder.

    Raises:
        ValueError: The folder is not a valid path.
    """

    backend: str
    root_path: str = ""

    def __post_init__(self) -> None:
        for name in ("backend", "root_path"):
            if not isinstance(getattr(self, name), str):
                raise TypeError(f"the {name} of a store is text: {getattr(self, name)!r}")
        problem = path_problem(self.root_path) if self.root_path else None
        if problem is not None:
            raise ValueError(f"invalid root_path {self.root_path!r}: {problem}")


@dataclass(frozen=True)
class RegistryConfig:
    """Configuration of all backends and stores, by name.

    Immutable: threads may share one.

    Args:
        backends: Backends by name.
        stores: Stores by name.
    """

    backends: Mapping[str, BackendConfig]
    stores: Mapping[str, StoreProfile] = field(default_factory=lambda: EMPTY)

    def __post_init__(self) -> None:
        for name in ("backends", "stores"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    @classmethod
    def from_dict(cls, config: Mapping[str, Any], /) -> Self:
        """Create a configuration from parsed tables.

        The form is `{"backends": {name: {type, options, retry}}, "stores": {name: {backend,
        root_path}}}`. A store may contain its backend: `{"raw": {"type": "local", "options":
        {...}}}`.

        Args:
            config: The tables.

        Returns:
            The configuration.

        Raises:
            TypeError: A key is unknown or missing. The message names the place.
        """
        _check_keys("the configuration of storage", config, "backends", "stores")
        backends: dict[str, BackendConfig] = {}
        stores: dict[str, StoreProfile] = {}
        for name, section in _sections(config, "backends"):
            with _error_prefix(f"backend {name!r}"):
                backends[name] = BackendConfig.from_dict(section)
        for name, section in _sections(config, "stores"):
            with _error_prefix(f"store {name!r}"):
                stores[name] = _read_store(name, section, backends)
        return cls(backends, stores)

    @classmethod
    def from_toml(cls, path: str | Path, /) -> Self:
        """Create a configuration from a file with `[backends.NAME]` and `[stores.NAME]`.

        Args:
            path: The file.

        Returns:
            The configuration.
        """
        import tomllib  # noqa: PLC0415  # only for users of TOML files

        with _error_prefix(str(path)):
            return cls.from_dict(tomllib.loads(Path(path).read_text(encoding="utf-8-sig")))

    def check(self) -> None:
        """Check all backends and stores.

        Raises:
            ValueError: The message names the place and the problem.
            TypeError: The same, for a value of the wrong type.
        """
        for name, backend in self.backends.items():
            with _error_prefix(f"backend {name!r}"):
                backend.check()
        for name, store in self.stores.items():
            if store.backend not in self.backends:
                known = ", ".join(self.backends) or "none"
                problem = f"unknown backend {store.backend!r}"
                raise ValueError(f"store {name!r}: {problem}; known: {known}")


def _read_store(
    name: str, section: Mapping[str, Any], backends: dict[str, BackendConfig]
) -> StoreProfile:
    """Return a store. If the table contains its own backend, add that to `backends`."""
    if "type" not in section:
        _check_keys("a store", section, "backend", "root_path")
        if "backend" not in section:
            fix = "add backend = ..., or type = ... for a backend of its own"
            raise TypeError(f"a store needs a backend or a type; {fix}")
        return StoreProfile(section["backend"], section.get("root_path", ""))
    keys = ("type", "options", "retry", "root_path")
    _check_keys("a store with a backend of its own", section, *keys)
    if name in backends:
        fix = f"write backend = {name!r}, or rename one"
        raise ValueError(f"it has a type, but a backend has the same name; {fix}")
    backends[name] = BackendConfig.from_dict(
        {key: value for key, value in section.items() if key != "root_path"}
    )
    return StoreProfile(name, section.get("root_path", ""))


def _sections(config: Mapping[str, Any], name: str) -> list[tuple[str, Mapping[str, Any]]]:
    section = config.get(name, EMPTY)
    if not isinstance(section, Mapping):
        raise TypeError(f"{name} is a table of names, not {type(section).__name__}")
    for key, value in section.items():
        if not isinstance(value, Mapping):
            raise TypeError(f"{name[:-1]} {key!r} is a table, not {type(value).__name__}")
    return list(section.items())


def _check_keys(subject: str, section: Mapping[str, Any], *keys: str) -> None:
    if not isinstance(section, Mapping):
        raise TypeError(
            f"{subject} is a table with {', '.join(keys)}, not {type(section).__name__}"
        )
    for key in section:
        if key not in keys:
            raise TypeError(f"unknown key {key!r} in {subject}; known: {', '.join(keys)}")


def is_environment_reference(value: object) -> bool:
    """Return whether an option is `{"env": "NAME"}`."""
    return isinstance(value, Mapping) and set(value) == {"env"}


@contextmanager
def _error_prefix(prefix: str) -> Iterator[None]:
    """Put the place of a mistake before the message of a configuration error."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if type(error).__name__ == "TOMLDecodeError":
            raise ValueError(f"{prefix} is not valid TOML: {error}") from None
        if type(error) in (TypeError, ValueError):
            raise type(error)(f"{prefix}: {error}") from None
        raise


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
