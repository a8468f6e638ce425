"""Headers that Redrive adds to each request, and checks of the headers that the caller passes."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import Any

from ..core.context import IDS
from ..core.correlation_ids import shorten_id

REQUEST_ID = "x-request-id"
IDEMPOTENCY_KEY = "idempotency-key"
USER = "x-user-id"
ATTEMPT = "x-attempt"
AUTHORIZATION = "authorization"
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?")


def check_value(name: str, value: object, /) -> str:
    """Return a header value that is printable ASCII.

    Errors do not quote the value, because it may be a secret.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name} must be text, not {type(value).__name__}")
    if not _VALUE.fullmatch(value):
        raise ValueError(f"{name} must be printable ASCII without spaces around it, as headers are")
    return value


def check_headers(headers: Mapping[str, str] | None, /) -> dict[str, str]:
    """Return the caller's headers by lower-case name."""
    if headers is None:
        return {}
    if not isinstance(headers, Mapping):
        raise TypeError(
            f"headers= must be a mapping of names to text, not {type(headers).__name__}"
        )
    checked = {}
    for name, value in headers.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(f"headers= has an invalid name: {name!r}")
        checked[name.lower()] = check_value(f"header {name!r}", value) if value != "" else ""
    return checked


def current_request_id() -> str:
    """Return the id set by `correlate(request_id=...)`, or a new id."""
    request_id = IDS.get().get("request_id")
    if request_id is None:
        return os.urandom(16).hex()
    request_id = shorten_id(request_id)  # Jobs stored by older versions may have longer ids.
    return request_id if _VALUE.fullmatch(request_id) else os.urandom(16).hex()


def trace_headers() -> dict[str, str]:
    """Return `traceparent` and `tracestate` of the current OpenTelemetry span, if there is one."""
    opentelemetry: Any = sys.modules.get("opentelemetry.trace")
    if opentelemetry is None:
        return {}
    try:
        context = opentelemetry.get_current_span().get_span_context()
        if not context.is_valid:
            return {}
        ids = f"{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
        headers = {"traceparent": f"00-{ids}"}
        state = context.trace_state.to_header() if context.trace_state else ""
        return {**headers, "tracestate": state} if state else headers
    except Exception:  # A custom tracer must not prevent the call.
        return {}
