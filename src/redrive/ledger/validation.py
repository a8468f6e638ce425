"""Checks of names, keys, payloads and errors, so that both databases can store them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from json.encoder import encode_basestring_ascii as quoted

from ..core.context import ids_around
from ..core.seconds import check_dated, number
from ..journal.redaction import redact_text
from .model import PRIORITIES, NewJob, Settlement
from .tags import check_tags
from .timestamps import to_micros

MAX_PAYLOAD_BYTES = 1024 * 1024
"""Put larger data into storage and its path into the payload."""
MAX_KIND_BYTES = 200
MAX_KEY_BYTES = 1000
"""Postgres cannot index more than about 2,700 bytes."""
MAX_MAPPING_BYTES = 64 * 1024
"""Limit for the headers of a job and for its correlation ids, names and values together."""
_NOT_IN_JSON = re.compile("[\0\ud800-\udfff]")
MAX_ERROR_CHARS = 8_000
"""The beginning and the end of a longer error are stored."""


def check_job(job: NewJob, max_payload: int, /) -> NewJob:
    """Check a job and add the correlation ids of the caller.

    Raises:
        TypeError: A value has the wrong type.
        ValueError: A value is out of range.
    """
    if not isinstance(job, NewJob):
        raise TypeError(f"submit takes NewJob, not {type(job).__name__}: {job!r}")
    check_name("kind", job.kind, MAX_KIND_BYTES)
    check_name("key", job.key, MAX_KEY_BYTES)
    check_payload(f"{job.kind}: payload", job.payload, max_payload)
    if job.headers:
        check_headers(job.headers)
    if job.ids:
        check_mapping("ids", job.ids)
    if job.tags:
        check_tags(job.tags)
    if isinstance(job.priority, bool) or job.priority not in PRIORITIES:
        raise ValueError(
            f"priority must be a whole number from {PRIORITIES[0]} (first) to "
            f"{PRIORITIES[-1]} (last), not {job.priority!r}"
        )
    check_dated("delay", number("delay", job.delay))
    if job.keep is not None:
        check_dated("keep", number("keep", job.keep))
    if job.max_attempts is not None and (
        isinstance(job.max_attempts, bool) or not 1 <= job.max_attempts < 2**31
    ):
        raise ValueError(f"max_attempts must be at least 1: {job.max_attempts!r}")
    if job.tenant is not None:
        check_name("tenant", job.tenant, MAX_KIND_BYTES)
    if job.sequence is not None:
        check_name("sequence", job.sequence, MAX_KIND_BYTES)
    for timestamp in (job.due, job.deadline):
        if timestamp is not None:
            to_micros(timestamp)
    # Read the ids here, in the caller's context. Another thread may write the job.
    return job._replace(ids=around) if job.ids is None and (around := ids_around()) else job


def check_settlements(settlements: Sequence[Settlement], max_payload: int, /) -> None:
    """Reject settlements that cannot be stored."""
    for settlement in settlements:
        if not isinstance(settlement, Settlement):
            raise TypeError(
                "a settlement must come from its lease (lease.done(), lease.again(...)), "
                f"not {settlement!r}"
            )
        if settlement.result is not None:
            check_payload("result", settlement.result, max_payload)
        if settlement.after:
            check_dated("after", number("after", settlement.after))
        if settlement.until is not None:
            to_micros(settlement.until)


def check_name(label: str, value: object, max_bytes: int, /) -> None:
    """Reject a name that is empty, too long or not printable."""
    if not isinstance(value, str):
        raise TypeError(f"{label} must be text, not {type(value).__name__}: {value!r}")
    if not value or not value.isprintable():
        raise ValueError(f"{label} must be printable and not empty: {value!r}")
    if len(value) * 4 > max_bytes and len(value.encode()) > max_bytes:
        size = len(value.encode())
        raise ValueError(
            f"{label} must not be longer than {max_bytes} bytes: {value[:60]!r}… has {size}"
        )


def check_payload(label: str, value: object, max_bytes: int, /) -> None:
    """Reject a value that is not bytes, or too large."""
    if not isinstance(value, bytes):
        raise TypeError(f"{label} must be bytes, not {type(value).__name__}")
    if len(value) > max_bytes:
        raise ValueError(
            f"{label} has {len(value)} bytes; the ledger takes at most {max_bytes}; "
            "store it elsewhere, and pass its path"
        )


def check_mapping(label: str, value: Mapping[str, str], /) -> None:
    """Reject headers or ids that are not text, or too large. Errors do not show their values."""
    size = 0
    for key, item in value.items():
        if not isinstance(key, str) or not isinstance(item, str):
            raise TypeError(
                f"{label} must be a mapping of text to text: {key!r:.60} is {type(item).__name__}"
            )
        size += len(key) + len(item)
    if size * 4 > MAX_MAPPING_BYTES:
        texts = [text for pair in value.items() for text in pair]
        size = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
    if size > MAX_MAPPING_BYTES:
        raise ValueError(
            f"{label} have {size} bytes; the ledger takes at most {MAX_MAPPING_BYTES}; "
            "put large values into the payload"
        )


def check_headers(headers: Mapping[str, str], /) -> None:
    """Reject headers that are not text, too large, or that Postgres cannot read from JSON."""
    check_mapping("headers", headers)
    for name, value in headers.items():
        if _NOT_IN_JSON.search(name + value):
            raise ValueError(
                f"header {name!r:.60} has a NUL character or a lone surrogate, which a ledger "
                "cannot store; encode the value, for example as base64"
            )


def to_json(label: str, value: Mapping[str, str] | None, /) -> str | None:
    """Serialize headers or ids. None if there are none."""
    if not value:
        return None
    try:  # `json.dumps` makes an encoder for each call, which takes longer than the text
        return (
            "{" + ",".join([f"{quoted(key)}:{quoted(item)}" for key, item in value.items()]) + "}"
        )
    except TypeError:
        raise TypeError(f"{label} must be a mapping of text to text: {dict(value)!r}") from None


def storable_text(text: str | None, /) -> str | None:
    """Redact, truncate and clean an error or a reason, so that both databases can store it."""
    if text is None:
        return None
    redacted = redact_text(str(text))
    if len(redacted) > MAX_ERROR_CHARS:
        half, left_out = MAX_ERROR_CHARS // 2, len(redacted) - MAX_ERROR_CHARS
        redacted = f"{redacted[:half]}\n… {left_out} characters left out …\n{redacted[-half:]}"
    return redacted.replace("\x00", "�").encode("utf-8", "replace").decode()
