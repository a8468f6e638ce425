"""Signature: equal for errors of one cause. The type and the message, without ids, numbers and quoted words.

The HTTP status, the host and the error code (SQLSTATE, gRPC status, botocore code, errno) are kept: a 404
and a 403, or two hosts, are two causes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from .classify import classify
from .known.grpc import code_of
from .known.look import read

LONGEST = 200
"""Characters: what differs stands at the end more often than at the beginning."""
DEPTH = 5
"""Errors that are looked at: the error, and those that it wraps."""

_PHRASES = (
    r"Bad|Client Error|Conflict|Content Too Large|Forbidden|Found|Gateway|Gone|Internal Server|Locked|Method Not|Not|Payment|"
    r"Payload|Precondition|Proxy|Request|Requested|Server Error|Service|Too Many|Unauthorized|Unavailable|Unprocessable"
)
"""How the reason phrases of HTTP begin."""
_URL = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*://)(?:[^\s/'\"<>?#]*@)?([^\s/'\"<>?#@]*[\w\]])(?:[^\s'\"<>]*[^\s'\"<>.,:;)\]])?")
_STATUS = re.compile(
    rf"(?:^|(?<=: ))[45]\d\d(?=$|[\s,:;])"
    rf"|(?<![\w.])[45]\d\d(?= (?:{_PHRASES})\b)"
    rf"|(?i:(?<=status )|(?<=status: )|(?<=status=)|(?<=code )|(?<=code: )|(?<=code=)|(?<=HTTP )|(?<=HTTP/1\.1 )|(?<=HTTP/2 ))"
    rf"[45]\d\d\b",
)
_HOST = re.compile(r"(?:\bhost(?:name| name)?|\bserver at)[=:\s]+(['\"])([\w.:-]+)\1", re.IGNORECASE)
_ERRNO = re.compile(r"\[Errno -?\d+\]")
_HELD = re.compile("[\ue000-\uf8ff]")
"""Private characters stand for kept words while the rest of a message is reduced."""

# Quoted words may hold anything, an id holds numbers, and a list or a mapping of such things may be of any length: so this
# order. The apostrophe of a word (don't) neither begins nor ends a quotation.
_QUOTED = re.compile(r"""(?:(?<!\w)|\b[bru])'(?:[^'\n]|'(?=\w))*'(?!\w)|"[^"\n]*"|`[^`\n]*`""")
_PARTS = (
    (re.compile(r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"), "#"),
    (re.compile(r"[^\s@<>()\[\],;:]+@[^\s@<>()\[\],;:]+"), "…"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b|\b(?=[a-zA-Z_-]*\d)[0-9a-zA-Z_-]{6,}\b"), "#"),
    (re.compile(r"\d+(?:[.,:]\d+)*"), "#"),
    (re.compile(r"([\[{])(?:[\s,:#…\[\]{}-]|\b(?:[Nn]one|null|[Tt]rue|[Ff]alse)\b)*([\]}])"), r"\1…\2"),
    (re.compile(r"\s+"), " "),
)


def signature(error: BaseException, /) -> str:
    """`ConnectionError: no answer from # after # s`, `HTTPStatusError: Client error 404 for url https://api.example.org/…`."""
    return signature_of(type(error).__name__, said(error), *_details(error))


def signature_of(kind: str, message: str, /, *details: str) -> str:
    """The same from a type's name and a message. details: a status, a host, a code, unless the message has them."""
    kept: list[str] = []

    def hold(word: str) -> str:
        kept.append(word)
        return chr(0xE000 + len(kept) - 1)

    text = _HELD.sub("", message[: 4 * LONGEST]).partition("\n")[0]
    text = _HOST.sub(lambda found: found[0].replace(f"{found[1]}{found[2]}{found[1]}", hold(found[2])), text)
    text = _URL.sub(lambda found: hold(f"{found[1]}{found[2]}/…"), text)
    for pattern in (_STATUS, _ERRNO):
        text = pattern.sub(lambda found: hold(found[0]), text)
    text = _QUOTED.sub(lambda found: " ".join(_HELD.findall(found[0])) or "…", text)
    for part, instead in _PARTS:
        text = part.sub(instead, text)
    text = _HELD.sub(lambda found: kept[ord(found[0]) - 0xE000], text).strip()
    missing = [detail for detail in details if detail not in text]
    head = f"{kind} ({', '.join(missing)})" if missing else kind
    found = f"{head}: {text}" if text else head
    return found if len(found) <= LONGEST else found[: LONGEST - 1] + "…"


def said(error: BaseException, /) -> str:
    """What an error says. Never raises."""
    try:
        return str(error)
    except Exception:  # an error that cannot even say itself is still an error
        return "(its message cannot be read)"


def _details(error: BaseException) -> list[str]:
    """The status, the host and the code of an error, or of the errors that it wraps. Never raises."""
    status = host = code = None
    for each in _chain(error):
        status = status or _status(each)
        host = host or _host(each)
        code = code or _code(each)
    return [detail for detail in (status, code, host) if detail]


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    each: object = error
    while isinstance(each, BaseException) and len(seen) < DEPTH and not any(each is known for known in seen):
        yield each
        seen.append(each)
        inner = read(each, "orig")  # SQLAlchemy's
        each = inner if isinstance(inner, BaseException) else each.__cause__


def _status(error: BaseException) -> str | None:
    status = classify(error).status if isinstance(error, Exception) else None
    return None if status is None else str(status)


def _host(error: BaseException) -> str | None:
    """Where a request went: of httpx, requests, aiohttp and the like. The port tells servers of one host apart."""
    for holder in (read(error, "request"), read(error, "response"), read(error, "request_info"), error):
        found = _URL.match(str(read(holder, "url") or ""))
        if found is not None:
            return found[2][:LONGEST]
    return None


def _code(error: BaseException) -> str | None:
    state = read(error, "sqlstate") or read(error, "pgcode")
    if isinstance(state, str):
        return state[:LONGEST]
    response = read(error, "response")  # botocore's
    part = response.get("Error") if isinstance(response, Mapping) else None
    code = part.get("Code") if isinstance(part, Mapping) else None
    return code[:LONGEST] if isinstance(code, str) else code_of(error)
