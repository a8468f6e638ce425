"""Client: how the demonstration calls its server. Plain urllib, that fails as the server makes it fail."""

from __future__ import annotations

from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

from redrive import current

_opener = build_opener(ProxyHandler({}))
"""Past any proxy: the server is on this machine."""


def fetch(url: str) -> bytes:
    """The body of a page."""
    try:
        with _opener.open(url, timeout=current().remaining) as response:
            body: bytes = response.read()
            return body
    except HTTPError as error:
        error.close()
        raise
