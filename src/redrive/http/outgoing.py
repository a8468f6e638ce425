"""Outgoing: what the requests of one client have in common, and one call of it."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal

import httpx2

from ..core.codec import raised_by
from ..core.key import KeyLike
from ..journal.redaction.values import keep_options_secret, keep_secret
from . import headers as head
from . import whole
from .address import Address
from .connections import Connections
from .key import REPEATABLE, checked, derived, fresh, may_repeat, told
from .shape import Misfit, reader
from .timeouts import timeouts
from .told import Told


class Call:
    """One call: its request, the same for all attempts but for their number. Belongs to that call alone."""

    __slots__ = ("_own", "key", "ok", "operation", "read", "repeatable", "request", "told")

    def __init__(
        self,
        request: httpx2.Request,
        operation: str,
        key: str | None,
        told: Told,
        ok: Collection[int],
        read: Callable[[Any], Any] | None,
        idempotent: tuple[bool | None, ...],
    ) -> None:
        """idempotent: what call, client and retry declare, the nearest first."""
        self.request = request
        self.operation = operation
        self.key = key
        self.told = told
        self.ok = ok
        self.read = read
        replays = isinstance(request.stream, httpx2.ByteStream)
        self.repeatable = replays and may_repeat(request.method, key is not None, *idempotent)
        """Whether it may be sent twice. A stream cannot be: there is nothing left of it after the first time."""
        self._own: Mapping[str, float | None] = request.extensions.get("timeout") or {}

    def begin(self, seconds: float, /) -> httpx2.Request:
        """The request for the next attempt, which may take so long."""
        number = self.told.begin()
        if number > 1:
            self.request.headers[head.ATTEMPT] = str(number)
        if seconds != math.inf:
            self.request.extensions["timeout"] = timeouts(self._own, seconds)
        return self.request

    def is_error(self, response: httpx2.Response, /) -> bool:
        """Whether its status is a failure of this call."""
        self.told.status = status = response.status_code
        return not 200 <= status < 300 and status not in self.ok

    def answer(self, response: httpx2.Response, /) -> Any:
        """What the caller gets for this answer; raises httpx2's own error where it is none."""
        status = response.status_code
        if self.is_error(response):
            response.raise_for_status()
        if self.read is None:
            return response
        try:
            return self.read(_data(response))
        except Exception as wrong:  # of whatever library the caller's type or function is
            said = str(wrong) if isinstance(wrong, Misfit) else raised_by(wrong)
            raise httpx2.DecodingError(
                f"{self.request.method} {self.told.url} returned {status}, but the response does not fit into=: {said}",
                request=self.request,
            ) from None


