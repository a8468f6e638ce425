"""Settings of `redrive.toml` and the environment. Options override variables, which override it."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

FILE = "redrive.toml"
VARIABLE = "REDRIVE_CONFIG"
PREFIX = "REDRIVE_"
TABLES = ("worker", "metrics", "console", "alerts")
SECRET = frozenset(
    (
        "console.password",
        "console.token",
        "console.viewer_password",
        "console.viewer_token",
        "console.secret",
        "console.oidc_secret",
        "alerts.webhook",
        "alerts.slack",
    )
)
"""Values that are never shown."""
HIDDEN = "(set)"
KUBERNETES_LINK = re.compile(r"_SERVICE_(HOST|PORT)|_PORT_\d+_|=(tcp|udp|sctp)://")
"""Variables that Kubernetes sets for a service with the name redrive-console."""
YES, NO = frozenset(("1", "true", "yes", "on")), frozenset(("0", "false", "no", "off"))

T = TypeVar("T")


def _key(says: str, default: Any = None) -> Any:
    return field(default=default, metadata={"says": says})


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Settings of `redrive work`. Immutable."""

    threads: int = _key("Number of threads for sync functions.", 8)
    processes: int | None = _key(
        "Number of processes for commands with isolation. The default is the number of cores."
    )
    only: tuple[str, ...] = _key("Commands and handlers to run. Empty means all.", ())
    drain: float = _key("Seconds that running jobs may take to finish after SIGTERM.", 30.0)
    executor: str | None = _key("Dask scheduler for extractions, as `dask://host:8786`.")
    name: str | None = _key("Prefix of the worker's name. The default is the host name.")
    anchors: str | None = _key(
        "File for the head of the audit log, written every 5 minutes. `redrive doctor` compares it."
    )


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """Where a worker serves metrics for Prometheus. Immutable."""

    port: int | None = _key(
        "Port for /metrics and /health of a worker. Without it, they are not served."
    )
    host: str = _key("Address to listen on. Use 0.0.0.0 in a container.", "127.0.0.1")


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """The web console. Immutable."""

    host: str = _key(
        "Address to listen on. Any address but loopback needs a password or a token.", "127.0.0.1"
    )
    port: int = _key("Port to listen on.", 8321)
    password: str | None = _key("Password for operators.")
    token: str | None = _key("Token for programs that may change data.")
    viewer_password: str | None = _key("Password for read-only users.")
    viewer_token: str | None = _key("Token for programs that may only read.")
    secret: str | None = _key(
        "Key that signs sessions, if several processes serve one console with hashed passwords."
    )
    read_only: bool = _key("Reject every change.", False)
    proxies: tuple[str, ...] = _key(
        "Addresses of proxies whose X-Forwarded-For and X-Forwarded-Proto headers are trusted.", ()
    )
    audit_reads: bool = _key("Record in the audit log who opened which payload.", False)
    proxy_header: str | None = _key(
        "Header with the name of the user, from a proxy that authenticates users."
    )
    proxy_addresses: tuple[str, ...] = _key("Addresses or networks of this proxy.", ())
    proxy_groups: str | None = _key("Header of this proxy with the groups of the user.")
    oidc_issuer: str | None = _key("Address of the provider of OpenID Connect.")
    oidc_client_id: str | None = _key("Id of the console at the provider.")
    oidc_secret: str | None = _key("Secret of the console at the provider.")
    oidc_secret_file: str | None = _key("File with this secret.")
    oidc_claim: str = _key("Claim with the groups of the user.", "groups")
    oidc_name_claim: str = _key("Claim with the name for the audit log.", "preferred_username")
    oidc_scope: str = _key("Requested scopes.", "openid profile email")
    oidc_redirect_url: str | None = _key(
        "URL of /login/oidc/callback, as registered at the provider. Default: from the request."
    )
    roles: tuple[str, ...] = _key(
        "Roles of groups of the proxy or the provider, such as sre=operator. The first counts.", ()
    )
    role: str | None = _key(
        "Role of users without such a group: viewer or operator. Without it, no access."
    )


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """Where `redrive watch` sends alerts, and how often. Immutable."""

    webhook: str | None = _key("URL that gets alerts as JSON.")
    webhook_file: str | None = _key("File with that URL.")
    slack: str | None = _key("Incoming webhook of Slack, or of a compatible service.")
    slack_file: str | None = _key("File with that URL.")
    interval: float = _key("Seconds between two checks.", 300.0)
    repeat: float = _key("Seconds until an open problem is reported again. 0: never.", 14400.0)


