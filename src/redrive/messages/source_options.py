"""Checks of options that the sources of all engines have. Pure."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from ..core.seconds import whole_number
from .event import MAX_NAME_BYTES
from .source import MAX_BATCH


def check_texts(source: object, /, *names: str) -> None:
    """Reject fields of a source that are not text. `group` may be empty.

    Raises:
        ValueError: A field is not text, empty or not printable. The message shows no address.
    """
    for name in names:
        value = getattr(source, name)
        is_text = isinstance(value, str) and value.strip() and value.isprintable()
        if not is_text and (name, value) != ("group", ""):
            shown = "" if name == "url" else f": {value!r}"
            raise ValueError(
                f"{type(source).__name__}: {name} must be text, printable and not empty{shown}"
            )


def check_reading(source: Any, kind: str, /, dead: str, *, takes: str = "a Message") -> None:
    """Reject a name that is too long, and invalid options of reading.

    Args:
        source: The source.
        kind: What its name stands for, such as `queue`.
        dead: The option for dead letters, such as `dead_exchange`.
        takes: What `decode=` takes.

    Raises:
        TypeError: `decode` is not a function.
        ValueError: Another option is not valid.
    """
    owner, name = type(source).__name__, source.name
    if len(name.encode()) > MAX_NAME_BYTES:
        raise ValueError(
            f"{owner}: the {kind}'s name must not be longer than {MAX_NAME_BYTES} bytes: "
            f"{name[:60]!r}…"
        )
    if whole_number("batch", source.batch) > MAX_BATCH:
        raise ValueError(f"{owner}: batch= must be at most {MAX_BATCH}: {source.batch!r}")
    if source.decode is not None and not callable(source.decode):
        raise TypeError(
            f"{owner}: decode= must be a function from {takes} to an Event, not {source.decode!r}"
        )
    if getattr(source, dead) == name:
        raise ValueError(
            f"{owner}: dead letters in {name!r} would be read as messages; change {dead}="
        )


def parse_server(server: str, default_port: int, example: str, /) -> tuple[str, int]:
    """Return host and port of a server in an address.

    Raises:
        ValueError: It is not host:port. The message does not contain it.
    """
    try:
        parts = urlsplit(f"//{server}")
        port = parts.port or default_port
    except ValueError:
        parts, port = urlsplit(""), 0
    if not parts.hostname or parts.netloc != server or "@" in server:
        raise ValueError(f"each server must be host or host:port, such as {example}")
    return parts.hostname, port


def join_server(host: str, port: int, /) -> str:
    """Return host and port as text, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
