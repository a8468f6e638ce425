"""Idempotency: the Idempotency-Key header in a Flask application, by its own users.

Two hooks share the work. One is around `Flask.wsgi_app`: it reads the body before anything else
does, and it stores the response after everything else, such as a commit in `after_request`. The
other is around `Flask.dispatch_request`: there the user is known, because all `before_request`
functions have run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from importlib import metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

import flask

from ..app import App
from ..app.idempotency import DAY, MAX_BODY_BYTES, METHODS
from ..core.lazy import Deferred
from ..core.seconds import Seconds
from ..idempotency.middleware import ANONYMOUS, MiddlewareOptions, MiddlewareRules
from ..idempotency.response import RecordedResponse
from ..idempotency.wsgi import EXCHANGE, WsgiExchange, WsgiMiddleware, path_of, to_text

if TYPE_CHECKING:
    import flask_login
else:  # its user is the default, and not the only choice
    flask_login = Deferred("flask_login")

EXTENSION = "redrive-idempotency"
"""The name of this extension in `Flask.extensions`."""


def check_version(version: str, /) -> None:
    """Raise ImportError for a version of Flask before 3.0."""
    if int(version.partition(".")[0]) < 3:
        raise ImportError(
            f'redrive.flask needs Flask 3.0 or later, not {version}: pip install "redrive[flask]"'
        )


check_version(metadata.version("flask"))


class Idempotency:
    """A Flask extension for the Idempotency-Key header. Threads and applications may share it.

    Create it with the application, or call `init_app` later. The keys of each user are separate.
    """

    def __init__(
        self,
        app: App,
        flask_app: flask.Flask | None = None,
        *,
        user: Callable[[], str | int] | Literal["current_user"] | None = "current_user",
        required: bool = False,
        methods: Collection[str] = METHODS,
        paths: str = "*",
        domain: str = "http",
        keep: Seconds = DAY,
        max_body: int = MAX_BODY_BYTES,
        request: Callable[[], object] | None = None,
        free_on: Collection[int] | None = None,
    ) -> None:
        """Create the extension.

        Args:
            app: The app with the ledger.
            flask_app: The Flask application. None: call `init_app` later.
            user: Function without arguments that returns the caller, in the context of the request.
                It may use `flask.session`, `flask.g` and all that `before_request` functions set.
                The default is the `current_user` of Flask-Login. An empty text is an anonymous
                caller, and None rejects the request (401). `user=None`: the API has no users. All
                callers then share one key space, and the headers that identify a caller are
                compared.
            required: Reject requests without the header (400).
            methods: HTTP methods that take a key.
            paths: Pattern of the whole paths that take a key, with `*`.
            domain: First part of the stored keys.
            keep: How long a response is stored.
            max_body: Maximum number of bytes of a request, and of a stored response.
            request: Function without arguments that returns the part of `flask.request` that must
                be equal when the key is equal. Default: method, path, query, content type and body.
            free_on: HTTP statuses after which the key can be used again. See `App.idempotency`.

        Raises:
            TypeError: An object or an option has the wrong type.
            ValueError: An option is not valid.
            RuntimeError: The user cannot be known in `flask_app`.
        """
        if not isinstance(app, App):
            raise TypeError(
                f"Idempotency: app must be a redrive.App, not {type(app).__name__}; pass "
                "Idempotency(app, flask_app)"
            )
        self._app = app
        self._uses_login = user == "current_user"
        user_of: Any = _login_user if self._uses_login else user
        limits = keep, max_body, request, free_on, True
        self._options = MiddlewareOptions(required, methods, paths, domain, user_of, *limits)
        MiddlewareRules(self._options)  # checks the other options
        if flask_app is not None:
            self.init_app(flask_app)

    def init_app(self, flask_app: flask.Flask, /) -> None:
        """Add the extension to an application.

        Args:
            flask_app: The Flask application.

        Raises:
            TypeError: `flask_app` is not a Flask application.
            RuntimeError: It already has the extension, or no user can be known in it. Nothing was
                changed.
        """
        if not isinstance(flask_app, flask.Flask):
            raise TypeError(
                f"Idempotency: flask_app must be a flask.Flask, not {type(flask_app).__name__}; "
                "use app.wsgi_idempotency for other WSGI applications, and app.idempotency for ASGI"
            )
        if EXTENSION in flask_app.extensions:
            raise RuntimeError(
                f"Idempotency: {flask_app.name!r} already has it; create it once for each "
                "application. Nothing was changed"
            )
        if self._uses_login and not hasattr(flask_app, "login_manager"):
            raise RuntimeError(
                f"Idempotency: the user of {flask_app.name!r} is unknown, because "
                f"{_login_problem()}, or pass user=, a function such as "
                "lambda: session['user_id'], or user=None if the API has no users. Nothing was "
                "changed"
            )
        middleware = WsgiMiddleware(
            self._app.keys, flask_app.wsgi_app, self._options, begins_inside=True
        )
        dispatch = _Dispatch(flask_app, flask_app.dispatch_request, middleware, self._options)
        application: Any = flask_app  # its methods are replaced, as Flask documents for wsgi_app
        application.wsgi_app = middleware
        application.dispatch_request = dispatch
        application.extensions[EXTENSION] = self


class _Dispatch:
    """Calls the view of a request under its key, in the context of the request."""

    def __init__(
        self,
        flask_app: flask.Flask,
        dispatch: Callable[..., Any],
        middleware: WsgiMiddleware,
        options: MiddlewareOptions,
    ) -> None:
        self._flask_app = flask_app
        self._dispatch = dispatch
        self._rules = middleware.rules
        self._options = options

    def __call__(self, *context: Any) -> Any:
        # From Flask 3.2 on, the argument is the context.
        environ = flask.request.environ
        exchange: WsgiExchange | None = environ.get(EXCHANGE)
        if exchange is None:
            self._check_protected(environ)
        if exchange is None or exchange.keyed.lease is not None:  # dispatched once more, inside
            return self._dispatch(*context)
        user = ANONYMOUS if self._options.user is None else self._options.user()
        compared = None if self._options.request is None else self._options.request()
        response = exchange.begin(user, compared)
        if response is not None:
            return self._response_of(response)
        with exchange.keyed.in_scope():  # Flask turns errors into responses
            return self._dispatch(*context)

    def _check_protected(self, environ: dict[str, Any]) -> None:
        """Raise if a request with a key did not pass the middleware."""
        if "HTTP_IDEMPOTENCY_KEY" not in environ:
            return
        if self._rules.takes_key(environ["REQUEST_METHOD"], path_of(environ)):
            raise RuntimeError(
                "Idempotency: wsgi_app was replaced, so that requests with a key would run "
                "unprotected; wrap it instead: app.wsgi_app = Middleware(app.wsgi_app)"
            )

    def _response_of(self, response: RecordedResponse) -> Any:
        headers = to_text(response.headers)
        return self._flask_app.response_class(response.body or b"", response.status, headers)


def _login_problem() -> str:
    if find_spec("flask_login") is None:
        return "Flask-Login is not installed; install flask-login"
    return "it has no LoginManager; call login_manager.init_app(flask_app) before"


def _login_user() -> str | int:
    user = flask_login.current_user
    identity: str | int = user.get_id() if user.is_authenticated else ANONYMOUS
    return identity