@dataclass(frozen=True, slots=True)
class Configuration:
    """All settings, with defaults for those that are not set. Immutable."""

    app: str | None = _key("App in your code, as module:name.")
    ledger: str | None = _key(
        "Address of the ledger, sqlite:///file.db or postgresql://user@host/database."
    )
    storage: str | None = _key("File that defines the stores.")
    worker: WorkerSettings = field(default_factory=WorkerSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    console: ConsoleSettings = field(default_factory=ConsoleSettings)
    alerts: AlertSettings = field(default_factory=AlertSettings)
    file: Path | None = None
    """The file that was read."""
    set_by: Mapping[str, str] = field(default_factory=dict)
    """The source of each value that is set: a variable, or the file."""

    def visible_values(self) -> dict[str, Any]:
        """Return every key with its value. Secrets are hidden."""
        values = {key.name: key.of(self) for key in KEYS}
        hidden = {name for name in SECRET if values[name] is not None}
        return {name: HIDDEN if name in hidden else value for name, value in values.items()}


class SettingInfo(NamedTuple):
    """One setting."""

    name: str
    """Name in the file. `worker.threads` is `threads` in the table `[worker]`."""
    variable: str
    kind: str
    """Its annotation, such as `int` or `str | None`."""
    default: Any
    says: str

    def of(self, settings: Configuration, /) -> Any:
        """Return its value."""
        table, _, name = self.name.rpartition(".")
        return getattr(getattr(settings, table) if table else settings, name)


def _keys() -> Iterator[SettingInfo]:
    for table, of in (
        ("", Configuration),
        ("worker", WorkerSettings),
        ("metrics", MetricsSettings),
        ("console", ConsoleSettings),
        ("alerts", AlertSettings),
    ):
        each: Field[Any]
        for each in fields(of):
            if "says" in each.metadata:
                name = f"{table}.{each.name}" if table else each.name
                default = None if each.default is MISSING else each.default
                yield SettingInfo(
                    name,
                    PREFIX + name.replace(".", "_").upper(),
                    str(each.type),
                    default,
                    each.metadata["says"],
                )


KEYS = tuple(_keys())
"""All settings, in the order of the file."""
_BY_NAME = {key.name: key for key in KEYS}
_BY_VARIABLE = {key.variable: key for key in KEYS}


def settings(environ: Mapping[str, str] | None = None, /) -> Configuration:
    """Read the settings from the file and the environment.

    Raises:
        ValueError: A value is not valid, or a key is unknown. The message has the nearest name.
    """
    environment = os.environ if environ is None else environ
    path = _file(environment)
    sourced: dict[str, tuple[Any, str]] = {}
    if path is not None:
        sourced |= {name: (value, str(path)) for name, value in _read_file(path)}
    variables = _read_environment(environment)
    sourced |= {name: (value, variable) for name, value, variable in variables}
    values = {name: value for name, (value, _) in sourced.items()}
    return Configuration(
        **{name: value for name, value in values.items() if "." not in name},
        worker=WorkerSettings(**_table(values, "worker")),
        metrics=MetricsSettings(**_table(values, "metrics")),
        console=ConsoleSettings(**_table(values, "console")),
        alerts=AlertSettings(**_table(values, "alerts")),
        file=path,
        set_by={name: source for name, (_, source) in sourced.items()},
    )


def ledger_address() -> str | None:
    """Return the address of the ledger, from the environment or the file."""
    return os.environ.get("REDRIVE_LEDGER") or settings().ledger


def _table(values: Mapping[str, Any], table: str) -> dict[str, Any]:
    return {
        name.partition(".")[2]: value
        for name, value in values.items()
        if name.startswith(f"{table}.")
    }


def _file(environ: Mapping[str, str]) -> Path | None:
    named = environ.get(VARIABLE)
    if named:
        if not Path(named).is_file():
            raise ValueError(
                f"{VARIABLE}: no file {named!r}; name an existing file, or unset the variable"
            )
        return Path(named)
    default = Path(FILE)
    return default if default.is_file() else None


def _read_file(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise ValueError(f"{path} is not valid TOML: {problem}") from None
    except OSError as problem:
        raise ValueError(f"{path} cannot be read: {problem.strerror}") from None
    for name, value in content.items():
        if name in TABLES:
            if not isinstance(value, dict):
                raise ValueError(f"{path}: {name} must be a table; write [{name}]")
            entries = {f"{name}.{key}": entry for key, entry in value.items()}
        else:
            entries = {name: value}
        for full_name, entry in entries.items():
            key = _BY_NAME.get(full_name)
            if key is None:
                hint = _nearest(full_name, (*_BY_NAME, *TABLES))
                raise ValueError(f"{path}: unknown key {full_name!r}{hint}")
            yield full_name, _check(key, entry, f"{path}: {full_name}")


def _read_environment(environ: Mapping[str, str]) -> Iterator[tuple[str, Any, str]]:
    tables = tuple(f"{PREFIX}{table.upper()}_" for table in TABLES)
    for variable, text in environ.items():
        if variable.startswith(PREFIX) and KUBERNETES_LINK.search(f"{variable}={text}"):
            continue
        key = _BY_VARIABLE.get(variable)
        if key is not None and text:
            yield key.name, _check(key, _parse(key, text, variable), variable), variable
        elif key is None and variable.startswith(tables):
            raise ValueError(f"unknown variable {variable}{_nearest(variable, _BY_VARIABLE)}")


def _nearest(name: str, known: Any) -> str:
    near = get_close_matches(name, known, n=1)
    return f": did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"


def _parse(key: SettingInfo, text: str, variable: str) -> Any:
    if key.kind.startswith("tuple"):
        return [part.strip() for part in text.split(",") if part.strip()]
    if key.kind == "bool":
        if text.lower() not in YES | NO:
            raise ValueError(f"{variable} must be true or false, not {text!r}")
        return text.lower() in YES
    if key.kind.startswith(("int", "float")):
        try:
            return int(text) if key.kind.startswith("int") else float(text)
        except ValueError:
            raise ValueError(f"{variable} must be a number, not {text!r}") from None
    return text


def _check(key: SettingInfo, value: Any, where: str) -> Any:
    """Return the value if it is valid for the key."""
    if key.kind.startswith("tuple"):
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        raise ValueError(f"{where} must be a list of strings")
    if key.kind == "bool":
        return _check_type(value, bool, where, "true or false")
    if key.kind.startswith(("int", "float")):
        is_integer = key.kind.startswith("int")
        least, most = (1, 10_000) if is_integer else (0, 10**9)
        if key.name.endswith("port"):
            least, most = 0, 65535
        types = int if is_integer else (int, float)
        if isinstance(value, bool) or not isinstance(value, types):
            raise ValueError(f"{where} must be a number, not {value!r}")
        if not least <= value <= most:
            raise ValueError(f"{where} must be from {least} to {most}, not {value!r}")
        return value
    text = _check_type(value, str, where, "text")
    if not text:
        raise ValueError(f"{where} must not be empty; remove it to use the default")
    return text


def _check_type(value: Any, kind: type[T], where: str, expected: str) -> T:
    if not isinstance(value, kind):
        raise ValueError(f"{where} must be {expected}, not {type(value).__name__}")
    return value
