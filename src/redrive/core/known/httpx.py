"""httpx and httpx2 (two libraries with the same names, and no common base), and httpcore beneath each."""

from __future__ import annotations

import re

from ..fault import PERMANENT, TRANSIENT, UNKNOWN, Fault
from .look import NEVER_SENT, NO_CONNECTION, TIMEOUT, Entry, Look, connecting, read
from .status import answered, by_status


def _status(error: Exception, look: Look) -> Fault:
    return answered(read(error, "response"), look) or UNKNOWN


def tunnel(error: Exception, look: Look) -> Fault:
    """A proxy that refused, or could not be reached: by the status in its words, and in any case nothing was sent."""
    found = re.search(r"\b([45]\d\d)\b", str(error))
    return by_status(int(found[1]), sent=False) if found else NEVER_SENT


_TRANSPORT: dict[str, Entry] = {
    "ConnectTimeout": NO_CONNECTION,
    "PoolTimeout": NO_CONNECTION,
    "TimeoutException": TIMEOUT,
    "ConnectError": connecting("__cause__", "args", "__context__"),
    "NetworkError": TRANSIENT,
    "RemoteProtocolError": TRANSIENT,
    "ProxyError": tunnel,
    "UnsupportedProtocol": PERMANENT,
    # Ours or the library's own mistake; over HTTP/2 also a connection closed at the wrong moment: nobody can tell.
    "LocalProtocolError": UNKNOWN,
}
_CLIENT: dict[str, Entry] = {
    "HTTPStatusError": _status,
    "TransportError": TRANSIENT,
    "DecodingError": PERMANENT,
    "TooManyRedirects": PERMANENT,
    "InvalidURL": PERMANENT,
    "SSEError": PERMANENT,
}
KNOWN: dict[str, Entry] = {
    **{f"{library}.{name}": entry for library in ("httpx", "httpx2") for name, entry in (_TRANSPORT | _CLIENT).items()},
    **{f"{library}.{name}": entry for library in ("httpcore", "httpcore2") for name, entry in _TRANSPORT.items()},
}
