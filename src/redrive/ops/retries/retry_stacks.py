"""Retry layers that surround each other, of an app, a TOML file or an object."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from ...analysis.advice import Advice
from ...analysis.layer import Layer
from ...analysis.report import LayersReport
from ...analysis.report import layers as analyse
from ...analysis.worst_case import WorstCaseError, WorstCaseLayer
from ...app import App
from ...backoff import Backoff
from ...core.backoff_table import backoff_from_table
from ...core.policy import ALIASES, SERVICE, RetryPolicy
from ...engine.settings import RetrySettings
from ...worker.job_type import JobType
from ..project.target import Operated, extractions
from ..project.user_code import Unreadable, import_object, names_object, suggest

__all__ = [
    "Advice",
    "LayersReport",
    "Stack",
    "Unreadable",
    "WorstCaseError",
    "WorstCaseLayer",
    "layers",
    "of_app",
    "stacks",
]

POLICY = tuple(field.name for field in fields(RetryPolicy))
OWN = ("name", "by", "on", "nested", "seen", "attempt_timeout", "backoff", "budget")
WAITS = ("backoff_base", "backoff_max", "jitter")
EXAMPLE = (
    "[[layer]] tables, the outermost first, each with a name and what differs from the defaults"
)


@dataclass(frozen=True, slots=True)
class Stack:
    """The retry layers of one job type, or of one dataset."""

    kind: str
    """Job type, or name of the dataset such as crm/orders."""
    durable: LayersReport
    """Attempts by workers, minutes to days apart. They do not multiply those in process."""
    inside: LayersReport | None
    """Retries in process, within each of these attempts. None: the function does not retry."""


def stacks(app: Operated, /) -> list[Stack]:
    """Return the stack of every registered job type and dataset, by name.

    A bare ledger has none.
    """
    if not isinstance(app, App):
        return []
    kinds: Sequence[JobType] = ()
    try:
        kinds = app.kinds()
    except ValueError:  # No command and no handler is registered.
        pass
    registered = [(kind.name, kind.settings, kind.fn) for kind in kinds]
    registered += [(each.name, each.settings, each.fn) for each in extractions(app)]
    result = [
        Stack(name, _durable(name, settings), _inside(fn)) for name, settings, fn in registered
    ]
    return sorted(result, key=lambda stack: stack.kind)


def of_app(source: str, /) -> list[Stack] | None:
    """Return the stacks of the app of `module:app`. None: the source is not an app."""
    if Path(source).suffix == ".toml" or not names_object(source):
        return None
    app = import_object(source)
    if not isinstance(app, App):
        return None
    result = stacks(app)
    if not result:
        raise Unreadable(f"{source}: no command, handler or dataset is registered in this app")
    return result


def layers(source: str, /) -> LayersReport:
    """Return the worst case of the stack of a TOML file, or of `module:object`."""
    path = Path(source)
    if path.suffix == ".toml" or path.is_file():
        stack: object = _from_toml(path)
    else:
        if not names_object(source):
            raise Unreadable(f"{source}: no such file; pass a TOML file, or module:object")
        stack = import_object(source)
    try:
        return analyse(stack)
    except (TypeError, ValueError) as wrong:
        raise Unreadable(f"{source}: {wrong}") from wrong


def _durable(name: str, settings: RetrySettings) -> LayersReport:
    backoff = None if settings.backoff == settings.policy.wait else settings.backoff
    timeout: Any = "none" if settings.attempt_timeout is None else settings.attempt_timeout
    policy = replace(settings.policy, timeout=None)  # Workers do not use it.
    return analyse(Layer(name, policy=policy, backoff=backoff, attempt_timeout=timeout))


def _inside(fn: Callable[..., Any] | None) -> LayersReport | None:
    try:
        return None if fn is None or not hasattr(fn, "__redrive__") else analyse(fn)
    except (TypeError, ValueError):  # `redrive layers` reports a stack that cannot be read.
        return None


def _from_toml(path: Path) -> list[Layer]:
    try:
        text = path.read_text(encoding="utf-8-sig")  # Some editors write a byte order mark.
    except (OSError, UnicodeDecodeError) as wrong:
        reason = wrong.strerror if isinstance(wrong, OSError) else "it is not UTF-8 text"
        raise Unreadable(f"{path} cannot be read: {reason}") from wrong
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as wrong:
        raise Unreadable(f"{path} is not valid TOML: {wrong}") from wrong
    for key in content:
        if key != "layer":
            raise Unreadable(f"{path}: unknown {key!r}; use {EXAMPLE}")
    tables = content.get("layer")
    if (
        not isinstance(tables, list)
        or not tables
        or not all(isinstance(table, dict) for table in tables)
    ):
        raise Unreadable(f"{path}: no layers in it; use {EXAMPLE}")
    return [_layer(path, number, table) for number, table in enumerate(tables, 1)]


def _layer(path: Path, number: int, table: Mapping[str, Any]) -> Layer:
    name = table.get("name")
    where = f"{path}: [[layer]] {number}" + (f" ({name})" if isinstance(name, str) and name else "")
    known = (*OWN, *POLICY)
    for key in table:
        if key not in known and key not in ALIASES:
            raise Unreadable(
                f"{where}: unknown key {key!r}{suggest(key, known)}; known: {', '.join(known)}"
            )
    if name is None:
        raise Unreadable(f'{where}: no name; add name = "…"')
    try:
        own = {
            key: table[key] for key in OWN if key in table and key not in ("name", "backoff", "on")
        }
        return Layer(
            name, policy=_policy(table), backoff=_backoff(table), on=_on(table.get("on")), **own
        )
    except (TypeError, ValueError) as wrong:
        raise Unreadable(f"{where}: {wrong}") from wrong


def _policy(table: Mapping[str, Any]) -> RetryPolicy | None:
    values = {key: value for key, value in table.items() if key in POLICY or key in ALIASES}
    policy = RetryPolicy.from_mapping(values) or SERVICE
    # Keys that are left out have the defaults of `retry()`. Waits of other libraries are unknown
    # and count as 0.
    is_ours = table.get("by", "redrive") == "redrive"
    names = {ALIASES.get(key, key) for key in values}
    if not is_ours and "max_attempts" not in names:
        return None
    defaults = SERVICE if is_ours else RetryPolicy(backoff_base=0.0, jitter=0.0)
    return replace(defaults, **{key: getattr(policy, key) for key in names})


def _on(value: object) -> Any:
    """Return the errors of a layer. A status may be a number."""
    if value is None:
        return None
    errors = value if isinstance(value, list) else [value]
    return tuple(
        str(error) if isinstance(error, int) and not isinstance(error, bool) else error
        for error in errors
    )


def _backoff(table: Mapping[str, Any]) -> Backoff | None:
    value = table.get("backoff")
    if value is None:
        return None
    doubled = [key for key in table if ALIASES.get(key, key) in WAITS]
    if doubled:
        raise ValueError(f"backoff sets the waits; remove {', '.join(doubled)}")
    return backoff_from_table(value)
