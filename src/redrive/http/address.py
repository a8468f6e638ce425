"""Address: where a client sends its requests, and nowhere else."""

from __future__ import annotations

import re

import httpx2

from ..journal.redaction.addresses import redact_address
from ..journal.redaction.values import keep_address_secret

_ELSEWHERE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|//|\\\\")


class Address:
    """A base URL, checked. Immutable: anything may share one."""

    __slots__ = ("_base", "_origin", "netloc")

    def __init__(self, base_url: str) -> None:
        if not isinstance(base_url, str):
            raise TypeError(f"base_url must be text such as 'https://crm.example.com/v1', not {type(base_url).__name__}")
        keep_address_secret(base_url)
        shown = redact_address(base_url)
        try:
            url = httpx2.URL(base_url)
        except httpx2.InvalidURL:  # its text may quote a password
            raise ValueError(f"base_url={shown!r} is not a URL such as 'https://crm.example.com/v1'") from None
        if url.userinfo:
            raise ValueError("base_url has a user or a password in it, which would reach logs; pass auth=")
        if url.scheme not in ("http", "https") or not url.host:
            raise ValueError(f"base_url={shown!r} must begin with http:// or https:// and a host")
        if url.port is not None and not 0 < url.port < 65536:
            raise ValueError(f"base_url={shown!r} is not a valid URL; {url.port} is not a port")
        if url.query or url.fragment or "?" in base_url or "#" in base_url:
            raise ValueError(f"base_url={shown!r} must not contain ? or #; pass params= with each call")
        self._base = str(url).rstrip("/")
        self._origin = _origin(url)
        self.netloc = url.netloc.decode("ascii")
        """Host and port."""

    def url(self, path: str, /) -> str:
        """The address of a path. An absolute URL may only be one of the same server: a token is for nobody else."""
        if not isinstance(path, str):
            raise TypeError(f"path must be text such as '/customers/7', not {type(path).__name__}: {path!r}")
        if not _ELSEWHERE.match(path):
            return self._base + path if path[:1] in ("/", "?", "") else f"{self._base}/{path}"
        try:
            url = httpx2.URL(path)
        except httpx2.InvalidURL:
            raise ValueError(f"path={redact_address(path)!r} is not a valid URL") from None
        if _origin(url) != self._origin or url.userinfo:
            raise ValueError(
                f"{redact_address(path)!r} is not at {self._base}, "
                "and a client sends its token and headers to no other server; create a client for it"
            )
        return path

    def __str__(self) -> str:
        return self._base


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    port = url.port or {"http": 80, "https": 443}.get(url.scheme)
    return url.scheme, url.host, port
