"""The decisions of the middleware for the Idempotency-Key header, shared by ASGI and WSGI.

It follows draft-ietf-httpapi-idempotency-key-header-07.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any

from ..core.key import Key
from ..core.seconds import Seconds, dated_duration, whole_number
from ..errors import KeyBusy, KeyConflict, KeyFailed
from .lease import KeyLease, acquire, acquire_async, rule_for_freeing
from .record import KeyId
from .request import HEADER, BadHeader, RequestHead, fingerprint_of_choice, key_in_header
from .response import (
    FREEING_STATUSES,
    REPLAYED_HEADER,
    RecordedResponse,
    dump_within,
    problem_response,
)

if TYPE_CHECKING:
    from .keys import Keys
    from .record import BeginResult

DISCONNECTED_SECONDS = 300.0
"""Time for which the application continues after its client has disconnected."""
ANONYMOUS = ""
"""The user of a caller that has not authenticated. Such callers share one key space."""


@dataclass(frozen=True, slots=True)
class MiddlewareOptions:
    """The options of the middleware, as `App.idempotency` documents them.

    Checked when it is made. The arguments of `user` and `request` depend on the framework.
    """

    required: bool
    methods: Collection[str]
    paths: str
    domain: str
    user: Callable[..., Any] | None
    keep: Seconds
    max_body: int
    request: Callable[..., object] | None = None
    free_on: Collection[int] | None = None
    compares_host: bool = False
    """Compare the host even if the user is known: each host may have users of its own."""

    def __post_init__(self) -> None:
        if not isinstance(self.required, bool):
            raise TypeError(f"required= must be True or False, not {self.required!r}")
        if not isinstance(self.paths, str) or not self.paths.startswith(("/", "*")):
            raise ValueError(
                "paths= must be a pattern of whole paths, such as '/payments/*', not "
                f"{self.paths!r}, which matches none"
            )
        if isinstance(self.methods, str):
            raise TypeError(
                f"methods must be a collection of names, not one text; pass ({self.methods!r},)"
            )
        if not _are_all(str, self.methods):
            raise TypeError(f"methods must be a collection of names, not {self.methods!r}")
        if self.user is not None and not callable(self.user):
            raise TypeError(
                f"user= must be a function that returns the caller of a request, not {self.user!r}"
            )
        if self.request is not None and not callable(self.request):
            raise TypeError(
                "request= must be a function that returns the part of a request to compare, not "
                f"{self.request!r}"
            )
        Key(self.domain, "", "x", "request")  # raises for an invalid domain


class MiddlewareRules:
    """Decides which requests take a key, what is compared, and which responses are stored.

    Immutable: anything may share it. A decision against a request is the response to send.
    """

    def __init__(self, options: MiddlewareOptions, /) -> None:
        self._required = options.required
        self._methods = frozenset(method.upper() for method in options.methods)
        self._paths = options.paths
        self._domain = options.domain
        self._has_user = options.user is not None
        self._compares_choice = options.request is not None
        self._compares_host = options.compares_host
        self._keep = dated_duration("keep", options.keep)
        self.max_body = whole_number("max_body", options.max_body)
        self._free_on = FREEING_STATUSES if options.free_on is None else _statuses(options.free_on)
        # An exception of the application becomes a 500, which is not stored.
        self._frees_key = rule_for_freeing(Exception)

    # ---- the request ----

    def takes_key(self, method: str, path: str, /) -> bool:
        """Return whether a request with this method and path takes a key."""
        # Django runs a method `post` as POST, others do not. Every form needs the key.
        return method.upper() in self._methods and fnmatchcase(path, self._paths)

    def client_key(self, request: RequestHead, /) -> str | RecordedResponse | None:
        """Return the key that the client sent. None: the request runs without a key."""
        try:
            key = key_in_header(request.values(HEADER))
        except BadHeader as error:
            return problem_response(400, "Idempotency-Key is not valid", str(error))
        if key is None and self._required:
            detail = (
                "This operation requires an Idempotency-Key header, so that a retry cannot run it "
                "twice."
            )
            return problem_response(400, "Idempotency-Key is missing", detail)
        return key

    def too_large(self) -> RecordedResponse:
        """Return the response to a request whose body is larger than `max_body`."""
        detail = (
            f"A request with an Idempotency-Key may have at most {self.max_body} bytes. Its whole "
            "body is compared."
        )
        return problem_response(413, "The request is too large for an Idempotency-Key", detail)

    def identify(
        self, request: RequestHead, body: bytes, client_key: str, user: object, compared: object, /
    ) -> tuple[KeyId, bytes | None] | RecordedResponse:
        """Return the stored key of a request, and its fingerprint.

        Args:
            request: The request.
            body: Its whole body.
            client_key: The key that the client sent.
            user: The caller, as `user=` returned it.
            compared: The part of the request that `request=` returned.
        """
        if user is None or isinstance(user, bool) or _has_no_text(user):
            return self._unknown_user(user)
        try:
            key = KeyId.of(Key(self._domain, str(user), client_key, "request"))
        except ValueError:
            detail = (
                "The user of this request cannot be part of a key, because it has control "
                "characters or is too long."
            )
            return problem_response(400, "The user of this Idempotency-Key is not valid", detail)
        if user == ANONYMOUS:  # what identifies the caller is part of the request
            caller = self._caller_parts(request)
        else:
            caller = request.hosts() if self._compares_host else []
        if self._compares_choice:
            return key, fingerprint_of_choice(compared, caller)
        return key, request.fingerprint(body, caller)

    def _unknown_user(self, user: object) -> RecordedResponse:
        kind = repr(user) if user is None or isinstance(user, bool) else user.__class__.__name__
        warnings.warn(
            f"idempotency: user= returned {kind}; return a text or number that identifies the "
            "caller, such as the id of a user object, or '' for an anonymous one",
            RuntimeWarning,
            stacklevel=3,
        )
        detail = (
            "An Idempotency-Key belongs to a user, and this request has none. Authenticate, then "
            "retry."
        )
        return problem_response(401, "The user of this Idempotency-Key is unknown", detail)

    def _caller_parts(self, request: RequestHead) -> list[bytes]:
        if not self._has_user and request.has_credentials():
            warnings.warn(
                "idempotency: requests carry a cookie or an API key, and user= is not set; all "
                "users share one key space, in which another caller's key is rejected with 422; "
                "pass user=, a function that returns the caller",
                RuntimeWarning,
                stacklevel=3,
            )
        return request.caller_parts()

    # ---- the key ----

    def begin(
        self, keys: Keys, key: KeyId, request_hash: bytes | None, /
    ) -> KeyLease | RecordedResponse:
        """Begin a key. Return the lease of a new one, or else the response to send."""
        try:
            result = acquire(keys, key, request_hash, self._keep, None)
        except (KeyBusy, KeyConflict, KeyFailed) as error:
            return self._rejection(error)
        return self._lease_or_replay(keys, key, result)

    async def abegin(
        self, keys: Keys, key: KeyId, request_hash: bytes | None, /
    ) -> KeyLease | RecordedResponse:
        """Do the same as `begin` without blocking the event loop."""
        try:
            result = await acquire_async(keys, key, request_hash, self._keep, None)
        except (KeyBusy, KeyConflict, KeyFailed) as error:
            return self._rejection(error)
        return self._lease_or_replay(keys, key, result)

    def _rejection(self, error: KeyBusy | KeyConflict | KeyFailed) -> RecordedResponse:
        if isinstance(error, KeyBusy):
            return _busy_response(error)
        if isinstance(error, KeyConflict):
            detail = (
                "This Idempotency-Key was used for another request. A new request needs a new key."
            )
            if not self._compares_choice:
                detail += " Method, path, query, content type, body and caller are compared."
            return problem_response(422, "Idempotency-Key is already used", detail)
        detail = (
            "The first request with this Idempotency-Key failed permanently. Send a new key to "
            "start again."
        )
        return problem_response(409, "The request has failed", detail)

    def _lease_or_replay(
        self, keys: Keys, key: KeyId, result: BeginResult
    ) -> KeyLease | RecordedResponse:
        if result.outcome == "completed":
            return _replayed_response(result.response)
        return KeyLease(keys, key, result, self._keep, self._frees_key)

    def settle(self, lease: KeyLease, response: RecordedResponse, /) -> None:
        """Store the response under its key, or free the key, as the status decides."""
        if response.status in self._free_on:
            lease.free()
        else:
            lease.complete(response, partial(dump_within, limit=lease.max_payload))


def _has_no_text(user: object) -> bool:
    """Return whether the text of this object does not identify a caller.

    Anonymous users of a framework share one text, users may share a name, and the default of Python
    is an address in memory.
    """
    kind = user.__class__  # of a proxy, such as `request.user`, the class of its target
    is_default = kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__
    return is_default or hasattr(user, "is_authenticated")


def _statuses(statuses: Collection[int]) -> frozenset[int]:
    if not _are_all(int, statuses) or not all(100 <= status <= 599 for status in statuses):
        raise ValueError(
            f"free_on= must be a collection of HTTP statuses, such as {{429, 503}}, not "
            f"{statuses!r}"
        )
    return frozenset(statuses)


def _are_all(kind: type, values: object) -> bool:
    return isinstance(values, Collection) and all(isinstance(value, kind) for value in values)


def _replayed_response(stored: bytes | None) -> RecordedResponse:
    response = RecordedResponse.load(stored or b"{}")
    if response.body is None:
        detail = (
            f"The request ran, with status {response.status}. Its response was not stored, "
            "because it was too large or a file."
        )
        response = problem_response(409, "The response was not stored", detail)
    return response._replace(headers=[*response.headers, REPLAYED_HEADER])


def _busy_response(busy: KeyBusy) -> RecordedResponse:
    seconds = max(1, math.ceil((busy.retry_at - datetime.now(timezone.utc)).total_seconds()))
    detail = "A request with the same Idempotency-Key is running. Retry later to get its response."
    retry_after = (b"retry-after", str(seconds).encode())
    title = "A request is outstanding for this Idempotency-Key"
    return problem_response(409, title, detail, retry_after)


def takes_arguments(application: Any, count: int, /) -> bool:
    """Return whether an application can be called with this number of arguments."""
    try:
        signature = inspect.signature(application)
    except (TypeError, ValueError):  # not written in Python
        return callable(application)
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True
