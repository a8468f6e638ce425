"""Configuration: which backends there are, how each is retried, and which stores lie on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from ..core.policy import RetryPolicy
from ..journal.redaction import redact
from ..journal.redaction.values import keep_options_secret
from .kinds import HOMES, check_options, kind, takes_retry
from .path import problem

NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class BackendConfig:
    """Configuration of a backend: type, options and retry policy.

    Immutable: threads may share one.

    Args:
        type: `local`, `memory`, `s3`, `s3-pyarrow`, `azure`, `sftp`, `graph`, or your own class as
            `package.module:Class`.
        options: Options of the type. `{"env": "NAME"}` refers to an environment variable, which is
            read when the backend is first used.
        retry: Policy. None: the default of the backend.

    Raises:
        TypeError: A value has the wrong type.
    """

    type: str
    options: Mapping[str, Any] = field(default_factory=lambda: NONE)
    retry: RetryPolicy | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.type, str):
            raise TypeError(f"the type of a backend is text, one of {', '.join(HOMES)}: {self.type!r}")
        if not isinstance(self.options, Mapping):
            raise TypeError(f"the options of a backend are a table, not {type(self.options).__name__}")
        if self.retry is not None and not isinstance(self.retry, RetryPolicy):
            raise TypeError(f"the retry of a backend is a RetryPolicy, not {type(self.retry).__name__}: {self.retry!r}")
        keep_options_secret(self.options)
        object.__setattr__(self, "options", MappingProxyType(dict(self.options)))

    def check(self) -> None:
        """Check the type, its options and the policy.

        Raises:
            ValueError: The type or an option is unknown.
            TypeError: An option is missing, or the type takes no policy.
        """
        check_options(self.type, self.options)
        if self.retry is not None and not takes_retry(kind(self.type)):
            raise TypeError(f"{self.type} takes no retry, because it never retries; remove the option")

    @classmethod
    def from_dict(cls, section: Mapping[str, Any], /) -> Self:
        """Create a configuration from a parsed table.

        Args:
            section: The table with `type`, `options` and `retry`.

        Returns:
            The configuration.
        """
        _known("a backend", section, "type", "options", "retry")
        if "type" not in section:
            raise TypeError(f"a backend needs a type: one of {', '.join(HOMES)}")
        return cls(section["type"], section.get("options", NONE), RetryPolicy.from_mapping(section.get("retry")))

    def __repr__(self) -> str:
        # Passwords should be references to the environment; where one is not, it is not printed all the same.
        shown = {name: value if _is_reference(value) else redact(value, name) for name, value in self.options.items()}
        return f"BackendConfig(type={self.type!r}, options={shown!r}, retry={self.retry!r})"


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
        wrong = problem(self.root_path) if self.root_path else None
        if wrong is not None:
            raise ValueError(f"invalid root_path {self.root_path!r}: {wrong}")


@dataclass(frozen=True)
class RegistryConfig:
    """Configuration of all backends and stores, by name.

    Immutable: threads may share one.

    Args:
        backends: Backends by name.
        stores: Stores by name.
    """

    backends: Mapping[str, BackendConfig]
    stores: Mapping[str, StoreProfile] = field(default_factory=lambda: NONE)

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
        _known("the configuration of storage", config, "backends", "stores")
        backends: dict[str, BackendConfig] = {}
        stores: dict[str, StoreProfile] = {}
        for name, section in _tables(config, "backends"):
            with _Place(f"backend {name!r}"):
                backends[name] = BackendConfig.from_dict(section)
        for name, section in _tables(config, "stores"):
            with _Place(f"store {name!r}"):
                stores[name] = _store(name, section, backends)
        return cls(backends, stores)

    @classmethod
    def from_toml(cls, path: str | Path, /) -> Self:
        """Create a configuration from a file with `[backends.NAME]` and `[stores.NAME]`.

        Args:
            path: The file.

        Returns:
            The configuration.
        """
        import tomllib  # noqa: PLC0415  # for those who have such a file

        with _Place(str(path)):
            return cls.from_dict(tomllib.loads(Path(path).read_text(encoding="utf-8-sig")))

    def check(self) -> None:
        """Check all backends and stores.

        Raises:
            ValueError: The message names the place and the problem.
            TypeError: The same, for a value of the wrong type.
        """
        for name, backend in self.backends.items():
            with _Place(f"backend {name!r}"):
                backend.check()
        for name, store in self.stores.items():
            if store.backend not in self.backends:
                known = ", ".join(self.backends) or "none"
                raise ValueError(f"store {name!r}: unknown backend {store.backend!r}; known: {known}")


def _store(name: str, section: Mapping[str, Any], backends: dict[str, BackendConfig]) -> StoreProfile:
    if "type" not in section:
        _known("a store", section, "backend", "root_path")
        if "backend" not in section:
            raise TypeError("a store needs a backend or a type; add backend = ..., or type = ... for a backend of its own")
        return StoreProfile(section["backend"], section.get("root_path", ""))
    _known("a store with a backend of its own", section, "type", "options", "retry", "root_path")
    if name in backends:
        raise ValueError(f"it has a type, but a backend has the same name; write backend = {name!r}, or rename one")
    backends[name] = BackendConfig.from_dict({key: value for key, value in section.items() if key != "root_path"})
    return StoreProfile(name, section.get("root_path", ""))


def _tables(config: Mapping[str, Any], name: str) -> list[tuple[str, Mapping[str, Any]]]:
    section = config.get(name, NONE)
    if not isinstance(section, Mapping):
        raise TypeError(f"{name} is a table of names, not {type(section).__name__}")
    for key, value in section.items():
        if not isinstance(value, Mapping):
            raise TypeError(f"{name[:-1]} {key!r} is a table, not {type(value).__name__}")
    return list(section.items())


def _known(what: str, section: Mapping[str, Any], *keys: str) -> None:
    if not isinstance(section, Mapping):
        raise TypeError(f"{what} is a table with {', '.join(keys)}, not {type(section).__name__}")
    for key in section:
        if key not in keys:
            raise TypeError(f"unknown key {key!r} in {what}; known: {', '.join(keys)}")


def _is_reference(value: object) -> bool:
    return isinstance(value, Mapping) and set(value) == {"env"}


class _Place:
    """Puts in front of an error where it was made."""

    def __init__(self, place: str) -> None:
        self._place = place

    def __enter__(self) -> None:
        return

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if type(error) in (TypeError, ValueError):
            raise type(error)(f"{self._place}: {error}") from None  # type: ignore[misc]
        if type(error).__name__ == "TOMLDecodeError":
            raise ValueError(f"{self._place} is not valid TOML: {error}") from None
