"""SDKs of HTTP APIs: openai, anthropic, stripe, twilio, kubernetes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace

from ...fault import PERMANENT, TRANSIENT, UNKNOWN, Fault, Kind
from .http_responses import fault_of_response, fault_of_status, header, retry_after, status_in
from .inspect import (
    TIMEOUT,
    Entry,
    Inspector,
    as_int,
    fault_of_inner,
    frames_of,
    inner_error,
    loop_counts,
    mark_spent,
    read,
    spent_if,
)

# openai and anthropic (and what derives from them, such as the errors of litellm).

LLM_STREAM_ERRORS: dict[str, Kind] = {
    "overloaded_error": "throttled",
    "rate_limit_error": "throttled",
    "rate_limit_exceeded": "throttled",
    "api_error": "transient",
    "server_error": "transient",
    "timeout_error": "timeout",
}
"""Types and codes of errors that arrive inside a stream, after a status of 200."""
LLM_QUOTA_CODES = frozenset(
    (
        "insufficient_quota",
        "billing_hard_limit_reached",
        "enforced_spend_limit_reached",
        "billing_error",
    )
)
"""Codes with the status 429 that waiting does not fix."""


def _llm_status(error: Exception, inspector: Inspector) -> Fault:
    """Classify by status, by the header `x-should-retry`, and by the code in the body."""
    response = read(error, "response")
    fault = fault_of_response(response, inspector) or UNKNOWN
    if _llm_error_codes(error) & LLM_QUOTA_CODES:
        return replace(fault, kind="permanent")
    if fault.kind == "unknown" and fault.status is not None and fault.status >= 500:
        fault = replace(fault, kind="transient")
    if fault.status == 200:
        return replace(_llm_streamed_error(error, inspector), status=200)
    match header(read(response, "headers"), "x-should-retry"):
        case "false":
            return replace(fault, kind="permanent")
        case "true" if not fault.retryable:
            return replace(fault, kind="transient")
        case _:
            return fault


def _llm_streamed_error(error: Exception, inspector: Inspector) -> Fault:
    codes = _llm_error_codes(error)
    if codes & LLM_QUOTA_CODES:
        return PERMANENT
    kinds = [kind for code, kind in LLM_STREAM_ERRORS.items() if code in codes]
    if kinds:
        return Fault(kinds[0])
    return PERMANENT if codes else UNKNOWN


def _llm_error_codes(error: Exception) -> frozenset[str]:
    """Return the codes and types in the attributes of either SDK, and in the body."""
    codes = [read(error, name) for name in ("code", "type", "error_code")]
    body = read(error, "body")
    inner = body.get("error", body) if isinstance(body, Mapping) else None
    if isinstance(inner, Mapping):
        codes += [inner.get("code"), inner.get("type")]
    return frozenset(code for code in codes if isinstance(code, str))


def _was_retried_by_llm_sdk(error: Exception) -> bool:
    """Return whether an SDK retried: twice by default. A header has the number of retries."""
    request = read(error, "request") or read(read(error, "response"), "request")
    count = header(read(request, "headers"), "x-stainless-retry-count")
    return count is not None and count.isdecimal() and int(count) > 0


_LLM_RETRIED: dict[str, Entry] = {
    "APIStatusError": _llm_status,
    "APITimeoutError": fault_of_inner(TIMEOUT, "__cause__"),
    "APIConnectionError": fault_of_inner(TRANSIENT, "__cause__"),
    "APIError": _llm_streamed_error,
    "RetryableError": TRANSIENT,
}
_LLM_FINAL = (
    "APIResponseValidationError",
    "LengthFinishReasonError",
    "ContentFilterFinishReasonError",
    "CredentialsError",
)
_LLM: dict[str, Entry] = {
    **{
        f"{library}.{name}": spent_if(_was_retried_by_llm_sdk, entry, library)
        for library in ("openai", "anthropic")
        for name, entry in _LLM_RETRIED.items()
    },
    **{
        f"{library}.{name}": PERMANENT for library in ("openai", "anthropic") for name in _LLM_FINAL
    },
}


# stripe, twilio and kubernetes.


def _stripe(error: Exception, inspector: Inspector) -> Fault:
    """Classify as the client of stripe does: by its header, and 409 (a lock) is retryable."""
    status = as_int(read(error, "http_status"))
    if status is None:
        return UNKNOWN
    headers = read(error, "headers")
    fault = fault_of_status(status, retry_after(headers, now=inspector.now))
    should_retry = header(headers, "stripe-should-retry")
    if should_retry == "false":
        return replace(fault, kind="permanent")
    if (should_retry == "true" or status == 409) and not fault.retryable:
        fault = replace(fault, kind="transient")
    is_retried = should_retry == "true" or status == 409 or status >= 500
    return mark_spent(fault, "stripe") if is_retried and _stripe_retries(error) else fault


def _stripe_retries(error: Exception) -> bool:
    """Return whether the client of stripe retries. Its errors do not say how often it did."""
    default = as_int(read(sys.modules.get("stripe"), "max_network_retries")) or 0
    for function in ("request", "request_async"):
        for frame in frames_of(error, "stripe/_api_requestor.py", function):
            options = read(frame.f_locals.get("requestor"), "_options")
            own = as_int(read(options, "max_network_retries"))
            return (default if own is None else own) > 0
    return False


def _stripe_connection(error: Exception, inspector: Inspector) -> Fault:
    inner = inspector.classify(inner_error(error, "__cause__", "__context__"))
    if inner.kind == "unknown":
        inner = PERMANENT if read(error, "should_retry") is False else TRANSIENT
    counts = [
        count
        for name in ("_request_with_retries_internal", "_request_with_retries_internal_async")
        for count in loop_counts(error, "stripe/_http_client.py", name, "num_retries")
    ]
    return mark_spent(inner, "stripe") if any(counts) else inner


_KUBERNETES: dict[str, Entry] = {
    "ApiException": status_in("status"),
    "ConfigException": PERMANENT,
    "OpenApiException": PERMANENT,
}
_APIS: dict[str, Entry] = {
    "stripe.StripeError": _stripe,
    "stripe.APIConnectionError": _stripe_connection,
    "stripe.SignatureVerificationError": PERMANENT,
    "twilio.TwilioRestException": status_in("status"),
    "twilio.TwilioException": UNKNOWN,
    **{
        f"{library}.{name}": entry
        for library in ("kubernetes", "kubernetes_asyncio")
        for name, entry in _KUBERNETES.items()
    },
}
FAMILIES: dict[str, dict[str, Entry]] = {"llm": _LLM, "api": _APIS}
