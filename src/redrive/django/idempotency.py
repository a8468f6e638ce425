"""IdempotencyMiddleware: the Idempotency-Key header in Django, by its own users, sync and async."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from difflib import get_close_matches
from typing import Any

import django
from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured, RequestDataTooBig
from django.http import HttpRequest, HttpResponse, UnreadablePostError
from django.http.request import RawPostDataException
from django.utils.module_loading import import_string

from ..app import App
from ..app.idempotency import DAY, MAX_BODY_BYTES, METHODS
from ..core.context import ActiveScope
from ..idempotency import middleware
from ..idempotency.asgi import log_error
from ..idempotency.keyed_request import KeyedRequest, RecordedStream
from ..idempotency.keys import Keys
from ..idempotency.lease import KeyLease, scope_with_key, settle_in_thread
from ..idempotency.middleware import ANONYMOUS, MiddlewareOptions, MiddlewareRules
from ..idempotency.request import RequestHead
from ..idempotency.response import RecordedResponse, ResponseRecording
from ..idempotency.wsgi import announced_length, check_body, request_of, to_text

SETTING = "REDRIVE_IDEMPOTENCY"
NAMES = (
    "APP",
    "USER",
    "REQUIRED",
    "METHODS",
    "PATHS",
    "DOMAIN",
    "KEEP",
    "MAX_BODY",
    "REQUEST",
    "FREE_ON",
)
EXAMPLE = "set it to a dict with the path of your app, such as {'APP': 'shop.jobs.app'}"
AUTHENTICATION = "django.contrib.auth.middleware.AuthenticationMiddleware"
REQUEST_USER = "request.user"
"""The default of `USER`: the user of `AuthenticationMiddleware`."""


def check_version(version: tuple[Any, ...], /) -> None:
    """Raise ImportError for a version of Django before 5.2."""
    if version[:2] < (5, 2):
        number = ".".join(map(str, version[:2]))
        raise ImportError(
            "redrive.django.IdempotencyMiddleware needs Django 5.2 or later, not "
            f'{number}: pip install "redrive[django]"'
        )


check_version(django.VERSION)


class IdempotencyMiddleware:
    """Middleware for the Idempotency-Key header. Threads and event loops may share it.

    Put it after `AuthenticationMiddleware` in `MIDDLEWARE`, and its options into the setting
    `REDRIVE_IDEMPOTENCY`. The keys of each user are separate.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        """Create the middleware, as Django does when it starts.

        Args:
            get_response: The next middleware, or the view.

        Raises:
            ImproperlyConfigured: The setting is missing or not valid, or the user cannot be known
                at this place in `MIDDLEWARE`.
        """
        self._app, self._options, self._rules = read_settings()
        self._get_response = get_response
        self._running: set[asyncio.Task[Any]] = set()
        self._is_async = iscoroutinefunction(get_response)
        if self._is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:
        """Serve one request. Under ASGI, return a coroutine that does."""
        if self._is_async:
            return self._serve_async(request)
        opened = self._open(request)
        if opened is None:
            return self._get_response(request)
        if isinstance(opened, RecordedResponse):
            return _response_of(opened)
        identified = self._identify(request, *opened)
        if isinstance(identified, RecordedResponse):
            return _response_of(identified)
        begun = self._rules.begin(self._app.keys(), *identified)
        if isinstance(begun, RecordedResponse):
            return _response_of(begun)
        keyed = KeyedRequest(self._rules, begun)
        with keyed.active():
            response = self._get_response(request)
        return _record(keyed, response)

    def _open(
        self, request: HttpRequest
    ) -> tuple[RequestHead, str, bytes] | RecordedResponse | None:
        """Return the head, the key and the body of a request. None: it runs without a key."""
        if not self._rules.takes_key(request.method, request.path):
            return None
        head = request_of(request.META)._replace(
            path=request.path, raw_path=request.path.encode("utf-8", "surrogateescape")
        )
        client_key = self._rules.client_key(head)
        if client_key is None or isinstance(client_key, RecordedResponse):
            return client_key
        body = self._read_body(request)
        return body if isinstance(body, RecordedResponse) else (head, client_key, body)

    def _read_body(self, request: HttpRequest) -> bytes | RecordedResponse:
        is_wsgi = "wsgi.input" in request.META
        # Django reads as much as Content-Length announces, and under ASGI everything.
        environ = {**request.META, "wsgi.input_terminated": not is_wsgi}
        length = announced_length(environ, self._rules)
        if isinstance(length, RecordedResponse):
            return length
        try:
            body: bytes = request.body
        except RequestDataTooBig:
            return self._rules.too_large()
        except UnreadablePostError:  # the client has disconnected
            body = b""
            length = 1
        except RawPostDataException:
            raise RuntimeError(
                "redrive.django.IdempotencyMiddleware: another middleware has read the body of the "
                "request, which must be compared; put that one after it in MIDDLEWARE"
            ) from None
        return check_body(body, length, self._rules)

    def _identify(self, request: HttpRequest, head: RequestHead, key: str, body: bytes) -> Any:
        options = self._options
        user = ANONYMOUS if options.user is None else options.user(request)
        compared = None if options.request is None else options.request(request)
        return self._rules.identify(head, body, key, user, compared)

    # ---- async ----

    async def _serve_async(self, request: HttpRequest) -> Any:
        opened = self._open(request)
        if opened is None:
            return await self._get_response(request)
        if isinstance(opened, RecordedResponse):
            return _response_of(opened)
        # The functions of the user, and the lazy user of Django, may query the database.
        identified = await sync_to_async(self._identify)(request, *opened)
        if isinstance(identified, RecordedResponse):
            return _response_of(identified)
        begun = await self._rules.abegin(self._app.keys(), *identified)
        if isinstance(begun, RecordedResponse):
            return _response_of(begun)
        return await self._run_shielded(request, begun)

    async def _run_shielded(self, request: HttpRequest, lease: KeyLease) -> Any:
        """Run the view to its end, even if Django cancels it because the client has disconnected.

        A view that stopped half way would free its key, and a retry would run it a second time.
        """
        task = asyncio.create_task(self._run(request, lease))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            _ = self._run_in_background(_finish(task))
            raise

    async def _run(self, request: HttpRequest, lease: KeyLease) -> Any:
        keys = self._app.keys()
        entered = ActiveScope(scope_with_key(lease.key))
        try:
            response = await self._get_response(request)
            if not response.streaming:
                recorded = _recording_of(response, self._rules.max_body).response()
                await settle_in_thread(keys, self._rules.settle, lease, recorded)
                return response
            if not response.is_async:  # Django reads it in a thread, too
                return await sync_to_async(_record)(KeyedRequest(self._rules, lease), response)
            body = _AsyncBody(response, self._rules, keys, lease, self._run_in_background)
            if body.recording.is_withheld:
                await body.read()
            return body.attach()
        except BaseException as error:
            await settle_in_thread(keys, lease.fail, error)
            raise
        finally:
            entered.leave()

    def _run_in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        task.add_done_callback(log_error)
        return task


