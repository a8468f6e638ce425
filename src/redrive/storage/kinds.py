"""Kinds: the types of backends by name, loaded when first used: each needs a client of its own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from .backend import Backend

HOMES = {
    "azure": "redrive.storage.azure:Azure",
    "graph": "redrive.storage.graph:Graph",
    "local": "redrive.storage.local:Local",
    "memory": "redrive.storage.memory:Memory",
    "s3": "redrive.storage.s3:S3",
    "s3-pyarrow": "redrive.storage.s3_arrow:S3Arrow",
    "sftp": "redrive.storage.sftp:Sftp",
}
"""Ours. Another's is named in full: `type = "package.module:Class"`."""
OURS = frozenset(("name", "retry", "clock"))
"""Parameters that are no options."""


def kind(type_: str, /) -> Callable[..., Backend]:
    """The class of a type; ValueError names what is unknown, and what is known."""
    home = HOMES.get(type_, type_)
    module, colon, name = home.partition(":")
    if not colon:
        raise ValueError(f"unknown type of backend {type_!r}{_meant(type_, HOMES)}; known: {', '.join(HOMES)}, or module:Class")
    try:
        found: Callable[..., Backend] = getattr(import_module(module), name)
    except (ImportError, AttributeError) as missing:
        raise ValueError(f"the backend {home} cannot be imported: {missing}") from missing
    return found


def options_of(cls: Callable[..., Backend], /) -> dict[str, bool]:
    """The options that a class takes, and whether each is needed."""
    parameters = inspect.signature(cls).parameters.values()
    return {
        each.name: each.default is each.empty for each in parameters if each.kind is each.KEYWORD_ONLY and each.name not in OURS
    }


def takes_retry(cls: Callable[..., Backend], /) -> bool:
    """Whether it tries anything again by itself."""
    return "retry" in inspect.signature(cls).parameters


def check_options(type_: str, options: Mapping[str, Any], /) -> None:
    """TypeError names an option that is unknown, or one that is missing."""
    known = options_of(kind(type_))
    for name in options:
        if name not in known:
            raise TypeError(f"unknown option {name!r}{_meant(name, known)}; {type_} has {', '.join(known) or 'none'}")
    missing = [name for name, needed in known.items() if needed and name not in options]
    if missing:
        raise TypeError(f"{type_} needs the option {missing[0]!r}")


def _meant(name: str, known: Mapping[str, Any]) -> str:
    close = get_close_matches(name, list(known), 1)
    return f" (did you mean {close[0]!r}?)" if close else ""
