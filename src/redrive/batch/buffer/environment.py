"""The numbers of a send buffer, from the environment. An error names the variable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ...core.seconds import number, positive, whole


class Numbers(NamedTuple):
    """What the environment can say; the defaults are those of the document that this buffer comes from."""

    retries: int = 3
    """After the first attempt."""
    backoff: float = 0.1
    """Seconds."""
    timeout: float = 30.0
    """Seconds for one attempt."""
    max_batch_size: int = 50
    flush_interval: float = 0.1
    """Seconds."""


VARIABLES = {
    "retries": "REDRIVE_SIGNAL_SEND_RETRIES",
    "backoff": "REDRIVE_SIGNAL_SEND_BACKOFF_MS",
    "timeout": "REDRIVE_GRPC_TIMEOUT",
    "max_batch_size": "REDRIVE_SIGNAL_MAX_BATCH_SIZE",
    "flush_interval": "REDRIVE_SIGNAL_FLUSH_INTERVAL",
}


def numbers(environ: Mapping[str, str]) -> Numbers:
    """What is set, checked; the default of what is not."""
    given = {name: _parsed(name, variable, environ[variable]) for name, variable in VARIABLES.items() if variable in environ}
    return Numbers(**given)  # type: ignore[arg-type]  # each is parsed as its name wants it


def _parsed(name: str, variable: str, text: str) -> float:
    counts = name in ("retries", "max_batch_size")
    try:
        value = int(text) if counts else float(text)
    except ValueError:
        kind = "a whole number" if counts else "a number of milliseconds" if name == "backoff" else "a number of seconds"
        raise ValueError(f"{variable} must be {kind}, not {text!r}") from None
    if counts:
        return whole(variable, value, least=0 if name == "retries" else 1)
    if name == "backoff":
        return number(variable, value) / 1000
    return positive(variable, value) if name == "timeout" else number(variable, value)
