"""Signature: equal for errors of one cause. The type and the message, without what differs from one job to the next."""

from __future__ import annotations

import re

LONGEST = 200
"""Characters: what differs stands at the end more often than at the beginning."""

# In this order: what is in quotes may hold anything, an id holds numbers, and a list or a mapping of such things may be of any
# length. The apostrophe of a word (don't) neither begins nor ends a quotation.
_PARTS = (
    (re.compile(r"""(?:(?<!\w)|\b[bru])'(?:[^'\n]|'(?=\w))*'(?!\w)|"[^"\n]*"|`[^`\n]*`"""), "…"),
    (re.compile(r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"), "#"),
    (re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^\s'\"<>]+"), "…"),
    (re.compile(r"[^\s@<>()\[\],;:]+@[^\s@<>()\[\],;:]+"), "…"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b|\b(?=[a-zA-Z_-]*\d)[0-9a-zA-Z_-]{6,}\b"), "#"),
    (re.compile(r"\d+(?:[.,:]\d+)*"), "#"),
    (re.compile(r"([\[{])(?:[\s,:#…\[\]{}-]|\b(?:[Nn]one|null|[Tt]rue|[Ff]alse)\b)*([\]}])"), r"\1…\2"),
    (re.compile(r"\s+"), " "),
)


def signature(error: BaseException, /) -> str:
    """`ConnectionError: no answer from # after # s`."""
    return signature_of(type(error).__name__, said(error))


def signature_of(kind: str, message: str, /) -> str:
    """The same from a type's name and a message."""
    text = message[: 4 * LONGEST].partition("\n")[0]
    for pattern, instead in _PARTS:
        text = pattern.sub(instead, text)
    found = f"{kind}: {text.strip()}" if text.strip() else kind
    return found if len(found) <= LONGEST else found[: LONGEST - 1] + "…"


def said(error: BaseException, /) -> str:
    """What an error says. Never raises."""
    try:
        return str(error)
    except Exception:  # an error that cannot even say itself is still an error
        return "(its message cannot be read)"