async def _finish(task: asyncio.Task[Any]) -> None:
    """Wait for a view whose client has disconnected, and end its response."""
    async with asyncio.timeout(middleware.DISCONNECTED_SECONDS):
        response = await task
    await sync_to_async(response.close)()  # reads the rest of a stream


# ---- responses ----


def _response_of(recorded: RecordedResponse) -> HttpResponse:
    headers = dict(to_text(recorded.headers))
    response = HttpResponse(recorded.body or b"", status=recorded.status, headers=headers)
    if not any(name.lower() == "content-type" for name in headers):
        del response["Content-Type"]  # Django's default
    return response


def _recording_of(response: Any, limit: int) -> ResponseRecording:
    """Return the recording of a response, with its body unless it is streamed."""
    recording = ResponseRecording(limit)
    headers = [
        (name.encode("latin-1"), value.encode("latin-1")) for name, value in response.items()
    ]
    recording.start(response.status_code, headers)
    if not response.streaming:
        recording.add(response.content)
    return recording


def _record(keyed: KeyedRequest, response: Any) -> Any:
    """Store a response, or record it while the server streams it."""
    recording = _recording_of(response, keyed.max_body)
    if not response.streaming:
        keyed.settle(recording.response())
        return response
    stream = RecordedStream(keyed, recording, iter(response))
    if recording.is_withheld:
        stream.withhold(is_whole=False)
    _replace_body(response, stream)
    return response


