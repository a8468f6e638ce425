"""What the ledger takes: names, keys, payloads and errors that both databases can hold. Anything else is refused at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from json.encoder import encode_basestring_ascii as quoted

from ..core.context import ids_around
from ..core.seconds import check_dated, number
from ..journal.redaction import redact_text
from .db.types import micros
from .record import NewJob, Settlement
from .state import PRIORITIES

MAX_PAYLOAD = 1024 * 1024
"""Bytes. A ledger carries work, not files: put those into storage and the path into the payload."""
MAX_KIND = 200
MAX_KEY = 1000
"""Bytes. Postgres cannot index what is longer than about 2,700."""
MAX_BESIDE = 64 * 1024
"""Bytes of the headers beside a payload, and of the correlation ids: names and values together, in UTF-8."""
MAX_ERROR = 8_000
"""Characters kept of an error; the beginning and the end say most."""


def checked(job: NewJob, max_payload: int, /) -> NewJob:
    """The job, with the correlation ids around; or a TypeError or ValueError that names what is wrong with it."""
    if not isinstance(job, NewJob):
        raise TypeError(f"submit takes NewJob, not {type(job).__name__}: {job!r}")
    name("kind", job.kind, MAX_KIND)
    name("key", job.key, MAX_KEY)
    payload(f"{job.kind}: payload", job.payload, max_payload)
    if job.headers:
        beside("headers", job.headers)
    if job.ids:
        beside("ids", job.ids)
    if isinstance(job.priority, bool) or job.priority not in PRIORITIES:
        raise ValueError(
            f"priority must be a whole number from {PRIORITIES[0]} (first) to {PRIORITIES[-1]} (last), not {job.priority!r}"
        )
    check_dated("delay", number("delay", job.delay))
    if job.keep is not None:
        check_dated("keep", number("keep", job.keep))
    if job.max_attempts is not None and (isinstance(job.max_attempts, bool) or not 1 <= job.max_attempts < 2**31):
        raise ValueError(f"max_attempts must be at least 1: {job.max_attempts!r}")
    for moment in (job.due, job.deadline):
        if moment is not None:
            micros(moment)
    # Here, since this is the caller's own context; whoever writes may be another thread, for many.
    return job._replace(ids=around) if job.ids is None and (around := ids_around()) else job


def settlements(given: Sequence[Settlement], max_payload: int, /) -> None:
    """Refuse what cannot be stored of attempts' ends."""
    for one in given:
        if not isinstance(one, Settlement):
            raise TypeError(f"a settlement must come from its lease (lease.done(), lease.again(...)), not {one!r}")
        if one.result is not None:
            payload("result", one.result, max_payload)
        if one.after:
            check_dated("after", number("after", one.after))
        if one.until is not None:
            micros(one.until)


def name(what: str, value: object, limit: int, /) -> None:
    """Refuse a name that is empty, too long, or cannot be printed."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be text, not {type(value).__name__}: {value!r}")
    if not value or not value.isprintable():
        raise ValueError(f"{what} must be printable and not empty: {value!r}")
    if len(value) * 4 > limit and len(value.encode()) > limit:
        raise ValueError(f"{what} must not be longer than {limit} bytes: {value[:60]!r}… has {len(value.encode())}")


def payload(what: str, value: object, limit: int, /) -> None:
    """Refuse what is no bytes, or too many of them."""
    if not isinstance(value, bytes):
        raise TypeError(f"{what} must be bytes, not {type(value).__name__}")
    if len(value) > limit:
        raise ValueError(
            f"{what} has {len(value)} bytes; the ledger takes at most {limit}; store it elsewhere, and pass its path"
        )


def beside(what: str, value: Mapping[str, str], /) -> None:
    """Refuse headers or ids that are not text, or too many bytes of it. Their values are not shown: they may be secrets."""
    size = 0
    for key, item in value.items():
        if not isinstance(key, str) or not isinstance(item, str):
            raise TypeError(f"{what} must be a mapping of text to text: {key!r:.60} is {type(item).__name__}")
        size += len(key) + len(item)
    if size * 4 > MAX_BESIDE:
        size = sum(len(text.encode("utf-8", "surrogatepass")) for pair in value.items() for text in pair)
    if size > MAX_BESIDE:
        raise ValueError(f"{what} have {size} bytes; the ledger takes at most {MAX_BESIDE}; put large values into the payload")


def mapping(what: str, value: Mapping[str, str] | None, /) -> str | None:
    """As JSON text; nothing at all for an empty one."""
    if not value:
        return None
    try:  # `json.dumps` makes an encoder for each call, which takes longer than the text
        return "{" + ",".join([f"{quoted(key)}:{quoted(item)}" for key, item in value.items()]) + "}"
    except TypeError:
        raise TypeError(f"{what} must be a mapping of text to text: {dict(value)!r}") from None


def words(text: str | None, /) -> str | None:
    """An error or a reason as it may be kept: without secrets, of bounded length, storable in both databases."""
    if text is None:
        return None
    kept = redact_text(str(text))
    if len(kept) > MAX_ERROR:
        kept = f"{kept[: MAX_ERROR // 2]}\n… {len(kept) - MAX_ERROR} characters left out …\n{kept[-MAX_ERROR // 2 :]}"
    return kept.replace("\x00", "�").encode("utf-8", "replace").decode()
