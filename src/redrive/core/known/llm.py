"""The openai and anthropic SDKs (and what derives from them, as litellm's errors do)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..fault import PERMANENT, TRANSIENT, UNKNOWN, Fault, Kind
from ..retry_after import header
from .look import TIMEOUT, Entry, Judge, Look, read, spent, wrapping
from .status import answered

WORDS: dict[str, Kind] = {
    "overloaded_error": "throttled",
    "rate_limit_error": "throttled",
    "rate_limit_exceeded": "throttled",
    "api_error": "transient",
    "server_error": "transient",
    "timeout_error": "timeout",
}
"""Types and codes of errors that arrive inside a stream, after a status of 200."""
NO_MONEY = frozenset(("insufficient_quota", "billing_hard_limit_reached", "enforced_spend_limit_reached", "billing_error"))
"""Codes that look like throttling (429), but that waiting does not lift."""


def _status(error: Exception, look: Look) -> Fault:
    """By status, by the server's own `x-should-retry`, and by the code in the body."""
    response = read(error, "response")
    fault = answered(response, look) or UNKNOWN
    if _words(error) & NO_MONEY:
        return replace(fault, kind="permanent")
    if fault.kind == "unknown" and fault.status is not None and fault.status >= 500:
        fault = replace(fault, kind="transient")
    if fault.status == 200:
        return replace(_streamed(error, look), status=200)
    match header(read(response, "headers"), "x-should-retry"):
        case "false":
            return replace(fault, kind="permanent")
        case "true" if not fault.retryable:
            return replace(fault, kind="transient")
        case _:
            return fault


def _streamed(error: Exception, look: Look) -> Fault:
    words = _words(error)
    if words & NO_MONEY:
        return PERMANENT
    kinds = [kind for word, kind in WORDS.items() if word in words]
    if kinds:
        return Fault(kinds[0])
    return PERMANENT if words else UNKNOWN


def _words(error: Exception) -> frozenset[str]:
    """Whatever names the cause: attributes of either SDK, and the body's own error."""
    body = read(error, "body")
    inner = body.get("error", body) if isinstance(body, Mapping) else None
    found = [read(error, name) for name in ("code", "type", "error_code")]
    found += [inner.get("code"), inner.get("type")] if isinstance(inner, Mapping) else []
    return frozenset(word for word in found if isinstance(word, str))


def _counted(entry: Entry, library: str) -> Judge:
    """Both SDKs retry twice unless told otherwise, and number each request in a header."""

    def judge(error: Exception, look: Look) -> Fault:
        fault = entry if isinstance(entry, Fault) else entry(error, look)
        request = read(error, "request") or read(read(error, "response"), "request")
        count = header(read(request, "headers"), "x-stainless-retry-count")
        return spent(fault, library) if count is not None and count.isdecimal() and int(count) > 0 else fault

    return judge


_ERRORS: dict[str, Entry] = {
    "APIStatusError": _status,
    "APITimeoutError": wrapping(TIMEOUT, "__cause__"),
    "APIConnectionError": wrapping(TRANSIENT, "__cause__"),
    "APIError": _streamed,
    "RetryableError": TRANSIENT,
}
_FINAL = (
    "APIResponseValidationError",
    "LengthFinishReasonError",
    "ContentFilterFinishReasonError",
    "CredentialsError",
)
KNOWN: dict[str, Entry] = {
    **{f"{library}.{name}": _counted(entry, library) for library in ("openai", "anthropic") for name, entry in _ERRORS.items()},
    **{f"{library}.{name}": PERMANENT for library in ("openai", "anthropic") for name in _FINAL},
}