class Outgoing:
    """Where the requests of a client go and what they carry. Immutable: anything may share one."""

    __slots__ = ("address", "auth", "generates_keys", "headers", "idempotent", "max_body", "user")

    def __init__(
        self,
        address: Address,
        auth: httpx2.Auth | None,
        headers: Mapping[str, str],
        user: str | None,
        idempotent: bool | None,
        generates_keys: bool,
        max_body: int | None,
    ) -> None:
        self.address = address
        self.auth = auth
        self.headers = headers
        self.user = user
        self.idempotent = idempotent
        self.generates_keys = generates_keys
        self.max_body = max_body

    @classmethod
    def of(
        cls,
        base_url: str,
        auth: str | httpx2.Auth | None,
        headers: Mapping[str, str] | None,
        user: str | None,
        idempotent: bool | None,
        idempotency_key: Literal[True] | None,
        max_body: int | None,
        /,
    ) -> Outgoing:
        """As a client was told."""
        own = head.given(headers)
        keep_secret(*_secrets_of(auth))
        keep_options_secret(own)
        if isinstance(auth, str):
            own = {head.AUTHORIZATION: f"Bearer {head.text('auth', auth)}", **own}
        elif auth is not None and not isinstance(auth, httpx2.Auth):
            raise TypeError(f"auth= must be a bearer token or an httpx2.Auth, not {type(auth).__name__}")
        scheme = None if isinstance(auth, str) else auth
        whom = None if user is None else head.text("user", user)
        keys = fresh(idempotency_key)
        return cls(Address(base_url), scheme, own, whom, checked(idempotent), keys, whole.checked(max_body))

    def using(self, user: str | None, headers: Mapping[str, str] | None, idempotent: bool | None, /) -> Outgoing:
        """The same with another user, more headers, and another word on what may be repeated."""
        whom = self.user if user is None else head.text("user", user)
        repeats = self.idempotent if idempotent is None else checked(idempotent)
        own = {**self.headers, **head.given(headers)}
        return Outgoing(self.address, self.auth, own, whom, repeats, self.generates_keys, self.max_body)

    def call(
        self,
        connections: Connections[Any],
        client: httpx2.Client | httpx2.AsyncClient,
        method: str,
        path: str,
        into: Any,
        body: Any,
        content: Any,
        params: Mapping[str, Any] | None,
        headers: Mapping[str, str] | None,
        key: KeyLike | Literal[True] | None,
        ok: Collection[int],
        operation: str | None,
        idempotent: tuple[bool | None, ...] = (),
        /,
    ) -> Call:
        """One call, checked and ready to be sent over these connections, by their client."""
        if body is not None and content is not None:
            raise TypeError("json= and content= are two bodies; pass one")
        if operation is not None and (not isinstance(operation, str) or not operation):
            raise TypeError(f"operation= must be the name of the call, not {operation!r}")
        if not isinstance(method, str) or not method.isalpha():
            raise TypeError(f"a method must be a word such as 'GET', not {method!r}")
        read = None if into is None else reader(into)
        url = self.address.url(path)
        sent = {**connections.defaults, head.ATTEMPT: "1", **head.trace(), **self.headers}
        if self.user is not None:
            sent[head.USER] = self.user
        if headers is not None:
            sent |= head.given(headers)
        if head.REQUEST_ID not in sent:
            sent[head.REQUEST_ID] = head.request_id()
        if key is not None:
            sent[head.KEY] = told(key)
        request = connections.request(client, method, url, sent, body, content, params)
        if head.KEY not in sent:
            own = _derived(request, body, operation)
            if own is None and self.generates_keys and request.method not in REPEATABLE:
                own = told(True)
            if own is not None:
                request.headers[head.KEY] = sent[head.KEY] = own
        name = operation or f"{request.method} {self.address.netloc}"
        story = Told(request.method, request.url, sent[head.REQUEST_ID], connections.bounded)
        return Call(request, name, sent.get(head.KEY), story, _statuses(ok), read, idempotent)


def _derived(request: httpx2.Request, body: Any, operation: str | None) -> str | None:
    if request.method in REPEATABLE or not isinstance(request.stream, httpx2.ByteStream):
        return None
    said = request.content if body is None else json.dumps(body, sort_keys=True).encode()
    return derived(request.method, request.url.raw_path.decode("ascii"), said, operation)


def _statuses(ok: Collection[int]) -> Collection[int]:
    if isinstance(ok, int) or not all(isinstance(status, int) for status in ok):
        raise TypeError(f"ok_statuses= must be a set of statuses such as {{409}}, not {ok!r}")
    return ok


def _secrets_of(auth: object) -> list[object]:
    """What an authentication is known to hold: a token, or a password, also as httpx2 writes it into a header."""
    header = getattr(auth, "_auth_header", None)
    found = [auth, getattr(auth, "_password", None)]
    if isinstance(header, str):
        word = header.partition(" ")[2]
        found += [word, base64.b64decode(word + "===").partition(b":")[2]]
    return found


def _data(response: httpx2.Response) -> Any:
    """The JSON of an answer, read once."""
    if not response.content:
        raise Misfit("$", "no body")
    try:
        return json.loads(response.content)
    except ValueError as wrong:
        kind = response.headers.get("content-type", "without a content type")
        raise Misfit("$", f"not JSON ({kind}): {wrong}") from None
