"""Where a stack of layers is written down: a TOML file, or an object in the user's code."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from ... import backoff as backoffs
from ...analysis.advice import Advice
from ...analysis.layer import Layer
from ...analysis.report import LayersReport
from ...analysis.report import layers as analysed
from ...analysis.worst_case import WorstCaseError, WorstCaseLayer
from ...app import App
from ...core.policy import ALIASES, SERVICE, RetryPolicy
from ..target.imported import Unreadable, imported, meant
from .app import Stack, stacks

__all__ = ["Advice", "LayersReport", "Stack", "Unreadable", "WorstCaseError", "WorstCaseLayer", "layers", "of_app"]

POLICY = tuple(field.name for field in fields(RetryPolicy))
OWN = ("name", "by", "on", "nested", "seen", "attempt_timeout", "backoff", "budget")
WAITS = ("backoff_base", "backoff_max", "jitter")
FORMS = {
    "steps": ("jitter",),
    "fixed": ("jitter",),
    "powers": ("cap", "jitter"),
    "doubling": ("cap", "jitter"),
    "full_jitter": ("cap",),
}
"""The backoffs of `redrive.backoff`, with what each takes beside its first value."""
EXAMPLE = "[[layer]] tables, the outermost first, each with a name and what differs from the defaults"


def of_app(source: str, /) -> list[Stack] | None:
    """What tries again in an app, kind by kind; None: what is named is no app."""
    module, colon, name = source.partition(":")
    if Path(source).suffix == ".toml" or not (colon and module and name):
        return None
    found = imported(module, name)
    if not isinstance(found, App):
        return None
    kinds = stacks(found)
    if not kinds:
        raise Unreadable(f"{source}: no command, handler or dataset is registered in this app")
    return kinds


def layers(source: str, /) -> LayersReport:
    """What the stack of a TOML file, or of `module:object`, can do in the worst case."""
    path = Path(source)
    if path.suffix == ".toml" or path.is_file():
        return _analysed(source, _from_toml(path))
    module, colon, name = source.partition(":")
    if not colon or not module or not name:
        raise Unreadable(f"{source}: no such file; pass a TOML file, or module:object")
    return _analysed(source, imported(module, name))


def _analysed(source: str, stack: object) -> LayersReport:
    try:
        return analysed(stack)
    except (TypeError, ValueError) as wrong:
        raise Unreadable(f"{source}: {wrong}") from wrong


def _from_toml(path: Path) -> list[Layer]:
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors begin a file with a mark
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
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise Unreadable(f"{path}: no layers in it; use {EXAMPLE}")
    return [_layer(path, number, table) for number, table in enumerate(tables, 1)]


def _layer(path: Path, number: int, table: Mapping[str, Any]) -> Layer:
    name = table.get("name")
    where = f"{path}: [[layer]] {number}" + (f" ({name})" if isinstance(name, str) and name else "")
    known = (*OWN, *POLICY)
    for key in table:
        if key not in known and key not in ALIASES:
            raise Unreadable(f"{where}: unknown key {key!r}{meant(key, known)}; known: {', '.join(known)}")
    if name is None:
        raise Unreadable(f'{where}: no name; add name = "…"')
    try:
        own = {key: table[key] for key in OWN if key in table and key not in ("name", "backoff", "on")}
        return Layer(name, policy=_policy(table), backoff=_backoff(table), on=_on(table.get("on")), **own)
    except (TypeError, ValueError) as wrong:
        raise Unreadable(f"{where}: {wrong}") from wrong


def _policy(table: Mapping[str, Any]) -> RetryPolicy | None:
    given = {key: value for key, value in table.items() if key in POLICY or key in ALIASES}
    said = RetryPolicy.from_mapping(given) or SERVICE
    # What is left out is as `retry()` has it; of another library nothing is known, and unknown waits count as none.
    ours = table.get("by", "redrive") == "redrive"
    names = {ALIASES.get(key, key) for key in given}
    if not ours and "max_attempts" not in names:
        return None
    before = SERVICE if ours else RetryPolicy(backoff_base=0.0, jitter=0.0)
    return replace(before, **{key: getattr(said, key) for key in names})


def _on(value: object) -> Any:
    """A status may be written as the number it is."""
    if value is None:
        return None
    given = value if isinstance(value, list) else [value]
    return tuple(str(error) if isinstance(error, int) and not isinstance(error, bool) else error for error in given)


def _backoff(table: Mapping[str, Any]) -> backoffs.Backoff | None:
    value = table.get("backoff")
    if value is None:
        return None
    doubled = [key for key in table if ALIASES.get(key, key) in WAITS]
    if doubled:
        raise ValueError(f"backoff sets the waits; remove {', '.join(doubled)}")
    if isinstance(value, list):
        value = {"steps": value}
    form = [key for key in value if key in FORMS] if isinstance(value, dict) else []
    if len(form) != 1 or set(value) - {*form, *FORMS[form[0]]}:
        raise ValueError(
            "backoff must be a list of seconds, or one of { fixed = 5 }, { steps = [1, 10], jitter = 0.1 }, "
            f"{{ powers = 2, cap = 60 }}, {{ doubling = 0.1, cap = 10 }}, {{ full_jitter = 0.5, cap = 30 }}, not {value!r}"
        )
    first = value[form[0]]
    rest = {key: value[key] for key in value if key != form[0]}
    if "cap" in FORMS[form[0]] and "cap" not in rest:
        raise ValueError(f"backoff {form[0]} needs a cap, in seconds")
    made: backoffs.Backoff = getattr(backoffs, form[0])(
        *(first if form[0] == "steps" and isinstance(first, list) else [first]), **rest
    )
    return made