def _replace_body(response: Any, body: Any) -> None:
    """Replace the streamed body of a response. The new body is closed before the old one."""
    close = response.close

    def close_both() -> None:
        try:
            body.close()
        finally:
            close()

    response.streaming_content = body
    response.close = close_both


class _AsyncBody:
    """The body of an async response, between the view and Django. Belongs to the request.

    One task reads the view's iterator to its end, because timeouts and task groups in it belong to
    a task. It continues if the client disconnects.
    """

    def __init__(
        self,
        response: Any,
        rules: MiddlewareRules,
        keys: Keys,
        lease: KeyLease,
        run_in_background: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self.recording = _recording_of(response, rules.max_body)
        self._response = response
        self._pieces: AsyncIterator[bytes] = response.streaming_content
        self._rules = rules
        self._keys = keys
        self._lease = lease
        self._run_in_background = run_in_background
        self._loop = asyncio.get_running_loop()
        # A withheld body is read completely before it is sent. Another one waits for its client.
        size = 0 if self.recording.is_withheld else 1
        self._queue: asyncio.Queue[bytes | Exception | None] = asyncio.Queue(size)
        self._task: asyncio.Task[None] | None = None
        self._is_open = True
        self._has_ended = False

    def attach(self) -> Any:
        """Return the response with this body."""
        _replace_body(self._response, self)
        return self._response

    async def read(self) -> None:
        """Read the whole body, and settle the key."""
        async for piece in self._pieces:
            if piece:
                self.recording.add(piece)
                await self._put(piece)
        response = self.recording.response()
        await settle_in_thread(self._keys, self._rules.settle, self._lease, response)
        self._has_ended = True
        await self._put(None)

    async def _put(self, item: bytes | Exception | None) -> None:
        if self._is_open:
            await self._queue.put(item)

    async def _read_in_task(self) -> None:
        entered = ActiveScope(scope_with_key(self._lease.key))
        try:
            await self.read()
        except BaseException as error:
            self._has_ended = True
            await settle_in_thread(self._keys, self._lease.fail, error)
            if not isinstance(error, Exception) or not self._is_open:
                raise
            await self._put(error)  # Django raises it
        finally:
            entered.leave()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        self._start()
        item = await self._queue.get()
        if item is None:
            raise StopAsyncIteration
        if isinstance(item, Exception):
            raise item
        return item

    def _start(self) -> None:
        if self._task is None and not self._has_ended:
            self._task = self._run_in_background(self._read_in_task())

    def close(self) -> None:
        """End the response. Django calls it in a thread, also after a disconnect."""
        if not self._has_ended:
            self._loop.call_soon_threadsafe(self._abandon)

    def _abandon(self) -> None:
        self._is_open = False
        while not self._queue.empty():
            self._queue.get_nowait()
        self._start()
        if self._task is not None:
            self._loop.call_later(middleware.DISCONNECTED_SECONDS, self._task.cancel)

    def __del__(self) -> None:
        # See `RecordedStream`: a response that was replaced must not hold its key for ever.
        if self._task is None and not self._lease.is_settled:
            self._lease.stop_renewing()


# ---- settings ----


def read_settings() -> tuple[App, MiddlewareOptions, MiddlewareRules]:
    """Return the app and the options in the setting `REDRIVE_IDEMPOTENCY`.

    Raises:
        ImproperlyConfigured: The setting is missing or not valid.
    """
    chosen = getattr(settings, SETTING, None)
    if not isinstance(chosen, Mapping):
        problem = "is not set" if chosen is None else f"is {type(chosen).__name__}"
        raise ImproperlyConfigured(f"{SETTING} {problem}; {EXAMPLE}")
    for name in chosen:
        if name not in NAMES:
            similar = get_close_matches(str(name).upper(), NAMES, 1)
            hint = f"did you mean {similar[0]!r}?" if similar else f"names: {', '.join(NAMES)}"
            raise ImproperlyConfigured(f"{SETTING}: unknown name {name!r}; {hint}")
    if "APP" not in chosen:
        raise ImproperlyConfigured(f"{SETTING} has no 'APP'; {EXAMPLE}")
    user = chosen.get("USER", REQUEST_USER)
    if user == REQUEST_USER:
        _check_order()
    try:
        options = MiddlewareOptions(
            required=chosen.get("REQUIRED", False),
            methods=chosen.get("METHODS", METHODS),
            paths=chosen.get("PATHS", "*"),
            domain=chosen.get("DOMAIN", "http"),
            user=_user_of if user == REQUEST_USER else _function("USER", user),
            keep=chosen.get("KEEP", DAY),
            max_body=chosen.get("MAX_BODY", MAX_BODY_BYTES),
            request=_function("REQUEST", chosen.get("REQUEST")),
            free_on=chosen.get("FREE_ON"),
            compares_host=True,
        )
        rules = MiddlewareRules(options)
    except (TypeError, ValueError) as error:
        raise ImproperlyConfigured(f"{SETTING}: {error}") from error
    return _find_app(chosen["APP"]), options, rules


def _find_app(path: Any) -> App:
    """Return the app at a path, or the one that the function at this path returns."""
    found = _import("APP", path)
    app = found if isinstance(found, App) or not callable(found) else found()
    if not isinstance(app, App):
        raise ImproperlyConfigured(
            f"{SETTING}: APP must be the path of a redrive.App, such as 'shop.jobs.app'; {path!r} "
            f"is {type(app).__name__}"
        )
    return app


def _function(name: str, path: Any) -> Callable[..., Any] | None:
    if path is None:
        return None
    function: Callable[..., Any] = _import(name, path)
    if not callable(function) or iscoroutinefunction(function):
        raise ImproperlyConfigured(
            f"{SETTING}: {name} must be a sync function of the request, or its path, not {path!r}"
        )
    return function


def _import(name: str, path: Any) -> Any:
    if not isinstance(path, str):
        return path
    try:
        return import_string(path.replace(":", "."))
    except ImportError as error:
        raise ImproperlyConfigured(f"{SETTING}: {name} {path!r}: {error}") from error


def _check_order() -> None:
    """Raise if the middleware is not after Django's authentication, where the user is known."""
    for path in settings.MIDDLEWARE:
        entry = import_string(path)
        bases = entry.__mro__ if isinstance(entry, type) else ()
        if IdempotencyMiddleware in bases:
            break
        # Not imported: a project without users need not install `django.contrib.auth`.
        if any(f"{base.__module__}.{base.__name__}" == AUTHENTICATION for base in bases):
            return
    raise ImproperlyConfigured(
        "redrive.django.IdempotencyMiddleware needs the user of the request; put "
        f"{AUTHENTICATION!r} before it in MIDDLEWARE, or set {SETTING}['USER'] to a function of "
        "the request, or to None if the API has no users"
    )


def _user_of(request: HttpRequest) -> Any:
    return request.user.pk if request.user.is_authenticated else ANONYMOUS
