"""pyarrow's S3: a plain OSError, whose text alone says what happened."""

from __future__ import annotations

import re

from ..fault import PERMANENT, TRANSIENT, UNKNOWN, Fault
from .look import THROTTLED, TIMEOUT
from .status import by_status

_SAID = re.compile(r"AWS Error (\w+)(?: \(HTTP status (\d{3})\))? during ")
WORDS: dict[str, Fault] = {
    "NETWORK_CONNECTION": TRANSIENT,
    "INTERNAL_FAILURE": TRANSIENT,
    "SERVICE_UNAVAILABLE": TRANSIENT,
    "REQUEST_TIMEOUT": TIMEOUT,
    "SLOW_DOWN": THROTTLED,
    "THROTTLING": THROTTLED,
    "ACCESS_DENIED": PERMANENT,
    "RESOURCE_NOT_FOUND": PERMANENT,
    "NO_SUCH_BUCKET": PERMANENT,
    "NO_SUCH_KEY": PERMANENT,
    "SIGNATURE_DOES_NOT_MATCH": PERMANENT,
    "INVALID_ACCESS_KEY_ID": PERMANENT,
}


def in_words(text: str) -> Fault:
    """What the text of an error says, where it is pyarrow's."""
    found = _SAID.search(text)
    if found is None:
        return UNKNOWN
    return by_status(int(found[2])) if found[2] else WORDS.get(found[1], UNKNOWN)
