"""Requests of a client: its base URL and defaults, and one call that is ready to be sent."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import httpx2

from ..core.codec import raised_by
from ..core.key import KeyLike
from ..journal.redaction.secrets import (
    keep_address_secret,
    keep_options_secret,
    keep_secret,
    redact_address,
)
from . import headers as header
from .bounded_body import check_max_body
from .call_state import CallState
from .connections import HttpxConnections
from .headers import (
    IDEMPOTENT_METHODS,
    check_generates_keys,
    check_idempotent,
    implicit_key,
    key_header,
    may_repeat,
)
from .network import phase_timeouts
from .typed_json import JsonMismatch, json_reader

_ABSOLUTE_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|//|\\\\")


class CallOptions(NamedTuple):
    """Options of one call. `Client.request` describes them."""

    into: Any = None
    json: object = None
    content: Any = None
    params: Mapping[str, Any] | None = None
    headers: Mapping[str, str] | None = None
    idempotency_key: KeyLike | Literal[True] | None = None
    ok_statuses: Collection[int] = ()
    operation: str | None = None
    idempotent: bool | None = None


class HttpCall:
    """One call. All attempts send the same request, apart from the attempt's number.

    Used by that call only.
    """

    __slots__ = (
        "_client_timeouts",
        "_ok_statuses",
        "_read",
        "key",
        "operation",
        "repeatable",
        "request",
        "state",
    )

    def __init__(
        self,
        request: httpx2.Request,
        operation: str,
        key: str | None,
        state: CallState,
        options: CallOptions,
        declared: tuple[bool | None, ...],
    ) -> None:
        """Prepare the call. declared: `idempotent` of client and retry, the most specific first."""
        self.request = request
        self.operation = operation
        self.key = key
        self.state = state
        self._ok_statuses = _check_statuses(options.ok_statuses)
        self._read: Callable[[Any], Any] | None = None
        if options.into is not None:
            self._read = json_reader(options.into)
        # The body of a stream is exhausted after the first attempt.
        self.repeatable = isinstance(request.stream, httpx2.ByteStream) and may_repeat(
            request.method, key is not None, check_idempotent(options.idempotent), *declared
        )
        self._client_timeouts: Mapping[str, float | None] = request.extensions.get("timeout") or {}

    def begin_attempt(self, seconds: float, /) -> httpx2.Request:
        """Return the request for the next attempt, which may take this many seconds."""
        number = self.state.begin_attempt()
        if number > 1:
            self.request.headers[header.ATTEMPT] = str(number)
        if seconds != math.inf:
            self.request.extensions["timeout"] = phase_timeouts(self._client_timeouts, seconds)
        return self.request

    def is_error(self, response: httpx2.Response, /) -> bool:
        """Note the status, and return whether it is a failure of this call."""
        self.state.status = status = response.status_code
        return not 200 <= status < 300 and status not in self._ok_statuses

    def result(self, response: httpx2.Response, /) -> Any:
        """Return the caller's result: the response, or the value that `into=` asks for.

        Raises:
            httpx2.HTTPStatusError: The status is a failure.
            httpx2.DecodingError: The response does not fit `into=`.
        """
        if self.is_error(response):
            response.raise_for_status()
        if self._read is None:
            return response
        try:
            return self._read(_json_of(response))
        except Exception as error:  # of any library from which the caller's type comes
            problem = str(error) if isinstance(error, JsonMismatch) else raised_by(error)
            raise httpx2.DecodingError(
                f"{self.request.method} {self.state.url} returned {response.status_code}, "
                f"but the response does not fit into=: {problem}",
                request=self.request,
            ) from None


class BaseUrl:
    """A validated base URL. Immutable, so threads may share it."""

    __slots__ = ("_origin", "_url", "netloc")

    def __init__(self, base_url: str) -> None:
        if not isinstance(base_url, str):
            raise TypeError(
                "base_url must be text such as 'https://crm.example.com/v1', "
                f"not {type(base_url).__name__}"
            )
        keep_address_secret(base_url)
        shown = redact_address(base_url)
        try:
            url = httpx2.URL(base_url)
        except httpx2.InvalidURL:  # Its text may quote a password.
            raise ValueError(
                f"base_url={shown!r} is not a URL such as 'https://crm.example.com/v1'"
            ) from None
        if url.userinfo:
            raise ValueError(
                "base_url has a user or a password in it, which would reach logs; pass auth="
            )
        if url.scheme not in ("http", "https") or not url.host:
            raise ValueError(f"base_url={shown!r} must begin with http:// or https:// and a host")
        if url.port is not None and not 0 < url.port < 65536:
            raise ValueError(f"base_url={shown!r} is not a valid URL; {url.port} is not a port")
        if url.query or url.fragment or "?" in base_url or "#" in base_url:
            raise ValueError(
                f"base_url={shown!r} must not contain ? or #; pass params= with each call"
            )
        self._url = str(url).rstrip("/")
        self._origin = _origin(url)
        self.netloc = url.netloc.decode("ascii")
        """Host and port."""

    def join(self, path: str, /) -> str:
        """Return the URL of a path.

        An absolute URL must be of the same server, because requests carry the client's token.
        """
        if not isinstance(path, str):
            raise TypeError(
                f"path must be text such as '/customers/7', not {type(path).__name__}: {path!r}"
            )
        if not _ABSOLUTE_URL.match(path):
            return self._url + path if path[:1] in ("/", "?", "") else f"{self._url}/{path}"
        try:
            url = httpx2.URL(path)
        except httpx2.InvalidURL:
            raise ValueError(f"path={redact_address(path)!r} is not a valid URL") from None
        if _origin(url) != self._origin or url.userinfo:
            raise ValueError(
                f"{redact_address(path)!r} is not at {self._url}, "
                "and a client sends its token and headers to no other server; "
                "create a client for it"
            )
        return path

    def __str__(self) -> str:
        return self._url


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    port = url.port or {"http": 80, "https": 443}.get(url.scheme)
    return url.scheme, url.host, port


@dataclass(frozen=True, slots=True)
class RequestDefaults:
    """The address, headers and options of a client's requests. Immutable: threads may share it."""

    base_url: BaseUrl
    auth: httpx2.Auth | None
    headers: Mapping[str, str]
    user: str | None
    idempotent: bool | None
    generates_keys: bool
    max_body: int | None

    @classmethod
    def from_options(
        cls,
        base_url: str,
        auth: str | httpx2.Auth | None,
        headers: Mapping[str, str] | None,
        user: str | None,
        idempotent: bool | None,
        idempotency_key: Literal[True] | None,
        max_body: int | None,
        /,
    ) -> RequestDefaults:
        """Check the options of a client. Its secrets are redacted from now on."""
        own_headers = header.check_headers(headers)
        keep_secret(*_secrets_of(auth))
        keep_options_secret(own_headers)
        if isinstance(auth, str):
            token = header.check_value("auth", auth)
            own_headers = {header.AUTHORIZATION: f"Bearer {token}", **own_headers}
        elif auth is not None and not isinstance(auth, httpx2.Auth):
            raise TypeError(
                f"auth= must be a bearer token or an httpx2.Auth, not {type(auth).__name__}"
            )
        return cls(
            base_url=BaseUrl(base_url),
            auth=None if isinstance(auth, str) else auth,
            headers=own_headers,
            user=None if user is None else header.check_value("user", user),
            idempotent=check_idempotent(idempotent),
            generates_keys=check_generates_keys(idempotency_key),
            max_body=check_max_body(max_body),
        )

    def using(
        self, user: str | None, headers: Mapping[str, str] | None, idempotent: bool | None, /
    ) -> RequestDefaults:
        """Return a copy with another user, more headers, or another `idempotent` setting."""
        return replace(
            self,
            headers={**self.headers, **header.check_headers(headers)},
            user=self.user if user is None else header.check_value("user", user),
            idempotent=self.idempotent if idempotent is None else check_idempotent(idempotent),
        )

    def build_call(
        self,
        connections: HttpxConnections[Any],
        client: httpx2.Client | httpx2.AsyncClient,
        method: str,
        path: str,
        options: CallOptions,
        declared: tuple[bool | None, ...] = (),
        /,
    ) -> HttpCall:
        """Check the options of a call and build its request.

        declared: `idempotent` of client and retry, the most specific first.
        """
        operation = options.operation
        if options.json is not None and options.content is not None:
            raise TypeError("json= and content= are two bodies; pass one")
        if operation is not None and (not isinstance(operation, str) or not operation):
            raise TypeError(f"operation= must be the name of the call, not {operation!r}")
        if not isinstance(method, str) or not method.isalpha():
            raise TypeError(f"a method must be a word such as 'GET', not {method!r}")
        url = self.base_url.join(path)
        headers = self._headers(connections.default_headers, options)
        request = connections.build_request(
            method,
            url,
            client,
            headers,
            json=options.json,
            content=options.content,
            params=options.params,
        )
        key = headers.get(header.IDEMPOTENCY_KEY)
        if key is None and request.method not in IDEMPOTENT_METHODS:
            body = _body_of_key(request, options.json)
            key = implicit_key(request, body, operation, self.generates_keys)
            if key is not None:
                request.headers[header.IDEMPOTENCY_KEY] = key
        operation = operation or f"{request.method} {self.base_url.netloc}"
        request_id = headers[header.REQUEST_ID]
        state = CallState(request.method, request.url, request_id, connections.has_deadline)
        return HttpCall(request, operation, key, state, options, declared)

    def _headers(self, defaults: Mapping[str, str], options: CallOptions) -> dict[str, str]:
        headers = {**defaults, header.ATTEMPT: "1", **header.trace_headers(), **self.headers}
        if self.user is not None:
            headers[header.USER] = self.user
        if options.headers is not None:
            headers |= header.check_headers(options.headers)
        if header.REQUEST_ID not in headers:
            headers[header.REQUEST_ID] = header.current_request_id()
        if options.idempotency_key is not None:
            headers[header.IDEMPOTENCY_KEY] = key_header(options.idempotency_key)
        return headers


