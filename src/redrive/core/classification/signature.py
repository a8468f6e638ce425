"""Error signatures: equal for errors that have the same cause.

A signature is the type and the message, without ids, numbers and quoted words. The HTTP status, the
host and the error code (SQLSTATE, gRPC status, botocore code, errno) stay: a 404 and a 403, or two
hosts, are different causes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ..text import safe_str
from .classify import classify
from .known.grpc import code_name_of
from .known.inspect import read

MAX_SIGNATURE_CHARS = 200
MAX_CHAINED_ERRORS = 5
"""Errors that are searched for details: the error, and those that it wraps."""

_REASON_PHRASES = (
    r"Bad|Client Error|Conflict|Content Too Large|Forbidden|Found|Gateway|Gone|Internal Server"
    r"|Locked|Method Not|Not|Payment|Payload|Precondition|Proxy|Request|Requested|Server Error"
    r"|Service|Too Many|Unauthorized|Unavailable|Unprocessable"
)
"""Beginnings of the reason phrases of HTTP."""
_URL = re.compile(
    r"([a-zA-Z][a-zA-Z0-9+.-]*://)(?:[^\s/'\"<>?#]*@)?([^\s/'\"<>?#@]*[\w\]])"
    r"(?:[^\s'\"<>]*[^\s'\"<>.,:;)\]])?"
)
_STATUS = re.compile(
    rf"(?:^|(?<=: ))[45]\d\d(?=$|[\s,:;])"
    rf"|(?<![\w.])[45]\d\d(?= (?:{_REASON_PHRASES})\b)"
    rf"|(?i:(?<=status )|(?<=status: )|(?<=status=)|(?<=code )|(?<=code: )|(?<=code=)"
    rf"|(?<=HTTP )|(?<=HTTP/1\.1 )|(?<=HTTP/2 ))"
    rf"[45]\d\d\b",
)
_HOST = re.compile(
    r"(?:\bhost(?:name| name)?|\bserver at)[=:\s]+(['\"])([\w.:-]+)\1", re.IGNORECASE
)
_ERRNO = re.compile(r"\[Errno -?\d+\]")
_PLACEHOLDER = re.compile("[\ue000-\uf8ff]")
"""Private-use characters stand for kept words while the rest of a message is reduced."""

# In this order: quoted words may contain anything, ids contain numbers, and lists contain both. The
# apostrophe in "don't" neither begins nor ends a quotation.
_QUOTED = re.compile(r"""(?:(?<!\w)|\b[bru])'(?:[^'\n]|'(?=\w))*'(?!\w)|"[^"\n]*"|`[^`\n]*`""")
_REPLACEMENTS = (
    (re.compile(r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"), "#"),
    (re.compile(r"[^\s@<>()\[\],;:]+@[^\s@<>()\[\],;:]+"), "…"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b|\b(?=[a-zA-Z_-]*\d)[0-9a-zA-Z_-]{6,}\b"), "#"),
    (re.compile(r"\d+(?:[.,:]\d+)*"), "#"),
    (
        re.compile(r"([\[{])(?:[\s,:#…\[\]{}-]|\b(?:[Nn]one|null|[Tt]rue|[Ff]alse)\b)*([\]}])"),
        r"\1…\2",
    ),
    (re.compile(r"\s+"), " "),
)


def signature(error: BaseException, /) -> str:
    """Return the signature of an error, such as `ConnectionError: no answer from # after # s`."""
    return signature_of(type(error).__name__, safe_str(error), *_details(error))


def signature_of(kind: str, message: str, /, *details: str) -> str:
    """Return the signature of a type and a message.

    Args:
        kind: Name of the type.
        message: The message.
        details: Status, host and code. Those that the message lacks are added.
    """
    words: list[str] = []

    def keep(word: str) -> str:
        words.append(word)
        return chr(0xE000 + len(words) - 1)

    text = _PLACEHOLDER.sub("", message[: 4 * MAX_SIGNATURE_CHARS]).partition("\n")[0]
    text = _HOST.sub(
        lambda match: match[0].replace(f"{match[1]}{match[2]}{match[1]}", keep(match[2])), text
    )
    text = _URL.sub(lambda match: keep(f"{match[1]}{match[2]}/…"), text)
    for pattern in (_STATUS, _ERRNO):
        text = pattern.sub(lambda match: keep(match[0]), text)
    text = _QUOTED.sub(lambda match: " ".join(_PLACEHOLDER.findall(match[0])) or "…", text)
    for pattern, replacement in _REPLACEMENTS:
        text = pattern.sub(replacement, text)
    text = _PLACEHOLDER.sub(lambda match: words[ord(match[0]) - 0xE000], text).strip()
    missing = [detail for detail in details if detail not in text]
    head = f"{kind} ({', '.join(missing)})" if missing else kind
    result = f"{head}: {text}" if text else head
    if len(result) <= MAX_SIGNATURE_CHARS:
        return result
    return result[: MAX_SIGNATURE_CHARS - 1] + "…"


def _details(error: BaseException) -> list[str]:
    """Return the status, code and host of an error or of those that it wraps. Never raises."""
    status = host = code = None
    for link in _chain(error):
        status = status or _status(link)
        host = host or _host(link)
        code = code or _code(link)
    return [detail for detail in (status, code, host) if detail]


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    link: object = error
    while isinstance(link, BaseException) and len(seen) < MAX_CHAINED_ERRORS:
        if any(link is other for other in seen):
            return
        yield link
        seen.append(link)
        inner = read(link, "orig")  # of SQLAlchemy
        link = inner if isinstance(inner, BaseException) else link.__cause__


def _status(error: BaseException) -> str | None:
    status = classify(error).status if isinstance(error, Exception) else None
    return None if status is None else str(status)


def _host(error: BaseException) -> str | None:
    """Return the host and port of a request of httpx, requests, aiohttp and others."""
    holders = (*(read(error, name) for name in ("request", "response", "request_info")), error)
    for holder in holders:
        match = _URL.match(str(read(holder, "url") or ""))
        if match is not None:
            return match[2][:MAX_SIGNATURE_CHARS]
    return None


def _code(error: BaseException) -> str | None:
    state = read(error, "sqlstate") or read(error, "pgcode")
    if isinstance(state, str):
        return state[:MAX_SIGNATURE_CHARS]
    response = read(error, "response")  # of botocore
    part = response.get("Error") if isinstance(response, Mapping) else None
    code = part.get("Code") if isinstance(part, Mapping) else None
    return code[:MAX_SIGNATURE_CHARS] if isinstance(code, str) else code_name_of(error)
