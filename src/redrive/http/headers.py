"""Headers: what every request carries beside the caller's own."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import Any

from ..core.context import IDS
from ..core.ids import shortened

REQUEST_ID, KEY, USER, ATTEMPT, AUTHORIZATION = "x-request-id", "idempotency-key", "x-user-id", "x-attempt", "authorization"
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?")


def text(what: str, value: object, /) -> str:
    """A value that a header can hold: printable ASCII. Its own text is not told, since it may be a secret."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be text, not {type(value).__name__}")
    if not _VALUE.fullmatch(value):
        raise ValueError(f"{what} must be printable ASCII without spaces around it, as headers are")
    return value


def given(headers: Mapping[str, str] | None, /) -> dict[str, str]:
    """The caller's headers, checked, by lower-case name."""
    if headers is None:
        return {}
    if not isinstance(headers, Mapping):
        raise TypeError(f"headers= must be a mapping of names to text, not {type(headers).__name__}")
    found = {}
    for name, value in headers.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(f"headers= has an invalid name: {name!r}")
        found[name.lower()] = text(f"header {name!r}", value) if value != "" else ""
    return found


def request_id() -> str:
    """The id of the request that is being served (`correlate(request_id=...)`), or a fresh one."""
    known = IDS.get().get("request_id")
    if known is None:
        return os.urandom(16).hex()
    known = shortened(known)  # those of a job from an older version were not bounded
    return known if _VALUE.fullmatch(known) else os.urandom(16).hex()


def trace() -> dict[str, str]:
    """`traceparent`, and `tracestate` where there is one, of the OpenTelemetry span around; nothing where there is none."""
    opentelemetry: Any = sys.modules.get("opentelemetry.trace")
    if opentelemetry is None:
        return {}
    try:
        context = opentelemetry.get_current_span().get_span_context()
        if not context.is_valid:
            return {}
        found = {"traceparent": f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"}
        state = context.trace_state.to_header() if context.trace_state else ""
        return {**found, "tracestate": state} if state else found
    except Exception:  # a tracer of somebody's own: no reason not to call
        return {}