def _body_of_key(request: httpx2.Request, json_body: object) -> bytes | None:
    """Return the bytes that identify the request. JSON with sorted names, None for a stream."""
    if not isinstance(request.stream, httpx2.ByteStream):
        return None
    return request.content if json_body is None else json.dumps(json_body, sort_keys=True).encode()


def _check_statuses(statuses: Collection[int]) -> Collection[int]:
    if isinstance(statuses, int) or not all(isinstance(status, int) for status in statuses):
        raise TypeError(f"ok_statuses= must be a set of statuses such as {{409}}, not {statuses!r}")
    return statuses


def _secrets_of(auth: object) -> list[object]:
    """Return the token or password of an `auth=`, also as httpx2 encodes it in a header."""
    auth_header = getattr(auth, "_auth_header", None)
    secrets = [auth, getattr(auth, "_password", None)]
    if isinstance(auth_header, str):
        credentials = auth_header.partition(" ")[2]
        secrets += [credentials, base64.b64decode(credentials + "===").partition(b":")[2]]
    return secrets


def _json_of(response: httpx2.Response) -> Any:
    if not response.content:
        raise JsonMismatch("no body")
    try:
        return json.loads(response.content)
    except ValueError as error:
        content_type = response.headers.get("content-type", "without a content type")
        raise JsonMismatch(f"not JSON ({content_type}): {error}") from None
