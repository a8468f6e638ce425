"""Clients of HTTP APIs whose errors carry a status: stripe, twilio, kubernetes."""

from __future__ import annotations

import sys
from dataclasses import replace

from ..fault import PERMANENT, TRANSIENT, UNKNOWN, Fault
from ..retry_after import header, retry_after
from .look import Entry, Judge, Look, beneath, passed, read, spent, whole
from .status import by_status

STRIPE = "stripe"


def _by_status(name: str) -> Judge:
    """By the status in this attribute, and by Retry-After where the error has the response's headers."""

    def judge(error: Exception, look: Look) -> Fault:
        status = whole(read(error, name))
        return UNKNOWN if status is None else by_status(status, retry_after(read(error, "headers"), now=look.now))

    return judge


def _stripe(error: Exception, look: Look) -> Fault:
    """As stripe's own client decides: by its header, and 409 (a lock, or the same key in use) is worth another attempt."""
    status = whole(read(error, "http_status"))
    if status is None:
        return UNKNOWN
    headers = read(error, "headers")
    fault = by_status(status, retry_after(headers, now=look.now))
    word = header(headers, "stripe-should-retry")
    if word == "false":
        return replace(fault, kind="permanent")
    if (word == "true" or status == 409) and not fault.retryable:
        fault = replace(fault, kind="transient")
    retried = word == "true" or status == 409 or status >= 500
    return spent(fault, STRIPE) if retried and _stripe_retries(error) else fault


def _stripe_retries(error: Exception) -> bool:
    """Whether stripe's client retries: its errors do not say how often it did."""
    default = whole(read(sys.modules.get(STRIPE), "max_network_retries")) or 0
    for function in ("request", "request_async"):
        for frame in passed(error, "stripe/_api_requestor.py", function):
            options = read(frame.f_locals.get("requestor"), "_options")
            own = whole(read(options, "max_network_retries"))
            return (default if own is None else own) > 0
    return False


def _stripe_connection(error: Exception, look: Look) -> Fault:
    inner = look.at(beneath(error, "__cause__", "__context__"))
    if inner.kind == "unknown":
        inner = PERMANENT if read(error, "should_retry") is False else TRANSIENT
    counts = [
        whole(frame.f_locals.get("num_retries")) or 0
        for name in ("_request_with_retries_internal", "_request_with_retries_internal_async")
        for frame in passed(error, "stripe/_http_client.py", name)
    ]
    return spent(inner, STRIPE) if any(counts) else inner


_KUBERNETES: dict[str, Entry] = {
    "ApiException": _by_status("status"),
    "ConfigException": PERMANENT,
    "OpenApiException": PERMANENT,
}
KNOWN: dict[str, Entry] = {
    "stripe.StripeError": _stripe,
    "stripe.APIConnectionError": _stripe_connection,
    "stripe.SignatureVerificationError": PERMANENT,
    "twilio.TwilioRestException": _by_status("status"),
    "twilio.TwilioException": UNKNOWN,
    **{f"{library}.{name}": entry for library in ("kubernetes", "kubernetes_asyncio") for name, entry in _KUBERNETES.items()},
}
