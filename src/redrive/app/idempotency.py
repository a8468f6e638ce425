"""The idempotency keys of an app: functions and blocks that run once, and the middleware."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from ..core.fault import Rules
from ..core.key import KeyLike, KeyOf
from ..core.lazy import deferred
from ..core.seconds import Seconds
from .ledger_opener import LedgerOpener

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

    from ..idempotency import asgi, middleware, once, wsgi
    from ..idempotency import claim as claims
    from ..idempotency.asgi import AsgiApp
    from ..idempotency.claim import ClaimContext
    from ..idempotency.keys import Keys
    from ..idempotency.once import TransactionalOnce
    from ..ledger.db.caller_transaction import AsyncTransaction, Transaction
else:  # they need SQLAlchemy, which takes longer to import than the rest of a program
    asgi, claims, middleware, once, wsgi = deferred(
        "redrive.idempotency", "asgi", "claim", "middleware", "once", "wsgi"
    )

F = TypeVar("F", bound=Callable[..., Any])
DAY = timedelta(days=1)
METHODS = ("POST", "PATCH")
MAX_BODY_BYTES = 1024 * 1024


class IdempotencyMethods:
    """The methods of an app for idempotency keys. Threads and event loops may share it."""

    opener: LedgerOpener

    def keys(self) -> Keys:
        """Return the idempotency records of the ledger.

        Returns:
            The store that `once`, `claim` and the middleware use.
        """
        return self.opener.keys()

    # fmt: off
    @overload
    def once(
        self, key: KeyOf, /, *, in_transaction: Literal[True], wait: Seconds | None = None,
        keep: Seconds = DAY, request: Callable[..., object] | None = None,
        free_on: Rules | None = None,
    ) -> TransactionalOnce: ...
    @overload
    def once(
        self, key: KeyOf, /, *, in_transaction: Literal[False] = False,
        wait: Seconds | None = None, keep: Seconds = DAY,
        request: Callable[..., object] | None = None, free_on: Rules | None = None,
    ) -> Callable[[F], F]: ...
    def once(
        self, key: KeyOf, /, *, in_transaction: bool = False, wait: Seconds | None = None,
        keep: Seconds = DAY, request: Callable[..., object] | None = None,
        free_on: Rules | None = None,
    ) -> Any:
    # fmt: on
        """Make a function idempotent, as a decorator: it runs once for each key.

        A second call with the same key gets the stored result, as the annotated type.

        Args:
            key: Idempotency key: a template over the parameters, such as
                `"billing:{order.user}:{order.id}:charge:v1"`, or a function of them.
            in_transaction: Pass a connection as the first argument. The key is settled in the
                transaction of that connection.
            wait: Seconds to wait while another caller holds the key. Default: do not wait, raise
                `KeyBusy`.
            keep: How long the result is stored.
            request: Function of the arguments that returns the part that must be equal when the key
                is equal. Default: all arguments.
            free_on: Errors after which the key can be used again: types, functions of the error, or
                a tuple of both. Default: errors that the standard rule retries. Any other failure
                is stored.

        Returns:
            A decorator for sync and async functions.

        Raises:
            TypeError: The decorator is used without a key.
        """
        options = once.OnceOptions(in_transaction, wait, keep, request, free_on)
        return once.once_decorator(self.opener.keys, key, options, caller=sys._getframe(1))

    def claim(
        self,
        key: KeyLike,
        /,
        *,
        request: object = None,
        tx: Transaction | AsyncTransaction | None = None,
        wait: Seconds | None = None,
        keep: Seconds = DAY,
        free_on: Rules | None = None,
    ) -> ClaimContext:
        """Make a block of code idempotent: `with app.claim(key) as claim:`, or `async with`.

        Args:
            key: Idempotency key.
            request: Value that must be equal when the key is equal: bytes, or a value that can be
                stored. Default: nothing is compared.
            tx: Your open transaction on the ledger's database. The key is settled when you commit
                it. `async with` takes an async transaction.
            wait: Seconds to wait while another caller holds the key. Default: do not wait, raise
                `KeyBusy`.
            keep: How long the result is stored.
            free_on: Errors after which the key can be used again. Default: errors that the standard
                rule retries.

        Returns:
            A context manager. See `once`.
        """
        return claims.ClaimContext(
            self.opener.keys, key, request=request, tx=tx, wait=wait, keep=keep, free_on=free_on
        )

    def idempotency(
        self,
        app: AsgiApp,
        *,
        required: bool = False,
        methods: Collection[str] = METHODS,
        paths: str = "*",
        domain: str = "http",
        user: Callable[[Mapping[str, Any]], str | int] | Literal["request.user"] | None = None,
        keep: Seconds = DAY,
        max_body: int = MAX_BODY_BYTES,
        request: Callable[[Mapping[str, Any], bytes], object] | None = None,
        free_on: Collection[int] | None = None,
    ) -> AsgiApp:
        """Return ASGI middleware for the Idempotency-Key header.

        Add it with `api.add_middleware(app.idempotency, required=True)`.

        Args:
            app: The ASGI application to wrap. Litestar passes it by this name.
            required: Reject requests without the header (400).
            methods: HTTP methods that take a key.
            paths: Pattern of the paths that take a key, with `*`.
            domain: First part of the stored keys.
            user: Function of the ASGI scope that returns the caller. Each user has a separate key
                space. `"request.user"` is the user of Starlette's `AuthenticationMiddleware`.
                Without it, or where it returns an empty text, all callers share one key
                space. Headers that identify a caller (Authorization, Cookie, API keys, Host) are
                then part of the request. If it returns None, the request is rejected (401).
            keep: How long a response is stored.
            max_body: Maximum number of bytes of a request, and of a stored response.
            request: Function of the ASGI scope and the body. It returns the part of a request that
                must be equal when the key is equal. Default: method, path, query, content type and
                body. The boundary of multipart bodies is ignored.
            free_on: HTTP statuses after which the key can be used again. Default: 5xx, and 4xx that
                reject the request: 400, 401, 403, 404, 405, 406, 408, 411, 413, 414, 415, 417, 421,
                422, 425, 426, 428, 429, 431.

        Returns:
            The wrapped application.

        Raises:
            RuntimeError: `user` is `"request.user"`, and the authentication is inside of `app`.
        """
        is_framework_user = user == "request.user"
        user_of: Any = asgi.request_user if is_framework_user else user
        limits = keep, max_body, request, free_on, is_framework_user
        options = middleware.MiddlewareOptions(required, methods, paths, domain, user_of, *limits)
        return asgi.AsgiMiddleware(self.opener.keys, app, options)

    def wsgi_idempotency(
        self,
        app: WSGIApplication,
        *,
        required: bool = False,
        methods: Collection[str] = METHODS,
        paths: str = "*",
        domain: str = "http",
        user: Callable[[Mapping[str, Any]], str | int] | None = None,
        keep: Seconds = DAY,
        max_body: int = MAX_BODY_BYTES,
        request: Callable[[Mapping[str, Any], bytes], object] | None = None,
        free_on: Collection[int] | None = None,
    ) -> WSGIApplication:
        """Return WSGI middleware for the Idempotency-Key header.

        Flask and Django have their own, which know the user: `redrive.flask.Idempotency` and
        `redrive.django.IdempotencyMiddleware`.

        Args:
            app: The WSGI application to wrap.
            required: Reject requests without the header (400).
            methods: HTTP methods that take a key.
            paths: Pattern of the paths that take a key, with `*`.
            domain: First part of the stored keys.
            user: Function of the WSGI environ that returns the caller. See `idempotency`.
            keep: How long a response is stored.
            max_body: Maximum number of bytes of a request, and of a stored response.
            request: Function of the WSGI environ and the body. See `idempotency`.
            free_on: HTTP statuses after which the key can be used again. See `idempotency`.

        Returns:
            The wrapped application.
        """
        limits = keep, max_body, request, free_on, True
        options = middleware.MiddlewareOptions(required, methods, paths, domain, user, *limits)
        return wsgi.WsgiMiddleware(self.opener.keys, app, options)
